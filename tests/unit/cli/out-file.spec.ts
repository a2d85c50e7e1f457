import { mkdtemp, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { OutFile } from '../../../node/train/out-file.ts'
import { writeSafetensors } from '../../../src/data/safetensors.ts'
import { readTorch } from '../../../src/data/torch/read-torch.ts'

const whole = writeSafetensors([['a', { dtype: 'U8', shape: [3], data: Uint8Array.of(1, 2, 3) }]])

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'tabring-'))
})
afterEach(() => rm(folder, { recursive: true }))

test('the file appears at commit, and an old one stays until then', async () => {
  const path = join(folder, 'w')
  await writeFile(path, 'old')
  const out = await OutFile.open(path)
  await writeFile(out.temporaryPath, whole)
  expect(await readFile(path, 'utf8')).toBe('old')
  await out.commit()
  await out.discard()
  expect(new Uint8Array(await readFile(path))).toEqual(whole)
  expect(await readdir(folder)).toEqual(['w'])
})

test('the ending .pth makes it a file of PyTorch', async () => {
  const out = await OutFile.open(join(folder, 'w.pth'))
  await writeFile(out.temporaryPath, whole)
  await out.commit()
  expect(await readTorch(new Uint8Array(await readFile(out.path)))).toEqual({
    a: { dtype: 'U8', shape: [3], data: Uint8Array.of(1, 2, 3) },
  })
})

test('a name of another format is refused for weights alone', async () => {
  await expect(OutFile.open(join(folder, 'm.ONNX'))).rejects.toThrow(
    /^--out: cannot write .*m\.ONNX: weights are written as .safetensors, or as .pt or .pth of PyTorch, not as .ONNX\. Choose another path\.$/,
  )
  for (const name of ['m.v2', 'zip', 'm.safetensors'])
    await (await OutFile.open(join(folder, name))).discard()
  await (await OutFile.open(join(folder, 'trace.json'), '--trace')).discard()
})

test('through a link the file itself is replaced, not the link', async () => {
  await writeFile(join(folder, 'real'), 'old')
  await symlink('real', join(folder, 'w'))
  const out = await OutFile.open(join(folder, 'w'))
  await writeFile(out.temporaryPath, whole)
  await out.commit()
  expect(new Uint8Array(await readFile(join(folder, 'real')))).toEqual(whole)
  expect((await readdir(folder)).sort()).toEqual(['real', 'w'])
})

test('discard leaves nothing, and a cut file is not put in place', async () => {
  const out = await OutFile.open(join(folder, 'w'))
  await writeFile(out.temporaryPath, whole.subarray(0, whole.length - 1))
  await expect(out.commit()).rejects.toMatchObject({ code: 'data.malformed' })
  await out.discard()
  await out.discard()
  expect(await readdir(folder)).toEqual([])
})
