import { describe, expect, test } from 'vitest'
import {
  batchSizeOf,
  type CollateOptions,
  defaultCollate,
  padBatch,
} from '../../../src/data/collate.ts'
import { DataLoader } from '../../../src/data/loader/data-loader.ts'
import type { Sample } from '../../../src/data/samples.ts'
import { detached } from '../../support/api-arguments.ts'

const refusal = (message: RegExp, code = 'data.malformed') =>
  expect.objectContaining({ name: 'DataError', code, message: expect.stringMatching(message) })

test('stacks tensors, numbers and texts', () => {
  const tensor = (value: number) => ({ shape: [1, 2], data: Float32Array.of(value, value) })
  const batch = defaultCollate([
    { x: tensor(1), y: 5, path: 'a' },
    { x: tensor(2), y: 6, path: 'b' },
  ])
  expect(batch).toEqual({
    x: { shape: [2, 1, 2], data: Float32Array.of(1, 1, 2, 2) },
    y: { shape: [2], data: Int32Array.of(5, 6) },
    path: ['a', 'b'],
  })
  expect(batchSizeOf(batch)).toBe(2)
  expect(padBatch(batch, 3).y).toEqual({ shape: [3], data: Int32Array.of(5, 6, 0) })
})

test('a sample may be an object of a class', () => {
  class Row {
    readonly x = 1
  }
  expect(defaultCollate([new Row()] as never)).toEqual(defaultCollate([{ x: 1 }]))
  expect(() => defaultCollate([new Map()] as never)).toThrow(/samples\[0\] must be an object/)
})

test('fields may have the names of what every object inherits', () => {
  const names = ['constructor', 'toString', '__proto__']
  const sample = Object.fromEntries(names.map((name) => [name, 1]))
  expect(Object.entries(defaultCollate([sample]))).toEqual(
    names.map((name) => [name, { shape: [1], data: Int32Array.of(1) }]),
  )
  expect(() => defaultCollate([sample, {}] as never)).toThrow(/got nothing in sample 1/)
  expect(() => defaultCollate([{}, sample] as never)).toThrow(/"constructor": expected only/)
  expect(() => defaultCollate([{ x: 1 }], { dtypes: { constructor: 'f32' } as never })).toThrow(
    /dtypes must be f32, i32 or u32 for numeric fields, got constructor/,
  )
})

describe('batchSizeOf and padBatch refuse', () => {
  const floats = (shape: unknown, count: number) => ({ shape, data: new Float32Array(count) })
  test.each([
    ['a tensor without rows', floats([], 1), /batch\.x must be a tensor of rows, or a list/],
    ['negative rows', floats([-1], 1), /batch\.x: shape must be .* of at least 0, got \[-1\]/],
    [
      'rows that are NaN',
      floats([Number.NaN, 2], 2),
      /batch\.x: shape must be a list of whole numbers/,
    ],
    ['rows that are a text', floats(['2'], 2), /batch\.x: shape must be a list of whole numbers/],
    [
      'too few elements',
      floats([4, 2], 2),
      /batch\.x: data must have the 8 elements of shape \[4, 2\], got 2\./,
    ],
    ['a number', 4, /batch\.x must be a tensor of rows, or a list of texts, got 4\./],
    ['a list of numbers', [1, 2], /batch\.x must be a tensor of rows, or a list of texts, got/],
  ])('%s, in any field', (_, x, text) => {
    for (const batch of [{ x }, { y: floats([2], 2), x }] as never[]) {
      expect(() => batchSizeOf(batch)).toThrow(text)
      expect(() => padBatch(batch, 4)).toThrow(text)
    }
  })

  test('fields of other numbers of rows', () => {
    const batch = { x: floats([2], 2), nodes: floats([3], 3) } as never
    expect(() => batchSizeOf(batch)).toThrow(refusal(/^batchSizeOf: .* rows, got 2, 3\./))
    expect(() => padBatch(batch, 4)).toThrow(refusal(/^padBatch: .* rows, got 2, 3\./))
  })
})

describe('arrays become tensors', () => {
  test('typed arrays keep f32, i32 and u32; other floats become f32, smaller integers i32', () => {
    const made = [
      [Float32Array.of(1.5, 2), Float32Array],
      [Float64Array.of(1.5, 2), Float32Array],
      [Int32Array.of(-1, 2), Int32Array],
      [Uint32Array.of(1, 2 ** 32 - 1), Uint32Array],
      [Uint8Array.of(255, 0), Int32Array],
      [Uint8ClampedArray.of(255, 0), Int32Array],
      [Int8Array.of(-128, 0), Int32Array],
      [Int16Array.of(-300, 0), Int32Array],
      [Uint16Array.of(65535, 0), Int32Array],
    ] as const
    for (const [x, kind] of made)
      expect(defaultCollate([{ x }, { x }, { x }]).x).toEqual({
        shape: [3, 2],
        data: kind.from([...x, ...x, ...x]),
      })
  })

  test('plain ones are f32 whatever their numbers are, one level a dimension', () => {
    expect(defaultCollate([{ x: [1, 2] }, { x: [3, 4.5] }]).x).toEqual({
      shape: [2, 2],
      data: Float32Array.of(1, 2, 3, 4.5),
    })
    const nested = [
      [[1], [2], [3]],
      [[4], [5], [6]],
    ]
    expect(defaultCollate([{ x: nested }]).x).toEqual({
      shape: [1, 2, 3, 1],
      data: Float32Array.of(1, 2, 3, 4, 5, 6),
    })
    expect(defaultCollate([{ x: [] }, { x: [] }]).x).toEqual({
      shape: [2, 0],
      data: new Float32Array(0),
    })
    // A typed array, a plain one and a tensor of one shape and type count as equal.
    const mixed = [
      { x: [1] },
      { x: Float32Array.of(2) },
      { x: { shape: [1], data: Float32Array.of(3) } },
    ]
    expect(defaultCollate(mixed).x).toEqual({ shape: [3, 1], data: Float32Array.of(1, 2, 3) })
  })
})

describe('the type of numbers does not depend on the batch', () => {
  const targets = [1, 2, 3, 0.5, 4, 7]
  const dataset = { length: 6, get: (index: number): Sample => ({ y: targets[index] }) }
  const batchesOf = async (options: object) => {
    const batches = []
    for await (const batch of new DataLoader<Sample>(dataset, { batchSize: 2, ...options }))
      batches.push(batch.y)
    return batches
  }

  test('declared as f32 they are in every batch, whole or not', async () => {
    expect(await batchesOf({ dtypes: { y: 'f32' } })).toEqual([
      { shape: [2], data: Float32Array.of(1, 2) },
      { shape: [2], data: Float32Array.of(3, 0.5) },
      { shape: [2], data: Float32Array.of(4, 7) },
    ])
  })

  test('else they are i32, and a fraction is refused with what to do, in any batch', async () => {
    const message =
      /samples 2, 3: collate: field "y": expected i32: whole numbers .*, got 0.5 in sample 1 of the batch\..*dtypes: \{ y: 'f32' \}/
    await expect(batchesOf({})).rejects.toEqual(refusal(message))
    expect(() => defaultCollate([{ y: 1.5 }])).toThrow(refusal(/got 1.5 in sample 0.*dtypes/))
    expect(defaultCollate([{ y: 1 }]).y).toEqual({ shape: [1], data: Int32Array.of(1) })
  })

  test('a declared type converts arrays and tensors too, where they fit', () => {
    const tensor = { shape: [2], data: Int32Array.of(1, 2) }
    const dtypes = { a: 'i32', b: 'u32', c: 'f32' } as const
    expect(defaultCollate([{ a: [1, -2], b: Uint8Array.of(9), c: tensor }], { dtypes })).toEqual({
      a: { shape: [1, 2], data: Int32Array.of(1, -2) },
      b: { shape: [1, 1], data: Uint32Array.of(9) },
      c: { shape: [1, 2], data: Float32Array.of(1, 2) },
    })
    const wrong: [Sample, CollateOptions['dtypes'], RegExp][] = [
      [{ a: [1, 1.5] }, { a: 'i32' }, /i32: whole numbers.*got 1.5/],
      [{ a: [-1] }, { a: 'u32' }, /u32: whole numbers from 0 .*got -1/],
      [{ a: 2 ** 31 }, undefined, /got 2147483648 in sample 0/],
      [{ a: Number.NaN }, undefined, /got NaN in sample 0/],
    ]
    for (const [sample, types, message] of wrong)
      expect(() => defaultCollate([sample], { dtypes: types })).toThrow(refusal(message))
    for (const types of [{ z: 'f32' }, { a: 'f64' }, { t: 'f32' }] as CollateOptions['dtypes'][])
      expect(() => defaultCollate([{ a: 1, t: 'text' }], { dtypes: types })).toThrow(
        refusal(
          /dtypes must be f32, i32 or u32 for numeric fields, got .* for samples with a, t/,
          'config.invalid',
        ),
      )
  })
})

describe('refuses', () => {
  const f32 = (count: number) => ({ x: new Float32Array(count) })
  const cases: Record<string, [samples: unknown[], message: RegExp]> = {
    'other shapes': [[f32(2), f32(3)], /"x".*f32 \[2\] as in the first.*f32 \[3\] in sample 1/],
    'other types': [[f32(2), { x: new Int32Array(2) }], /f32 \[2\].*i32 \[2\] in sample 1/],
    'a number among tensors': [
      [{ x: { shape: [], data: Float32Array.of(1) } }, { x: 1 }],
      /i32 \[\] in/,
    ],
    'a text among numbers': [[{ x: 1 }, { x: 'a' }], /got the string "a" in sample 1/],
    'a number among texts': [[{ x: 'a' }, { x: 1 }], /texts, got the number 1 in sample 1/],
    'a field that is missing': [[{ x: 1, y: 1 }, { x: 1 }], /"y".*got nothing in sample 1/],
    'a field too many': [[{ x: 1 }, { x: 1, z: 1 }], /"z": expected only the fields x, .*sample 1/],
    'ragged arrays': [[{ x: [[1, 2], [3]] }], /\[2, 2\], got a plain array of 1 within sample 0/],
    'arrays of texts': [[{ x: ['a'] }], /nested arrays of numbers \[1\], got the string "a"/],
    'a truth value': [[{ x: true }], /got true in sample 0/],
    'big integers': [[{ x: BigInt64Array.of(1n) }], /got BigInt64Array of 1/],
    'a detached array': [
      [{ x: detached() }],
      /got Float32Array of 0, whose buffer was transferred/,
    ],
    'a shape of another size': [
      [{ x: { shape: [3], data: Float32Array.of(1) } }],
      /3 elements under \[3\], got 1 in sample 0/,
    ],
    'an object': [[{ x: { a: 1 } }], /got an object with a in sample 0/],
  }
  for (const [name, [samples, message]] of Object.entries(cases))
    test(name, () => {
      expect(() => defaultCollate(samples as Sample[])).toThrow(refusal(message))
    })
})
