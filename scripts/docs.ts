import { writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { runnerImport } from 'vite'

// Writes the generated pages. Kernels import their shaders as text, which is Vite's doing, not Node's.
const { module } = await runnerImport<typeof import('./docs/pages.ts')>(
  resolve(import.meta.dirname, 'docs/pages.ts'),
)
for (const [path, page] of Object.entries(module.pages)) {
  writeFileSync(resolve(import.meta.dirname, '..', path), page())
}
