import { afterEach, expect, test, vi } from 'vitest'
import { opfsFileStore } from '../../../src/data/file-store.ts'

/** What a browser's private files may answer that no browser can be made to; tests/gpu/data-files.spec.ts and checkpoints.spec.ts use real ones. */

afterEach(() => vi.unstubAllGlobals())

/** A folder whose files cannot be opened, for the reason of that name. */
async function folderThatSays(name: string) {
  const directory = {
    getDirectoryHandle: async () => directory,
    getFileHandle: async () => {
      throw new DOMException('no', name)
    },
    removeEntry: async () => {
      throw new DOMException('no', name)
    },
  }
  vi.stubGlobal('navigator', { storage: { getDirectory: async () => directory } })
  return opfsFileStore().folder('any')
}

test('a missing file reads as undefined, and removing it is no error', async () => {
  const folder = await folderThatSays('NotFoundError')
  expect(await folder.read('a')).toBeUndefined()
  await folder.remove('a')
})

test('a file that cannot be opened now throws, and does not count as missing', async () => {
  const folder = await folderThatSays('InvalidStateError')
  await expect(folder.read('a')).rejects.toThrow('no')
  await expect(folder.remove('a')).rejects.toThrow('no')
})
