import { backendsPage } from './backends-page.ts'
import { errorsPage } from './errors-page.ts'
import { memoryPage } from './memory-page.ts'
import { opsPage } from './ops-page.ts'
import { switchesPage } from './switches-page.ts'

/** Pages that are made of the code's own lists, by path. */
export const pages = {
  'docs/backends.md': backendsPage,
  'docs/errors.md': errorsPage,
  'docs/memory.md': memoryPage,
  'docs/ops.md': opsPage,
  'docs/switches.md': switchesPage,
}
