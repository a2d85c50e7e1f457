import { DataError } from '../util/errors.ts'

/** The error for contents of a file that its format does not allow. `where`: the file, and the place in it. */
export const malformed = (
  where: string,
  expected: string,
  got: string,
  remedy = 'Check the file, or fetch it again.',
): DataError =>
  new DataError('data.malformed', `${where}: expected ${expected}, got ${got}. ${remedy}`)
