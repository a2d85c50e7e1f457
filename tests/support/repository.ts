import { join } from 'node:path'

/** The path of the repository's root. */
export const repository = join(import.meta.dirname, '..', '..')
