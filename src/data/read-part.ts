import { isOf, quoted } from '../util/kind-of.ts'
import { checkArgument } from '../util/options.ts'
import type { FileFolder } from './file-store.ts'

/** A file of a folder, which may be the caller's own. errors: a TypeError for what is no Blob; the folder's. */
export async function readPart(
  folder: Pick<FileFolder, 'read'>,
  name: string,
): Promise<Blob | undefined> {
  const found: unknown = await folder.read(name)
  const isFile = found === undefined || found === null || isOf(found, Blob, File)
  checkArgument('folder', `what read(${quoted(name)}) gives`, found, isFile, 'a Blob, or undefined')
  return (found as Blob | null) ?? undefined
}
