import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { makeFolder } from '../../../node/make-folder.ts'

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tabring-folder-'))
})
afterEach(() => rm(folder, { recursive: true }))

test('makes a folder with those above it, once and again', async () => {
  const path = join(folder, 'a', 'b')
  await makeFolder(path)
  await makeFolder(path)
  expect(await readdir(join(folder, 'a'))).toEqual(['b'])
})

test.skipIf(process.platform !== 'linux')('fails in /proc, where Node waits for ever', async () => {
  await expect(makeFolder('/proc/tabring')).rejects.toMatchObject({ code: 'ENOENT' })
})

test('fails where a file is in the way', async () => {
  await writeFile(join(folder, 'file'), '')
  await expect(makeFolder(join(folder, 'file'))).rejects.toMatchObject({ code: 'EEXIST' })
  await expect(makeFolder(join(folder, 'file', 'a'))).rejects.toMatchObject({ code: 'ENOTDIR' })
})
