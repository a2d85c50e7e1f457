import { gzipSync } from 'node:zlib'
import { expect, test } from 'vitest'
import { readCsv } from '../../../src/data/csv.ts'
import { readIdx } from '../../../src/data/idx.ts'
import { decodeImage } from '../../../src/data/image/decode.ts'
import { readNpy, readNpz } from '../../../src/data/npy.ts'
import { readSafetensors } from '../../../src/data/safetensors.ts'
import { readTorch } from '../../../src/data/torch/read-torch.ts'
import { idxFile } from '../../support/idx-files.ts'

type Bytes = Uint8Array<ArrayBuffer>
const utf8 = (text: string): Bytes => new Uint8Array(new TextEncoder().encode(text))
const gzip = (bytes: Uint8Array): Bytes => new Uint8Array(gzipSync(bytes))

const readers: Record<string, (bytes: Bytes) => unknown> = {
  csv: (bytes) => readCsv(new Blob([bytes]), 'a'),
  idx: (bytes) => readIdx(bytes, 'a'),
  image: (bytes) => decodeImage(new Blob([bytes]), 'a'),
  npy: (bytes) => readNpy(bytes, 'a'),
  npz: (bytes) => readNpz(bytes, 'a'),
  safetensors: async (bytes) => readSafetensors(bytes, 'a'),
  'safetensors, of an ArrayBuffer,': async (bytes) => readSafetensors(bytes.slice().buffer, 'a'),
  torch: (bytes) => readTorch(bytes, 'a'),
}

test.each(Object.keys(readers))('the %s reader names the kind of a foreign file', async (name) => {
  const lfs =
    'version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n'
  const cases: [bytes: Bytes, is: string, remedy: string][] = [
    [
      utf8('\ufeff\n<!DOCTYPE html>\n<title>Sign in</title>'),
      'an HTML page',
      'A server answers so for a missing file or a login: check the address.',
    ],
    [utf8('<html lang="en">'), 'an HTML page', 'A server answers so'],
    [utf8('<?xml version="1.0"?><Error>'), 'an XML document', 'A server answers so'],
    [utf8(lfs), 'a Git LFS pointer', 'Fetch the file that it stands for: git lfs pull.'],
    [
      utf8('(dp0\nVa\np1\nI5\ns.'),
      'a pickle of protocol 0 or 1, as Python 2 writes them',
      'Load it with Python',
    ],
    [utf8('%PDF-1.7\n'), 'a PDF document', 'Pass another file'],
    [Uint8Array.from(Buffer.from('BZh91AY&SY')), 'a bzip2 file', 'Unpack it: bunzip2'],
    [Uint8Array.of(0x49, 0x49, 0x2a, 0, 8, 0, 0, 0, 1), 'a TIFF image', 'Convert it to PNG.'],
  ]
  // IDX may be compressed, and is read then.
  if (name !== 'idx') cases.push([gzip(utf8('x')), 'a gzip file', 'Unpack it: gunzip.'])
  // An empty table has no header, which its own error says.
  if (name !== 'csv') cases.push([new Uint8Array(), 'an empty file', 'Fetch it again.'])
  for (const [bytes, is, remedy] of cases) {
    const read = Promise.resolve(bytes).then(readers[name])
    await expect(read, is).rejects.toMatchObject({ code: 'data.malformed' })
    await expect(read).rejects.toThrow(new RegExp(`^a: expected .*, got ${is}\\. ${remedy}`))
  }
})

test('an IDX file that is gzipped twice is refused with that reason', async () => {
  await expect(readIdx(gzip(gzip(idxFile([4]))), 'a.gz')).rejects.toThrow(
    'a.gz: expected the IDX magic number 0x00 0x00, a type from 0x08 to 0x0e and a rank, got a gzip file. Unpack it: gunzip.',
  )
})

test('a safetensors header whose size has the bytes of gzip is read', () => {
  const header = '{}'.padEnd(0x8b1f, ' ')
  const file = new Uint8Array(8 + header.length)
  file.set([0x1f, 0x8b])
  file.set(utf8(header), 8)
  expect(readSafetensors(file).tensors.size).toBe(0)
  expect(readSafetensors(file.buffer).tensors.size).toBe(0)
})
