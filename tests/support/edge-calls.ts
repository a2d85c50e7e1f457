import { gelu } from '../../src/graph/functions/activations.ts'
import { scaledDotProductAttention } from '../../src/graph/functions/attention.ts'
import { batchNorm } from '../../src/graph/functions/batch-norm.ts'
import { conv2d, convTranspose2d } from '../../src/graph/functions/convolution.ts'
import { einsum } from '../../src/graph/functions/einsum.ts'
import { where } from '../../src/graph/functions/elementwise.ts'
import {
  embedding,
  gather,
  indexSelect,
  oneHot,
  scatterAdd,
} from '../../src/graph/functions/index-ops.ts'
import { linear } from '../../src/graph/functions/linear.ts'
import * as losses from '../../src/graph/functions/losses.ts'
import { layerNorm } from '../../src/graph/functions/normalization.ts'
import { pad } from '../../src/graph/functions/pad.ts'
import { adaptiveAvgPool2d, avgPool2d, maxPool2d } from '../../src/graph/functions/pooling.ts'
import { recurrentLayer } from '../../src/graph/functions/recurrent.ts'
import { logsumexp, norm, std, variance } from '../../src/graph/functions/reductions.ts'
import {
  cat,
  chunk,
  cumsum,
  full,
  repeat,
  roll,
  split,
  stack,
  tril,
  triu,
  zeros,
} from '../../src/graph/functions/shape.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import type { CellKind } from '../../src/kernels/recurrent/cells.ts'
import edgesText from '../golden/edges.json?raw'
import emptyText from '../golden/empty.json?raw'
import type { Call, CallCase } from './golden-call.ts'

/** What the cases of tests/golden/edges.py call, by name. */

const named = { inf: Number.POSITIVE_INFINITY, '-inf': Number.NEGATIVE_INFINITY, nan: Number.NaN }

const chosen = ({ values, indices }: { values: Tensor; indices: Tensor }) => ({
  y: values,
  indices,
})

const recurrent =
  (cell: CellKind): Call =>
  ({ x, wi, wh, bi, bh }) => {
    const first = zeros([x.shape[1], wh.shape[1]])
    const states = cell === 'lstm' ? { h0: first, c0: first } : { h0: first }
    return recurrentLayer(x, states, { ih: wi, hh: wh, biasIh: bi, biasHh: bh }, { cell }).y
  }

const unary = ['exp', 'relu', 'sigmoid', 'sqrt', 'neg', 'abs', 'square', 'log', 'rsqrt'] as const
const reduced = ['sum', 'mean', 'amax', 'amin'] as const

export const edgeCalls: Record<string, Call> = {
  ...Object.fromEntries(unary.map((name): [string, Call] => [name, ({ x }) => x[name]()])),
  ...Object.fromEntries(
    reduced.map((name): [string, Call] => [
      name,
      ({ x }, { dim, keepDim }) => x[name](dim, keepDim),
    ]),
  ),
  gelu: ({ x }) => gelu(x),
  add: ({ a, b }) => a.add(b),
  mul: ({ a, b }) => a.mul(b),
  div: ({ a, b }) => a.div(b),
  pow: ({ a, b }) => a.pow(b),
  powNumber: ({ x }, { exponent }) => x.pow(exponent),
  eq: ({ a, b }) => a.eq(b),
  clamp: ({ x }) => x.clamp(Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY),
  where: ({ c, a, b }) => where(c, a, b),
  whereNumber: ({ c, a }, { value }) => where(c, a, named[value as keyof typeof named]),
  maskedSoftmax: ({ c, a }) => where(c, a, Number.NEGATIVE_INFINITY).softmax(1),
  maskedProduct: ({ c, a, b }) => where(c, a.matmul(b), Number.NEGATIVE_INFINITY),
  maskedAttention: ({ c, a, b }) => where(c, a.matmul(b), Number.NEGATIVE_INFINITY).softmax(1),
  norm: ({ x }, { p, dim, keepDim }) => norm(x, p, dim, keepDim),
  logsumexp: ({ x }, { dim, keepDim }) => logsumexp(x, dim, keepDim),
  variance: ({ x }, { dim, keepDim }) => variance(x, dim, { keepDim }),
  std: ({ x }, { dim }) => std(x, dim),
  softmax: ({ x }, { dim }) => x.softmax(dim),
  logSoftmax: ({ x }, { dim }) => x.logSoftmax(dim),
  cumsum: ({ x }, { dim }) => cumsum(x, dim),
  argmax: ({ x }, { dim, keepDim }) => x.argmax(dim, keepDim),
  topk: ({ x }, { k, dim }) => chosen(x.topk(k, dim)),
  matmul: ({ a, b }) => a.matmul(b),
  linear: ({ x, w, b }) => linear(x, w, b),
  einsum: (tensors, { equation }) => einsum(equation, tensors.a, ...(tensors.b ? [tensors.b] : [])),
  reshape: ({ x }, { shape }) => x.reshape(shape),
  flatten: ({ x }, { start, end }) => x.flatten(start, end),
  permute: ({ x }) => x.permute(2, 0, 1),
  expand: ({ x }, { shape }) => x.expand(shape),
  slice: ({ x }, { dim, start, end }) => x.slice(dim, start, end),
  narrow: ({ x }, { dim, start, length }) => x.narrow(dim, start, length),
  select: ({ x }, { dim, index }) => x.select(dim, index),
  squeeze: ({ x }) => x.squeeze().unsqueeze(0),
  flip: ({ x }, { dim }) => x.flip(dim),
  cat: ({ a, b }, { dim }) => cat([a, b, a], dim),
  stack: ({ a, b }, { dim }) => stack([a, b], dim),
  chunks({ x }, { dim }) {
    const parts = chunk(x, 3, dim)
    return { y: cat(parts, dim), count: full([], parts.length) }
  },
  splitSum({ x }, { sizes, dim }) {
    const [first, second, third] = split(x, sizes, dim).map((part) => part.sum(1))
    return first.add(second.mul(2)).add(third.mul(3))
  },
  repeat: ({ x }, { sizes }) => repeat(x, sizes),
  roll: ({ x }) => roll(x, [1, 1], [0, 1]),
  pad: ({ x }, { pads, value }) => pad(x, pads, value),
  tril: ({ x }) => tril(x),
  triu: ({ x }) => triu(x),
  gather: ({ x, i }, { dim }) => gather(x, dim, i),
  scatterAdd: ({ x, s, i }, { dim }) => scatterAdd(x, dim, i, s),
  indexSelect: ({ x, i }, { dim }) => indexSelect(x, dim, i),
  embedding: ({ w, i }) => embedding(i, w),
  oneHot: ({ i }, { classes }) => oneHot(i, classes),
  mseLoss: ({ input, target }, options) => losses.mseLoss(input, target, options),
  huberLoss: ({ input, target }, options) => losses.huberLoss(input, target, options),
  bceWithLogits: ({ input, target }, options) =>
    losses.binaryCrossEntropyWithLogits(input, target, options),
  crossEntropy: ({ input, target }, options) => losses.crossEntropy(input, target, options),
  nllLoss: ({ input, target }, options) => losses.nllLoss(input, target, options),
  conv2d: ({ x, w, b }, options) => conv2d(x, w, b, options),
  convTranspose2d: ({ x, w, b }) => convTranspose2d(x, w, b),
  maxPool2d: ({ x }, { kernel }) => maxPool2d(x, kernel),
  avgPool2d: ({ x }, { kernel }) => avgPool2d(x, kernel),
  adaptiveAvgPool2d: ({ x }, { size }) => adaptiveAvgPool2d(x, size),
  layerNorm: ({ x, w, b }) => layerNorm(x, w.shape, w, b),
  batchNorm: ({ x, w, b }) => batchNorm(x, w, b, { training: true }),
  attention: ({ q, k, v }) => scaledDotProductAttention(q, k, v),
  rnn: recurrent('tanh'),
  gru: recurrent('gru'),
  lstm: recurrent('lstm'),
}

const casesOf = (text: string) => (JSON.parse(text) as { cases: CallCase[] }).cases

/** Empty dimensions; single elements, infinities and extreme magnitudes. */
export const edgeFiles = { empty: casesOf(emptyText), edges: casesOf(edgesText) } as const

export const edgeCases: readonly CallCase[] = [...edgeFiles.empty, ...edgeFiles.edges]
