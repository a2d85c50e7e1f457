import { spawnSync } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import {
  readSafetensors,
  type SafeTensor,
  writeSafetensors,
} from '../../../src/data/safetensors.ts'

const golden = (name: string) => new URL(`../../golden/${name}`, import.meta.url).pathname

/** The same tensors as `expected()` in tests/golden/safetensors_file.py. */
function sampleTensors(): Map<string, SafeTensor> {
  const ramp = (count: number) =>
    Float32Array.from({ length: count }, (_, i) => (((i * 37) % 101) - 50) / 8)
  return new Map<string, SafeTensor>([
    ['0.weight', { dtype: 'F32', shape: [5, 3], data: ramp(15) }],
    ['0.bias', { dtype: 'F32', shape: [5], data: ramp(5).map((x) => 2 * x) }],
    ['steps', { dtype: 'I32', shape: [], data: Int32Array.of(-7) }],
    ['große "Namen"', { dtype: 'I64', shape: [2], data: BigInt64Array.of(2n ** 40n, -1n) }],
    ['empty', { dtype: 'F32', shape: [0, 4], data: new Float32Array(0) }],
    ['pixels', { dtype: 'U8', shape: [7], data: Uint8Array.from({ length: 7 }, (_, i) => i * 41) }],
  ])
}

const byName = (tensors: Map<string, SafeTensor>) => Object.fromEntries(tensors)
const sample = () => writeSafetensors(sampleTensors(), { format: 'pt' })

test('the reader returns what the writer wrote', () => {
  const { tensors, metadata } = readSafetensors(sample())
  expect(byName(tensors)).toEqual(byName(sampleTensors()))
  expect(metadata).toEqual({ format: 'pt' })
  expect(readSafetensors(writeSafetensors([])).tensors.size).toBe(0)
})

test('every tensor and the data begin at a multiple of the element size', () => {
  const file = sample()
  const headerBytes = Number(new DataView(file.buffer).getBigUint64(0, true))
  expect(headerBytes % 8).toBe(0)
  const header = JSON.parse(new TextDecoder().decode(file.subarray(8, 8 + headerBytes)))
  expect(header['große "Namen"'].data_offsets[0]).toBe(0)
  expect(header['0.weight'].data_offsets[0] % 4).toBe(0)
  expect(header['steps'].data_offsets[0] % 4).toBe(0)
})

test('a file that Python wrote from torch tensors reads the same', () => {
  const { tensors, metadata } = readSafetensors(readFileSync(golden('python.safetensors')))
  expect(byName(tensors)).toEqual(byName(sampleTensors()))
  expect(metadata).toEqual({ format: 'pt' })
})

test('the writer still makes the file that torch has read', () => {
  // tabring.safetensors was made by this writer and passed `safetensors_file.py check` under PyTorch 1.13.
  expect(Buffer.compare(sample(), readFileSync(golden('tabring.safetensors')))).toBe(0)
})

const hasTorch = spawnSync('/usr/bin/python3', ['-c', 'import torch']).status === 0
if (!hasTorch)
  console.log(
    'DID NOT RUN: "torch reads the file": /usr/bin/python3 has no torch; the pinned file stands for it.',
  )

test.runIf(hasTorch)(
  'torch reads the file',
  () => {
    const folder = mkdtempSync(join(tmpdir(), 'tabring-'))
    try {
      writeFileSync(join(folder, 'ours.safetensors'), sample())
      const run = spawnSync('/usr/bin/python3', [
        golden('safetensors_file.py'),
        'check',
        join(folder, 'ours.safetensors'),
      ])
      expect(String(run.stderr)).toBe('')
      expect(run.status).toBe(0)
    } finally {
      rmSync(folder, { recursive: true })
    }
  },
  30_000,
)

test('an unaligned view of a file reads too', () => {
  const file = sample()
  const larger = new Uint8Array(file.length + 3)
  larger.set(file, 3)
  expect(byName(readSafetensors(larger.subarray(3)).tensors)).toEqual(byName(sampleTensors()))
})

/** A file with this header and `dataBytes` zeros. */
function fileWith(header: string | Uint8Array, dataBytes = 0): Uint8Array {
  const text = typeof header === 'string' ? new TextEncoder().encode(header) : header
  const file = new Uint8Array(8 + text.length + dataBytes)
  new DataView(file.buffer).setBigUint64(0, BigInt(text.length), true)
  file.set(text, 8)
  return file
}
const entry = (dtype: string, shape: unknown, begin: number, end: number) =>
  JSON.stringify({ dtype, shape, data_offsets: [begin, end] })
const hugeHeader = new Uint8Array(16)
hugeHeader.fill(0xff, 0, 8)

test.each([
  ['an empty file', new Uint8Array(0), 'expected a safetensors file, got an empty file'],
  ['a file of 7 bytes', new Uint8Array(7), '8 bytes of header length, got 7'],
  ['a huge header length', hugeHeader, 'expected a safetensors file, got other bytes'],
  ['a cut header', fileWith('{}        ').subarray(0, 12), '10 bytes of header, got 4 (truncated)'],
  ['no JSON', fileWith('{"a":'), 'a header of JSON'],
  ['no UTF-8', fileWith(Uint8Array.of(0x7b, 0xff, 0x7d)), 'a header of JSON in UTF-8'],
  ['an array', fileWith('[]'), 'a JSON object'],
  ['leading space', fileWith(' {}'), 'JSON object from its first byte'],
  [
    'an unknown dtype',
    fileWith(`{"a":${entry('F4', [1], 0, 1)}}`, 1),
    'f: "a": expected a dtype among F64',
  ],
  [
    'an inherited name as dtype',
    fileWith(`{"a":${entry('toString', [1], 0, 1)}}`, 1),
    'a dtype among',
  ],
  [
    'a negative dimension',
    fileWith(`{"a":${entry('U8', [-1], 0, 1)}}`, 1),
    'shape of whole numbers, got [-1]',
  ],
  [
    'no shape',
    fileWith('{"a":{"dtype":"U8","data_offsets":[0,1]}}', 1),
    'shape of whole numbers, got none',
  ],
  ['null', fileWith('{"a":null}'), 'a dtype among'],
  [
    'size and shape differ',
    fileWith(`{"a":${entry('F32', [2], 0, 4)}}`, 4),
    'expected 8 bytes for F32 [2], got 4',
  ],
  ['a hole', fileWith(`{"a":${entry('U8', [1], 1, 2)}}`, 2), 'no hole'],
  [
    'an overlap',
    fileWith(`{"a":${entry('U8', [2], 0, 2)},"b":${entry('U8', [2], 1, 3)}}`, 3),
    '"b": expected data from byte 2 on',
  ],
  [
    'cut data',
    fileWith(`{"a":${entry('U8', [4], 0, 4)}}`, 3),
    'data up to byte 4, got 3 bytes (truncated)',
  ],
  ['surplus data', fileWith(`{"a":${entry('U8', [4], 0, 4)}}`, 5), "the file's end after 4 bytes"],
  ['metadata of numbers', fileWith('{"__metadata__":{"a":1}}'), 'text to text'],
])('the reader refuses %s in one line', (_, file, text) => {
  let error: unknown
  try {
    readSafetensors(file, 'f')
  } catch (thrown) {
    error = thrown
  }
  expect(error).toMatchObject({ name: 'DataError', code: 'data.malformed' })
  expect((error as Error).message).toContain(text)
  expect((error as Error).message).not.toContain('\n')
})

test('every truncated file is refused', () => {
  const file = sample()
  for (let length = 1; length < file.length; length++)
    expect(() => readSafetensors(file.subarray(0, length))).toThrow('truncated')
})

test('the writer refuses a name that stands twice', () => {
  const tensor = { dtype: 'F32', shape: [1], data: new Float32Array(1) } as const
  const tensors = ['a', 'b', 'a'].map((name) => [name, tensor] as const)
  expect(() => writeSafetensors(tensors)).toThrow(
    'writeSafetensors: tensors must be names that differ, got "a"',
  )
})

test('the writer refuses a shape that does not fit its data', () => {
  const data = new Float32Array(3)
  expect(() => writeSafetensors([['a', { dtype: 'F32', shape: [2], data }]])).toThrow(
    'writeSafetensors: "a": expected 2 elements of F32 for [2], got 3 in a Float32Array',
  )
  expect(() => writeSafetensors([['__metadata__', { dtype: 'F32', shape: [3], data }]])).toThrow(
    'a name that is not reserved',
  )
  for (const shape of [[-1, -3], [Number.NaN], ['3' as never]])
    expect(() => writeSafetensors([['a', { dtype: 'F32', shape, data }]])).toThrow('"a": expected ')
  expect(() => writeSafetensors([['a', { dtype: 'toString' as 'F32', shape: [3], data }]])).toThrow(
    'writeSafetensors: "a": expected a dtype among F64',
  )
})
