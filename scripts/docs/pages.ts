import { backendsPage } from './backends-page.ts'
import { pageWithEntries } from './entries-table.ts'
import { errorsPage } from './errors-page.ts'
import { memoryPage } from './memory-page.ts'
import { opsPage } from './ops-page.ts'
import { pageWithImports, roomReadmes } from './room-imports.ts'
import { pageWithSettings } from './settings-table.ts'
import { switchesPage } from './switches-page.ts'

/** Pages generated from lists in the code, whole or in part, by path. */
export const pages = {
  'docs/reference/api.md': pageWithEntries,
  'docs/reference/backends.md': backendsPage,
  'docs/reference/errors.md': errorsPage,
  'docs/how-it-works/memory.md': memoryPage,
  'docs/reference/ops.md': opsPage,
  'docs/reference/page.md': pageWithSettings,
  'docs/reference/switches.md': switchesPage,
  ...Object.fromEntries(roomReadmes.map((path) => [path, () => pageWithImports(path)])),
}
