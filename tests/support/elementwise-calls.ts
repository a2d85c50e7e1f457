import * as activations from '../../src/graph/functions/activations.ts'
import * as elementwise from '../../src/graph/functions/elementwise.ts'
import * as losses from '../../src/graph/functions/losses.ts'
import * as reductions from '../../src/graph/functions/reductions.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import text from '../golden/elementwise.json?raw'
import type { Call, CallCase } from './golden-call.ts'

/** What the cases of tests/golden/elementwise.py call, by name. */

const ofX =
  (fn: (x: Tensor) => Tensor): Call =>
  ({ x }) =>
    fn(x)
const ofPair =
  (fn: (a: Tensor, b: Tensor) => Tensor): Call =>
  ({ a, b }) =>
    fn(a, b)
const compared =
  (name: 'eq' | 'ne' | 'lt' | 'le' | 'gt' | 'ge'): Call =>
  ({ a, b }) =>
    a[name](b)
const reduced =
  (name: 'mean' | 'sum' | 'amax' | 'amin'): Call =>
  ({ x }, { dim, keepDim }) =>
    x[name](dim, keepDim)
const chosen = ({ values, indices }: { values: Tensor; indices: Tensor }) => ({
  y: values,
  indices,
})
const numberOf = (p: number | 'inf') => (p === 'inf' ? Number.POSITIVE_INFINITY : p)

export const elementwiseCalls: Record<string, Call> = {
  ...Object.fromEntries(
    (
      [
        'exp',
        'square',
        'abs',
        'sign',
        'floor',
        'erf',
        'neg',
        'log',
        'sqrt',
        'rsqrt',
        'relu',
      ] as const
    ).map((name) => [name, ofX((x) => x[name]())]),
  ),
  powNumber: ({ x }, { exponent }) => x.pow(exponent),
  pow: ofPair(elementwise.pow),
  powOfTwo: ({ x }) => elementwise.pow(2, x),
  numbers: ({ x }) => elementwise.sub(1, x).mul(0.3).add(2).div(7).sub(0.1),
  reciprocal: ({ x }) => elementwise.div(1, x),
  div: ofPair(elementwise.div),
  clamp: ({ x }, { min, max }) => x.clamp(min, max),
  minimum: ofPair(elementwise.minimum),
  maximum: ofPair(elementwise.maximum),
  where: ({ c, a, b }) => elementwise.where(c, a, b),
  eq: compared('eq'),
  ne: compared('ne'),
  lt: compared('lt'),
  le: compared('le'),
  gt: compared('gt'),
  ge: compared('ge'),
  leakyRelu: ofX((x) => activations.leakyRelu(x, 0.2)),
  sigmoid: ofX(activations.sigmoid),
  tanh: ofX(activations.tanh),
  silu: ofX(activations.silu),
  gelu: ofX((x) => activations.gelu(x)),
  geluTanh: ofX((x) => activations.gelu(x, 'tanh')),
  softplus: ofX((x) => activations.softplus(x)),
  softplusSharp: ofX((x) => activations.softplus(x, 2, 3)),
  sum: reduced('sum'),
  mean: reduced('mean'),
  amax: reduced('amax'),
  amin: reduced('amin'),
  maxAll: ({ x }) => x.max(),
  minAll: ({ x }) => x.min(),
  max: ({ x }, { dim }) => chosen(x.max(dim)),
  min: ({ x }, { dim }) => chosen(x.min(dim)),
  argmax: ({ x }, { dim }) => x.argmax(dim),
  argmin: ({ x }, { dim }) => x.argmin(dim),
  topk: ({ x }, { k, dim, largest }) => chosen(x.topk(k, dim, largest)),
  logsumexp: ({ x }, { dim, keepDim }) => reductions.logsumexp(x, dim, keepDim),
  variance: ({ x }, { dim, ...options }) => reductions.variance(x, dim, options),
  std: ({ x }, { dim, ...options }) => reductions.std(x, dim, options),
  norm: ({ x }, { p, dim, keepDim }) => reductions.norm(x, numberOf(p), dim, keepDim),
  softmax: ({ x }, { axis }) => activations.softmax(x, axis),
  logSoftmax: ({ x }, { axis }) => activations.logSoftmax(x, axis),
  mseLoss: ({ input, target }, options) => losses.mseLoss(input, target, options),
  l1Loss: ({ input, target }, options) => losses.l1Loss(input, target, options),
  huberLoss: ({ input, target }, options) => losses.huberLoss(input, target, options),
  smoothL1Loss: ({ input, target }, options) => losses.smoothL1Loss(input, target, options),
  binaryCrossEntropy: ({ input, target, weight }, options) =>
    losses.binaryCrossEntropy(input, target, { ...options, weight }),
  // `edges` says how a case is compared.
  bceWithLogits: ({ input, target, ...more }, { edges: _, ...options }) =>
    losses.binaryCrossEntropyWithLogits(input, target, { ...options, ...more }),
  klDiv: ({ input, target }, options) => losses.klDiv(input, target, options),
  crossEntropy: ({ input, target, weight }, options) =>
    losses.crossEntropy(input, target, { ...options, weight }),
  nllLoss: ({ input, target, weight }, options) =>
    losses.nllLoss(input, target, { ...options, weight }),
  accuracy: ({ input, target }) => {
    const [y, y5] = losses.accuracy(input, target, { topk: [1, 5] })
    return { y, y5 }
  },
}

export const elementwiseCases = (JSON.parse(text) as { cases: CallCase[] }).cases
