import { join } from 'node:path'
import { defineConfig } from 'vite'
import { thirdPartyNotices } from './scripts/third-party-notices.ts'

const notices = thirdPartyNotices(import.meta.dirname)

/** The library as others import it: a module with its chunks and workers, which import nothing from outside. */
export default defineConfig({
  plugins: [notices.bundle],
  // Its workers lie beside it, wherever that is.
  base: './',
  worker: { format: 'es', plugins: () => [notices.worker()] },
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
    rolldownOptions: {
      output: { keepNames: true },
      // docs/guides/library.md says what loads when it is used; a static import of it would load it at once.
      onwarn: (warning, warn) => {
        if (warning.code === 'INEFFECTIVE_DYNAMIC_IMPORT') throw new Error(warning.message)
        warn(warning)
      },
    },
  },
})
