import { scaledDotProductAttention } from '../../src/graph/functions/attention.ts'
import { einsum } from '../../src/graph/functions/einsum.ts'
import * as elementwise from '../../src/graph/functions/elementwise.ts'
import { embedding } from '../../src/graph/functions/index-ops.ts'
import { groupNorm, layerNorm } from '../../src/graph/functions/normalization.ts'
import { roll } from '../../src/graph/functions/shape.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import cornersText from '../golden/corners.json?raw'
import integersText from '../golden/integers.json?raw'
import type { Call, CallCase } from './golden-call.ts'

/** What the cases of tests/golden/corners.py call, by name. */

const chosen = ({ values, indices }: { values: Tensor; indices: Tensor }) => ({
  y: values,
  indices,
})

const unary = ['neg', 'square', 'sign', 'relu', 'abs', 'max', 'min'] as const
const pairs = ['add', 'sub', 'mul', 'maximum', 'minimum', 'eq', 'lt', 'ge'] as const
const reduced = ['sum', 'amax', 'amin', 'argmax', 'argmin'] as const

export const cornerCalls: Record<string, Call> = {
  ...Object.fromEntries(unary.map((name): [string, Call] => [name, ({ x }) => x[name]()])),
  ...Object.fromEntries(pairs.map((name): [string, Call] => [name, ({ a, b }) => a[name](b)])),
  ...Object.fromEntries(
    reduced.map((name): [string, Call] => [name, ({ x }, { dim }) => x[name](dim)]),
  ),
  layerNormBias: ({ x, b }) => layerNorm(x, b.shape, undefined, b),
  groupNormBias: ({ x, b }, { groups }) => groupNorm(x, groups, undefined, b),
  attention: ({ q, k, v, mask }) => scaledDotProductAttention(q, k, v, { attnMask: mask }),
  causal: ({ q, k, v }) => scaledDotProductAttention(q, k, v, { isCausal: true }),
  einsum: (tensors, { equation }) => einsum(equation, ...Object.values(tensors)),
  powOf: ({ x }, { base }) => elementwise.pow(base, x),
  roll: ({ x }, { shifts, dims }) => roll(x, shifts, dims),
  topk: ({ x }, { k, dim }) => chosen(x.topk(k, dim)),
  cumsum: ({ x }, { dim }) => x.cumsum(dim),
  addBroadcast: ({ a, b }) => a.reshape([8, 1]).add(b),
  cube: ({ x }) => x.pow(3),
  addOne: ({ x }) => x.add(1),
  oneLess: ({ x }) => elementwise.sub(1, x),
  clamp: ({ x }, { min, max }) => x.clamp(min, max),
  whereNumber: ({ c, x }) => elementwise.where(c, x, -1),
  mixed: ({ x, w }) =>
    x
      .sum(1, true)
      .float()
      .mul(0.5)
      .add(w.mul(2).relu().mul(x.add(1)))
      .add(x.mul(x).amax(0).div(3)),
  half: ({ x }) => x.div(2),
  moreThanHalf: ({ x }) => x.add(0.5),
  nextEmbedding: ({ w, i }) => embedding(i.add(1), w),
}

const casesOf = (text: string) => (JSON.parse(text) as { cases: CallCase[] }).cases

/** Corners of floats; arithmetic of integers. */
export const cornerFiles = {
  corners: casesOf(cornersText),
  integers: casesOf(integersText),
} as const

export const cornerCases: readonly CallCase[] = [...cornerFiles.corners, ...cornerFiles.integers]
