import { readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { type DataSplits, type FolderReader, loadIdxFolder } from '../src/data/dataset.ts'
import { DataError, messageOf } from '../src/util/errors.ts'
import type { MountedFiles } from './mounts.ts'

/** A reader for the folder `directory` of the disk. errors: the reader rejects with `data.missing` when a file cannot be read. */
export function readDiskFolder(directory: string): FolderReader {
  return async (name) => {
    const path = join(directory, name)
    try {
      return new Uint8Array(await readFile(path))
    } catch (thrown) {
      if ((thrown as NodeJS.ErrnoException).code === 'ENOENT') return undefined
      throw new DataError(
        'data.missing',
        `--data: cannot read ${path}: ${messageOf(thrown)}. Check the file and its permissions.`,
        { cause: thrown },
      )
    }
  }
}

/**
 * Returns the data set in `directory`, read with the parser that the tabs use, so that no browser starts in vain.
 *
 * errors: `data.missing`, `data.malformed`, one line that names the file.
 */
export async function checkDataFolder(directory: string): Promise<DataSplits> {
  const info = await stat(directory).catch(() => undefined)
  if (!info?.isDirectory())
    throw new DataError(
      'data.missing',
      `--data: ${directory} ${info ? 'is not a folder' : 'does not exist'}. Name a folder with the four IDX files.`,
    )
  return loadIdxFolder(readDiskFolder(directory))
}

/** Of the folder `directory` the four IDX files, plain or gzip, and nothing else. */
export const idxMount = (directory: string): MountedFiles => ({
  folder: directory,
  isOffered: (name) => /^(train|test|t10k)-(images-idx3|labels-idx1)-ubyte(\.gz)?$/.test(name),
})

/** errors: `data.missing` unless there is a file to give. */
export async function checkGivenFile(path: string): Promise<void> {
  const info = await stat(path).catch(() => undefined)
  if (info?.isFile()) return
  throw new DataError(
    'data.missing',
    `--data-file: ${path} ${info ? 'is not a file' : 'does not exist'}. Name a file.`,
  )
}
