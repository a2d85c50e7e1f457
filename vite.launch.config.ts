import { join } from 'node:path'
import { defineConfig } from 'vite'

/**
 * The command `tabring`, the Vite plugin and the fixtures for Playwright as the package has them: for Node, with all they need but Vite and
 * Playwright, which the user's project has or is told to install. So those who take the library alone install no launcher's packages.
 */
export default defineConfig({
  publicDir: false,
  ssr: { noExternal: true, external: ['vite', 'playwright'] },
  build: {
    target: 'node20',
    outDir: join('dist-lib', 'launch'),
    emptyOutDir: true,
    minify: false,
    sourcemap: false,
    ssr: true,
    rolldownOptions: {
      input: {
        tabring: join(import.meta.dirname, 'node', 'tabring.ts'),
        vite: join(import.meta.dirname, 'node', 'vite-plugin.ts'),
        playwright: join(import.meta.dirname, 'node', 'playwright', 'index.ts'),
      },
      output: { keepNames: true, entryFileNames: '[name].js' },
    },
    license: { fileName: 'licenses.md' },
  },
})
