import { join } from 'node:path'
import { defineConfig } from 'vite'

/** The page of a launched rank as the package has it; `tabring run` builds it around the user's module. */
export default defineConfig({
  publicDir: false,
  build: {
    target: 'es2023',
    outDir: join('dist-lib', 'launch'),
    emptyOutDir: false,
    minify: false,
    lib: {
      entry: join(import.meta.dirname, 'src', 'rank.ts'),
      formats: ['es'],
      fileName: 'rank',
    },
    rolldownOptions: {
      // The user's module, which is known when a run is built.
      external: ['virtual:tabring-program'],
      output: { keepNames: true },
    },
  },
})
