import { join } from 'node:path'
import { defineConfig } from 'vite'

/** The page of a launched rank, and its console, as the package has them; `tabring run` builds the page around the user's module. */
export default defineConfig({
  publicDir: false,
  build: {
    target: 'es2023',
    outDir: join('dist-lib', 'launch'),
    emptyOutDir: false,
    license: { fileName: 'rank-licenses.md' },
    minify: false,
    lib: {
      entry: {
        rank: join(import.meta.dirname, 'src', 'rank.ts'),
        console: join(import.meta.dirname, 'src', 'rank-console.ts'),
      },
      formats: ['es'],
    },
    rolldownOptions: {
      // The user's module, which is known when a run is built.
      external: ['virtual:tabring-program'],
      output: { keepNames: true },
    },
  },
})
