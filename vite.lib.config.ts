import { join } from 'node:path'
import { defineConfig, type Plugin } from 'vite'
import { entries } from './scripts/entries.ts'
import { thirdPartyNotices } from './scripts/third-party-notices.ts'

const notices = thirdPartyNotices(import.meta.dirname)

/** Ends the build where a static import loads at once what is to load when it is used, as docs/guides/library.md says. */
const loadedWhenUsed: Plugin = {
  name: 'loaded-when-used',
  generateBundle(_, bundle) {
    const chunks = Object.values(bundle).filter((one) => one.type === 'chunk')
    const atOnce = new Set(chunks.filter(({ isEntry }) => isEntry))
    for (const { imports } of atOnce)
      for (const one of chunks) if (imports.includes(one.fileName)) atOnce.add(one)
    for (const id of [...atOnce].flatMap(({ moduleIds }) => moduleIds)) {
      const [importer] = this.getModuleInfo(id)?.dynamicImporters ?? []
      if (importer) this.error(`${id} loads at once, though ${importer} loads it when it is used`)
    }
  },
}

/** The library as others import it: its entry points with their chunks and workers, which import nothing from outside. */
export default defineConfig({
  plugins: [notices.bundle, loadedWhenUsed],
  // Its workers lie beside it, wherever that is.
  base: './',
  worker: { format: 'es', plugins: () => [notices.worker()] },
  build: {
    target: 'es2023',
    outDir: 'dist-lib',
    minify: false,
    sourcemap: true,
    lib: {
      // `nn/functional` is src/entries/nn/functional.ts.
      entry: Object.fromEntries(
        entries.map(({ file }) => [
          file.replace(/^src\/entries\/|\.ts$/g, ''),
          join(import.meta.dirname, file),
        ]),
      ),
      formats: ['es'],
    },
    // Errors carry their class's name.
    rolldownOptions: { output: { keepNames: true } },
  },
})
