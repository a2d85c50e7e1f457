import { join } from 'node:path'
import { defineConfig } from 'vite'

/** The library as others import it: one module, its worker beside it, dependencies left to the importer. */
export default defineConfig({
  base: './',
  worker: { format: 'es', rolldownOptions: { output: { keepNames: true } } },
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
    rolldownOptions: {
      output: { keepNames: true },
      external: [
        'comlink',
        'valibot',
        'papaparse',
        /^simple-peer/,
        /^gpt-tokenizer/,
        /^@noble\/hashes/,
      ],
    },
  },
})
