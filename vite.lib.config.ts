import { join } from 'node:path'
import { defineConfig } from 'vite'

/** The library as others import it: one module that imports nothing. */
export default defineConfig({
  build: {
    target: 'es2023',
    outDir: 'dist-lib',
    minify: false,
    sourcemap: true,
    lib: {
      entry: join(import.meta.dirname, 'src', 'index.ts'),
      formats: ['es'],
      fileName: 'index',
    },
    // Errors carry their class's name.
    rolldownOptions: { output: { keepNames: true } },
  },
})
