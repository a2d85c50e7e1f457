import { errorsPage } from './errors-page.ts'
import { opsPage } from './ops-page.ts'

/** Pages that are made of the code's own lists, by path. */
export const pages = { 'docs/errors.md': errorsPage, 'docs/ops.md': opsPage }
