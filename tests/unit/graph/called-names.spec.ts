import { expect, test } from 'vitest'
import type { Tensor } from '../../../src/entries/index.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { emit } from '../../../src/graph/trace/tensor.ts'
import { Trace, withTrace } from '../../../src/graph/trace/trace.ts'
import { defineOp } from '../../../src/kernels/op.ts'
import { reshape } from '../../../src/kernels/reshape/reshape.ts'
import { type HostDType, type Shape, tensorType } from '../../../src/util/shape.ts'
import { call, called, tensorArguments } from '../../support/api-arguments.ts'
import { publicMethods } from '../../support/api-methods.ts'
import * as tabring from '../../support/library.ts'
import { misnamed } from '../../support/parameter-names.ts'

// What a call cannot take is refused under the name of what was called, with what to do.

type Call = (inputs: Record<'i' | 'u' | 'empty', Tensor>) => Tensor

/** Functions of floats, of integers. */
const ofFloats: Record<string, Call> = {
  mean: ({ i }) => i.mean(),
  matmul: ({ i }) => i.matmul(i),
  bmm: ({ i }) => i.reshape([1, 3, 3]).bmm(i.reshape([1, 3, 3])),
  dot: ({ i }) => i.select(0, 0).dot(i.select(0, 0)),
  linear: ({ i }) => tabring.linear(i, i),
  einsum: ({ i }) => tabring.einsum('ij,jk->ik', i, i),
  softmax: ({ i }) => i.softmax(1),
  logSoftmax: ({ i }) => i.logSoftmax(1),
  logsumexp: ({ i }) => i.logsumexp(1),
  variance: ({ i }) => i.variance(1),
  norm: ({ i }) => i.norm(),
  scaledDotProductAttention: ({ i }) => tabring.scaledDotProductAttention(i, i, i),
}

const inputs = {
  i: tensorType([3, 3], 'i32'),
  u: tensorType([3, 3], 'u32'),
  empty: tensorType([0, 3]),
} as const

const refusal = (call: Call) =>
  compile((tensors) => ({ y: call(tensors as Record<'i' | 'u' | 'empty', Tensor>) }), inputs, {
    device: 'reference',
  })

test.each(Object.entries(ofFloats))('%s of integers', async (name, call) => {
  await expect(refusal(call)).rejects.toThrow(
    new RegExp(`^${name}: expected a float tensor, got i32\\[.*Convert it with float\\(\\)`),
  )
})

test.each([
  [
    'max of nothing',
    ({ empty }) => empty.max(),
    /^max: expected .* at least one element.*\[0, 3\]/,
  ],
  ['argmin of nothing', ({ empty }) => empty.argmin(), /^argmin: .*\[0, 3\]/],
  ['max along nothing', ({ empty }) => empty.max(0).values, /^max: .*\[0, 3\]/],
  [
    'argmax of u32',
    ({ u }) => u.argmax(),
    /^argmax: expected an f32 or i32 tensor.*got u32\[3, 3\].*float/,
  ],
  ['topk of too many', ({ i }) => i.topk(4).values, /^topk: k must be from 0 to .*got k 4/],
  [
    'where of integers without a condition',
    ({ i }) => i.where(undefined as never, i),
    /^where: condition must be a Tensor/,
  ],
  [
    'where of integers by an array',
    ({ i }) => tabring.where([1] as never, i, i),
    /^where: condition must be a Tensor/,
  ],
  ['add of u32', ({ u }) => u.add(u), /^add: .*u32\[3, 3\], which has no arithmetic.*cast/],
  ['sum of u32', ({ u }) => u.sum(), /^sum: .*u32\[3, 3\].*float\(\)/],
  [
    'roll of two axes by one number',
    ({ i }) => i.roll(1, [0, 1]),
    /^roll: shifts must be a whole number for/,
  ],
  ['roll by a fraction', ({ i }) => i.roll(1.5), /^roll: shifts must be a whole number/],
  [
    'zeros of a size below 0',
    () => tabring.zeros([-1]),
    /^zeros: shape must be a list of whole numbers of at least 0/,
  ],
  [
    'einsum of a letter with two sizes',
    ({ empty }) => tabring.einsum('ii->i', empty),
    /index i must have the same size throughout a tensor, got 0 and 3 in \[0, 3\]/,
  ],
  ['avgPool1d of too wide a window', ({ empty }) => tabring.avgPool1d(empty, 9), /^avgPool1d: /],
  [
    'maxPool1d with too much padding',
    () => tabring.maxPool1d(tabring.ones([1, 2, 4]), 2, { padding: 1e30 }),
    /^maxPool1d: the window must fit/,
  ],
  [
    'conv1d of other channels',
    () => tabring.conv1d(tabring.ones([1, 3, 4]), tabring.ones([2, 2, 1])),
    /^conv1d: C must agree/,
  ],
  [
    'crossEntropy of labels of another count',
    ({ i }) => tabring.crossEntropy(tabring.ones([2, 3, 2]), i),
    /^crossEntropy: /,
  ],
  ['layerNorm of integers', ({ i }) => tabring.layerNorm(i, [3]), /^layerNorm: /],
  ['std of integers', ({ i }) => tabring.std(i, 1), /^std: expected a float tensor/],
  ['accuracy of integers', ({ i }) => tabring.accuracy(i, i)[0], /^accuracy: /],
  ['outer of u32', ({ u }) => tabring.outer(u.select(0, 0), u.select(0, 0)), /^outer: /],
  [
    'linear of other widths',
    () => tabring.linear(tabring.ones([2, 3]), tabring.ones([2, 4])),
    /^linear: /,
  ],
  [
    'embedding of float rows',
    ({ empty }) => tabring.embedding(empty, tabring.ones([3, 2])),
    /^embedding: /,
  ],
  [
    'rotaryEmbedding of integers',
    ({ i }) => tabring.rotaryEmbedding(i, tabring.ones([3, 1, 2])),
    /^rotaryEmbedding: /,
  ],
  [
    'batchNorm of too few channels',
    () =>
      tabring.batchNorm(tabring.ones([2, 3]), tabring.ones([2]), tabring.ones([2]), {
        training: true,
      }),
    /^batchNorm: /,
  ],
] as readonly [string, Call, RegExp][])('%s', async (_, call, text) => {
  await expect(refusal(call)).rejects.toThrow(text)
})

test('tensors that the cpu cannot hold: an error that names op and shape, no RangeError', async () => {
  const program = await compile(
    () => ({ y: tabring.zeros([60_000, 60_000]).sum() }),
    {},
    {
      device: 'reference',
    },
  )
  const run = program.run({})
  await expect(run).rejects.toThrow(
    /^constant: the CPU's memory has no room for results of f32\[60000, 60000\]/,
  )
  await expect(run).rejects.toMatchObject({ code: 'gpu.limit' })
})

test('an error of a reference stays as it is when memory is not its cause', async () => {
  const failing = defineOp<object>({
    ...reshape,
    isView: false,
    reference: () => {
      throw new TypeError('no such thing')
    },
  })
  const program = await compile(
    () => ({ y: emit(failing, [tabring.ones([2]).exp()], { shape: [2] }) }),
    {},
    { device: 'reference' },
  )
  await expect(program.run({})).rejects.toThrow(/^no such thing$/)
})

test.each<[string, () => Iterable<unknown>]>([
  ['max', () => tabring.ones([2, 2]).max(1) as never],
  ['min', () => tabring.ones([2, 2]).min(1, true) as never],
  ['topk', () => tabring.ones([2, 2]).topk(1) as never],
  ['LSTM.withState', () => new tabring.LSTM(2, 2).withState(tabring.ones([3, 1, 2])) as never],
  ['LSTMCell.withState', () => new tabring.LSTMCell(2, 2).withState(tabring.ones([1, 2])) as never],
])('%s returns results by name, and says so to a loop', (name, call) => {
  const results = withTrace(new Trace(), call)
  const names = Object.keys(results).join(', ')
  expect(() => [...results]).toThrow(
    `${name}: returns an object, not a list. Write const { ${names} }`,
  )
})

const traced = (shape: Shape, dtype?: HostDType) => tabring.ones(shape, dtype && { dtype })

/** Functions and methods of tensors, with arguments of a step that has ended. */
const leaked = [
  ...called.map(([name, value]) => ({
    name,
    args: () => tensorArguments(name, traced),
    run: (args: unknown[]) => call(value, args),
  })),
  ...publicMethods()
    .filter(({ name }) => name.startsWith('Tensor.'))
    .flatMap(({ name, key, args }) =>
      [args, () => [], () => [traced([3, 3])]].map((others) => ({
        name,
        args: () => [traced([3, 3]), ...others()],
        run: ([x, ...given]: unknown[]) =>
          (x as Record<string, (...given: unknown[]) => unknown>)[key](...given),
      })),
    ),
]

test('every function of tensors says its own name where it is called outside of a step', () => {
  const complaints = leaked.map(({ name, args, run }) => {
    const given = withTrace(new Trace(), args)
    try {
      if (given) run(given)
      return undefined
    } catch (error) {
      return misnamed(name, error)
    }
  })
  expect(complaints.filter(Boolean)).toEqual([])
})
