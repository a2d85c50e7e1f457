import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import type { SafeTensor } from '../../../src/data/safetensors.ts'
import { readTorch, type TorchValue } from '../../../src/data/torch/read-torch.ts'
import { readStateDict } from '../../../src/data/torch/state-dict.ts'
import { writeTorch } from '../../../src/data/torch/write-torch.ts'
import { writeZip } from '../../../src/data/zip.ts'
import { cpuMs } from '../../support/cpu-time.ts'

const folder = new URL('../../golden/', import.meta.url)
const fileOf = (name: string) =>
  new Uint8Array(readFileSync(new URL(`torch-files/${name}`, folder)))
// Not imported: a module would take the key __proto__ for a prototype.
const golden = JSON.parse(readFileSync(new URL('torch-files.json', folder), 'utf8'))

const dtypes: Readonly<Record<string, string>> = {
  F32: 'float32',
  F64: 'float64',
  F16: 'float16',
  BF16: 'bfloat16',
  I64: 'int64',
  I32: 'int32',
  I16: 'int16',
  I8: 'int8',
  U8: 'uint8',
  BOOL: 'bool',
}
const hex = (view: ArrayBufferView) =>
  Buffer.from(view.buffer, view.byteOffset, view.byteLength).toString('hex')

/** A value as tests/golden/torch_files.py writes it. */
function plain(value: TorchValue): unknown {
  if (typeof value === 'bigint') return { int: String(value) }
  if (typeof value !== 'object' || value === null) return value
  if (value instanceof Uint8Array) return { bytes: hex(value) }
  if (Array.isArray(value)) return value.map(plain)
  if ('dtype' in value && 'data' in value) {
    const { dtype, shape, data } = value as SafeTensor
    return { dtype: dtypes[dtype], shape, bytes: hex(data) }
  }
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, plain(one)]))
}

const read = async (name: string) => plain(await readTorch(fileOf(name), name))

test.each(['tensors.pt', 'tensors-legacy.pt', 'tensors-big-endian.pt'])(
  '%s: tensors are those of torch.load',
  async (name) => {
    expect(await read(name)).toEqual(golden.tensors)
  },
)

test.each(['values-2.pt', 'values-3.pt', 'values-4.pt', 'values-5.pt', 'values-legacy.pt'])(
  '%s: values are those of torch.load',
  async (name) => {
    expect(await read(name)).toEqual(golden.values)
  },
)

test('a checkpoint has its optimizer state, and a picked file and a buffer read the same', async () => {
  expect(await read('checkpoint.pth')).toEqual(golden.checkpoint)
  for (const name of ['checkpoint.pth', 'tensors-legacy.pt'])
    for (const file of [new File([fileOf(name)], name), fileOf(name).buffer])
      expect(await readTorch(file)).toEqual(await readTorch(fileOf(name)))
  const { buffer } = fileOf('checkpoint.pth')
  structuredClone(buffer, { transfer: [buffer] })
  await expect(readTorch(buffer)).rejects.toThrow('that was transferred away')
})

test('views of the same elements share an array, others do not', async () => {
  const tensors = (await readTorch(fileOf('tensors.pt'))) as Record<string, SafeTensor>
  expect(tensors['tied_a']!.data).toBe(tensors['tied_b']!.data)
  expect(tensors['part']!.data.buffer).not.toBe(tensors['row']!.data.buffer)
})

describe('writeTorch', () => {
  test('still makes the files that torch.load has read', async () => {
    // make_torch_files.ts made them; PyTorch 1.13 read the first with weights_only=True.
    for (const [from, to] of [
      ['tensors.pt', 'tabring-tensors.pt'],
      ['values-2.pt', 'tabring-values.pt'],
      ['tabring-run.pt', 'tabring-run.pt'],
    ] as const) {
      const ours = writeTorch(await readTorch(fileOf(from)))
      expect(Buffer.compare(ours, fileOf(to))).toBe(0)
      expect(await readTorch(ours)).toEqual(await readTorch(fileOf(from)))
    }
    expect(golden.ours.tensors).toEqual(golden.tensors)
    // torch.load gives lists where tuples and sets were: as here.
    expect(golden.ours.values).toEqual(golden.values)
    // PyTorch's model, optimizer and scheduler have loaded it.
    expect(await read('tabring-run.pt')).toEqual(golden.ours.run)
  })

  test('takes the element type of a tensor from its array', async () => {
    const arrays = [Float32Array, Float64Array, BigInt64Array, Int32Array, Int16Array, Int8Array]
    const tensors = [...arrays, Uint8Array].map((Of) => ({ shape: [1], data: new Of(1) }))
    const read = (await readTorch(writeTorch(tensors))) as SafeTensor[]
    expect(read.map(({ dtype }) => dtype)).toEqual('F32 F64 I64 I32 I16 I8 U8'.split(' '))
  })

  test.each<[unknown, RegExp]>([
    [
      { a: { b: () => 1 } },
      /^writeTorch: a\.b: expected a plain value or a tensor, got a function/,
    ],
    [{ a: new Map() }, /^writeTorch: a: expected a plain object/],
    [
      { a: { dtype: 'U16', shape: [1], data: Uint16Array.of(1) } },
      /^writeTorch: a: expected a dtype among F32 .* got "U16"/,
    ],
    [
      { a: { dtype: 'F32', shape: [2], data: Float32Array.of(1) } },
      /^writeTorch: a: expected 2 elements of F32 for \[2\], got Float32Array of 1/,
    ],
    [{ a: ['\ud800'] }, /^writeTorch: a\.0: expected text, got half of a surrogate pair/],
    [{ '\udc00': 1 }, /expected text, got half of a surrogate pair/],
    [{ a: { shape: 'x', data: new Float32Array() } }, /^writeTorch: a: expected a shape of whole/],
    [[2n ** 4000n], /^writeTorch: 0: expected whole numbers of at most 248 bytes/],
    [JSON.parse(`${'['.repeat(200)}${']'.repeat(200)}`), /at most 100 levels/],
  ])('refuses %#', (value, message) => {
    expect(() => writeTorch(value as TorchValue)).toThrow(message)
  })
})

/** A pickle of protocol 2 in the ZIP form. */
const zipped = (...parts: (string | readonly number[])[]) =>
  writeZip([
    [
      'archive/data.pkl',
      Uint8Array.from([
        0x80,
        2,
        ...parts.flatMap((one) =>
          typeof one === 'string' ? [...Buffer.from(one, 'latin1')] : one,
        ),
        0x2e,
      ]),
    ],
    ['archive/data/0', new Uint8Array(8)],
  ])
const u32 = (value: number) => [...new Uint8Array(Uint32Array.of(value).buffer)]
const storage = ['((', 'U\x07storage', 'ctorch\nFloatStorage\n', 'U\x010', 'U\x03cpu', 'K\x02tQ']
const rebuild = 'ctorch._utils\n_rebuild_tensor_v2\n'

test.each<[string, string, RegExp]>([
  [
    'an object of a class',
    'whole-model.pt',
    /^whole-model\.pt: holds an object of class __main__\.Odd\. Only .* save the model's state_dict\(\) instead\.$/,
  ],
  ['the same in the legacy form', 'whole-model-legacy.pt', /an object of class __main__\.Odd\./],
  [
    'several in a checkpoint',
    'checkpoint-with-args.pth',
    /holds objects of the classes argparse\.Namespace \("args"\), torch\.Tensor of a ComplexFloatStorage \("turns"\)\. .* read: save the model's state_dict\(\) instead; save a complex tensor as real ones \(torch\.view_as_real/,
  ],
  ['a program', 'program.pt', /got a program of torch\.jit\.save. Load it with torch\.jit\.load/],
])('%s is refused by name', async (_, name, message) => {
  await expect(readTorch(fileOf(name), name)).rejects.toThrow(message)
})

test.each([
  ['_rebuild_sparse_csr_tensor', /: save a dense copy of a sparse tensor \(x\.to_dense\(\)\)\.$/],
  ['_rebuild_qtensor', /: save a quantized tensor as floats \(x\.dequantize\(\)\)\.$/],
])('the error for %s says what to save instead', async (name, message) => {
  const file = zipped('}U\x01w', `ctorch._utils\n${name}\n`, ')Rs')
  await expect(readTorch(file)).rejects.toThrow(message)
  await expect(readStateDict(file, 'a')).rejects.toThrow(message)
})

test('nothing that a pickle calls is called', async () => {
  await expect(readTorch(zipped('cos\nsystem\n', 'U\x02ls', '\x85R'))).rejects.toThrow(
    'holds an object of class os.system.',
  )
  // What a refused call gives is refused by that name, whatever is then done with it.
  const chain = ['c__builtin__\neval\n', 'U\x011', '\x85R', ')R', 'N\x85b', '(NNu', 'Na']
  await expect(readTorch(zipped(...chain))).rejects.toThrow('an object of class __builtin__.eval')
})

test.each<[string, Uint8Array<ArrayBuffer>, RegExp]>([
  ['lists in lists', zipped(`${']'.repeat(20_000)}${'a'.repeat(19_999)}`), /at most 100 levels/],
  ['tuples in tuples', zipped(`N${'\x85'.repeat(20_000)}`), /at most 100 levels/],
  [
    'a list in itself',
    zipped(']q\x00h\x00a'),
    /at most 100 levels, got more, or an object in itself/,
  ],
  [
    'lists of the same list twice, 200 levels',
    zipped(`]q\x00${'0](h\x00h\x00eq\x00'.repeat(200)}`),
    /at most 100 levels/,
  ],
  ['too many values', zipped('(', 'N'.repeat(4_200_000), 't'), /at most 4194304 values/],
  [
    'a text of 4 GiB',
    zipped('X', u32(2 ** 32 - 1), 'abc'),
    /expected 4294967295 bytes .*\(truncated\)/,
  ],
  ['a number of 4 GiB', zipped('\x8b', u32(2 ** 32 - 1)), /whole numbers of at most 1024 bytes/],
  ['text that is not UTF-8', zipped('U\x01\xff'), /text in UTF-8/],
  ['no value', zipped(), /a value on the stack, got none|a value on the stack/],
  ['a mark that is missing', zipped('t'), /a mark on the stack/],
  ['an item of the memo that is missing', zipped('h\x05'), /entry 5 in the memo/],
  [
    'the text form',
    zipped('I1\n'),
    /an opcode of protocols 2 to 5 .* got "I" of protocol 0, Python 2's/,
  ],
  ['an extension', zipped('\x82\x01'), /got 0x82/],
  ['a later protocol', zipped('\x80\x09N'), /protocol 2 to 5/],
  ['a call of a number', zipped('K\x01)R'), /a class or function/],
  ['a list set as a dict', zipped('](NNu'), /a dict and pairs/],
  [
    'keys that are one as text',
    zipped('}(K\x01NU\x011Nu'),
    /keys that differ as texts, got two of "1"/,
  ],
  ['a key that is a list', zipped('}]Ns'), /keys that are texts or numbers/],
  ['an id of no storage', zipped('K\x05Q'), /the id of a storage/],
  [
    'a tensor beyond its storage',
    zipped(rebuild, ...storage, 'K\x01K\x02\x85K\x01\x85\x89}tR'),
    /a tensor \[2\] within the 2 elements of its storage/,
  ],
  [
    'strides and shape of other lengths',
    zipped(rebuild, ...storage, 'K\x00K\x02\x85)\x89}tR'),
    /a tensor with an offset, a shape and strides/,
  ],
  [
    'one element, repeated 2^31 times',
    zipped(rebuild, ...storage, 'K\x00J\xff\xff\xff\x7f\x85K\x00\x85\x89}tR'),
    /tensors of at most \d+ bytes in a file of \d+, got 8589934588/,
  ],
  [
    'elements stored negated',
    zipped(rebuild, ...storage, 'K\x00K\x02\x85K\x01\x85\x89}}U\x03neg\x88stR'),
    /torch\.Tensor that is stored negated/,
  ],
  [
    'a storage that the archive lacks',
    zipped(rebuild, ...storage.map((one) => one.replace('U\x010', 'U\x019')), 'K\x00))\x89}tR'),
    /archive\/data\/9/,
  ],
  [
    'a storage of another size',
    zipped(rebuild, ...storage.map((one) => one.replace('K\x02', 'K\x03')), 'K\x00))\x89}tR'),
    /expected 12 bytes, got 8/,
  ],
  [
    'an archive of arrays',
    writeZip([['a.npy', new Uint8Array(4)]]),
    /with data\.pkl, got the entries a\.npy/,
  ],
  [
    'another pickle',
    Uint8Array.of(0x80, 2, 0x4e, 0x2e),
    /a file of torch\.save, got another pickle/,
  ],
  [
    'a tar archive',
    Uint8Array.from({ length: 600 }, (_, i) => 'ustar'.charCodeAt(i - 257) || 0),
    /a tar archive, as it wrote before PyTorch 0\.1\.10/,
  ],
  ['other bytes', Uint8Array.of(1, 2), /a file of torch\.save, got other bytes/],
])('%s: refused', async (_, file, message) => {
  const began = cpuMs()
  await expect(readTorch(file)).rejects.toMatchObject({
    code: 'data.malformed',
    message: expect.stringMatching(message),
  })
  expect(cpuMs() - began).toBeLessThan(3000)
})

test('every cut of a file is refused', async () => {
  for (const name of ['tensors.pt', 'tensors-legacy.pt'])
    for (let length = 0; length < fileOf(name).length; length += 41)
      await expect(readTorch(fileOf(name).subarray(0, length))).rejects.toMatchObject({
        code: 'data.malformed',
      })
})
