import { expect, test } from 'vitest'
import type { Tensor } from '../../../src/entries/index.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { pad } from '../../../src/graph/functions/pad.ts'
import { Conv1d, Conv2d } from '../../../src/nn/convolution.ts'
import { tensorType } from '../../../src/util/shape.ts'
import * as tabring from '../../support/library.ts'

// What exists as a function and as a method is one thing.

type Form = (x: Tensor, index: Tensor) => Tensor

/** The method's way and the function's, by name. */
const pairs: Record<string, [method: Form, fn: Form]> = {
  neg: [(x) => x.neg(), (x) => tabring.neg(x)],
  eq: [(x) => x.eq(1), (x) => tabring.eq(x, 1)],
  ne: [(x) => x.ne(1), (x) => tabring.ne(x, 1)],
  lt: [(x) => x.lt(1), (x) => tabring.lt(x, 1)],
  le: [(x) => x.le(1), (x) => tabring.le(x, 1)],
  gt: [(x) => x.gt(1), (x) => tabring.gt(x, 1)],
  ge: [(x) => x.ge(1), (x) => tabring.ge(x, 1)],
  'eq, a number first': [(x) => x.ge(1), (x) => tabring.le(1, x)],
  max: [(x) => x.max(1).values, (x) => tabring.max(x, 1).values],
  'min of all': [(x) => x.min(), (x) => tabring.min(x)],
  expand: [
    (x) => x.unsqueeze(0).expand(2, -1, -1),
    (x) => tabring.expand(x.unsqueeze(0), [2, 3, 4]),
  ],
  slice: [(x) => x.slice(1, 0, 4, 2), (x) => tabring.slice(x, 1, 0, 4, 2)],
  reshape: [(x) => x.reshape([4, 3]), (x) => tabring.reshape(x, [4, 3])],
  view: [(x) => x.view(4, 3), (x) => x.view([4, -1])],
  flatten: [(x) => x.flatten(), (x) => tabring.flatten(x)],
  split: [(x) => x.split([1, 3], 1)[1], (x) => tabring.split(x, [1, 3], 1)[1]],
  chunk: [(x) => x.chunk(2, 1)[1], (x) => tabring.chunk(x, 2, 1)[1]],
  gather: [(x, index) => x.gather(1, index), (x, index) => tabring.gather(x, 1, index)],
  scatterAdd: [
    (x, index) => x.scatterAdd(1, index, x),
    (x, index) => tabring.scatterAdd(x, 1, index, x),
  ],
  indexSelect: [
    (x, index) => x.indexSelect(1, index.select(0, 0)),
    (x, index) => tabring.indexSelect(x, 1, index.select(0, 0)),
  ],
  cumsum: [(x) => x.cumsum(1), (x) => tabring.cumsum(x, 1)],
  tril: [(x) => x.tril(-1), (x) => tabring.tril(x, -1)],
  triu: [(x) => x.triu(1), (x) => tabring.triu(x, 1)],
  repeat: [(x) => x.repeat([2, 1]), (x) => tabring.repeat(x, [2, 1])],
  'roll by a number': [(x) => x.roll(1, 0), (x) => tabring.roll(x, [1], 0)],
  bmm: [
    (x) => x.reshape([1, 3, 4]).bmm(x.reshape([1, 4, 3])),
    (x) => tabring.bmm(x.reshape([1, 3, 4]), x.reshape([1, 4, 3])),
  ],
  dot: [(x) => x.flatten().dot(x.flatten()), (x) => tabring.dot(x.flatten(), x.flatten())],
  outer: [(x) => x.flatten().outer(x.flatten()), (x) => tabring.outer(x.flatten(), x.flatten())],
  where: [(x) => x.where(x.gt(0), -1), (x) => tabring.where(x.gt(0), x, -1)],
  roll: [(x) => x.roll([1], [0]), (x) => tabring.roll(x, [1], [0])],
  variance: [(x) => x.variance(1), (x) => tabring.variance(x, 1)],
  std: [(x) => x.std(1, { keepDim: true }), (x) => tabring.std(x, 1, { keepDim: true })],
  logsumexp: [(x) => x.logsumexp(0), (x) => tabring.logsumexp(x, 0)],
  norm: [(x) => x.norm(3, 1), (x) => tabring.norm(x, 3, 1)],
}

test('methods and functions give the same', async () => {
  const program = await compile(
    ({ x, index }) =>
      Object.fromEntries(
        Object.entries(pairs).flatMap(([name, [method, fn]]) => [
          [`${name}.method`, method(x, index)],
          [`${name}.function`, fn(x, index)],
        ]),
      ),
    { x: tensorType([3, 4]), index: tensorType([3, 4], 'i32') },
    { device: 'reference' },
  )
  const got = await program.run({
    x: Float32Array.from({ length: 12 }, (_, i) => ((i * 7) % 5) - 1.5),
    index: Int32Array.from({ length: 12 }, (_, i) => (i * 3) % 4),
  })
  for (const name of Object.keys(pairs)) {
    expect(got[`${name}.method`].length, name).toBeGreaterThan(0)
    expect(got[`${name}.method`], name).toEqual(got[`${name}.function`])
  }
  program.destroy()
})

test('arange as PyTorch reads its arguments', async () => {
  const { arange } = tabring
  const program = await compile(
    () => ({ end: arange(3), whole: arange(3, { dtype: 'i32' }), down: arange(3, 0, -1) }),
    {},
    { device: 'reference' },
  )
  expect(await program.run({})).toEqual({
    end: Float32Array.of(0, 1, 2),
    whole: Int32Array.of(0, 1, 2),
    down: Float32Array.of(3, 2, 1),
  })
  program.destroy()
})

test.each<[string, (x: Tensor) => Tensor, RegExp]>([
  [
    'a mirror longer than the axis',
    (x) => pad(x, [4, 0], 'reflect'),
    /mode reflect allows 0 to 3.*got 4 and 0/,
  ],
  ['once round and more', (x) => pad(x, [0, 5], 'circular'), /mode circular allows 0 to 4/],
  ['cutting off', (x) => pad(x, [-1, 0], 'replicate'), /got -1 and 0/],
  [
    'another mode',
    (x) => pad(x, [1, 0], 'mirror' as 'reflect'),
    /mode must be constant, .*got "mirror"/,
  ],
  ['flatten backwards', (x) => x.flatten(1, 0), /start must not be after end, got 1 and 0/],
  ['a number beyond float32', (x) => x.mul(1e39), /within float32's range, got 1e\+39/],
  [
    "'same' with a stride",
    (x) => new Conv1d(3, 1, 3, { padding: 'same', stride: 2, paddingMode: 'reflect' }).forward(x),
    /Conv1d: padding 'same' needs stride 1/,
  ],
])('%s is refused', async (_, compute, message) => {
  const given = { x: tensorType([3, 4]) }
  await expect(
    compile(({ x }) => ({ y: compute(x) }), given, { device: 'reference' }),
  ).rejects.toThrow(message)
})

test('a padding mode that is not known is refused by name', () => {
  expect(() => new Conv2d(1, 1, 3, { paddingMode: 'mirror' as 'reflect' })).toThrow(
    /Conv2d: paddingMode must be one of 'zeros', 'reflect', 'replicate', 'circular', got "mirror"/,
  )
})
