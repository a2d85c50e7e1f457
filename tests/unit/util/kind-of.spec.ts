import { expect, test } from 'vitest'
import { kindOf, quoted } from '../../../src/util/kind-of.ts'

const circular: Record<string, unknown> = {}
circular.self = circular

class Options {
  readonly lr = 0.1
}

const cases: [value: unknown, kind: string, quote: string][] = [
  [undefined, 'nothing', 'undefined'],
  [null, 'null', 'null'],
  [true, 'true', 'true'],
  [1.5, 'the number 1.5', '1.5'],
  [Number.NaN, 'the number NaN', 'NaN'],
  ['a', 'the string "a"', '"a"'],
  [10n, 'the bigint 10n', 'the bigint 10n'],
  [Symbol('s'), 'Symbol(s)', 'Symbol(s)'],
  [() => 0, 'a function', 'a function'],
  [[1, 4], 'a plain array of 2', '[1,4]'],
  [[Number.NaN, 1], 'a plain array of 2', '[NaN,1]'],
  [new ArrayBuffer(8), 'an ArrayBuffer of 8 bytes', 'an ArrayBuffer of 8 bytes'],
  [[Symbol('s')], 'a plain array of 1', 'a plain array of 1'],
  [Float32Array.of(1, 2), 'Float32Array of 2', 'Float32Array of 2'],
  [Object.create(null), 'an object with no fields', 'an object with no fields'],
  [new Options(), 'an object of a class with lr', 'an object of a class with lr'],
  [new (class {})(), 'an object of a class with no fields', 'an object of a class with no fields'],
  [
    Object.create({ lr: 1 }),
    'an object of a class with no fields',
    'an object of a class with no fields',
  ],
  [new Map([['x', 1]]), 'a Map', 'a Map'],
  [Promise.resolve(1), 'a promise, which lacks an await', 'a promise, which lacks an await'],
  [new URL('https://a.b/c'), 'the URL https://a.b/c', 'the URL https://a.b/c'],
  [circular, 'an object with self', 'an object with self'],
  [
    { shape: [2], data: [1, 2] },
    'a tensor [2] of a plain array of 2',
    'a tensor [2] of a plain array of 2',
  ],
]

test.each(cases)('kindOf and quoted name %o', (value, kind, quote) => {
  expect(kindOf(value)).toBe(kind)
  expect(quoted(value)).toBe(quote)
})
