import { afterEach, describe, expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import {
  type AttentionOptions,
  packedAttention,
  scaledDotProductAttention,
} from '../../../src/graph/functions/attention.ts'
import { stack } from '../../../src/graph/functions/shape.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import type { Outputs } from '../../../src/graph/plan/prepare.ts'
import { autocast } from '../../../src/graph/trace/autocast.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { MultiheadAttention } from '../../../src/nn/attention.ts'
import { uniform } from '../../../src/util/random.ts'
import { tensorType } from '../../../src/util/shape.ts'
import golden from '../../golden/attention-bias.json'
import {
  expectGolden,
  type GoldenCase,
  type GoldenTensor,
  largestDistance,
  typeOf,
  valuesOf,
} from '../../support/golden.ts'
import { testRuntime } from '../../support/run-op.ts'

// Masks that learn: forward and every gradient against PyTorch (tests/golden/attention_bias.py), and against the op that stores no scores.

afterEach(async () => (await testRuntime()).gpu.check())

type BiasCase = GoldenCase & {
  readonly op: 'attention' | 'multihead'
  readonly attrs: { isCausal?: boolean; scale?: number; batchFirst?: boolean; padding?: number[][] }
}
const cases = golden.cases as unknown as BiasCase[]
const floats = (tensor: GoldenTensor) => Float32Array.from(valuesOf(tensor))
const isWeight = (name: string) => /^(in|out)_proj/.test(name)

/** [heads, L, L] of a table [2 L - 1, heads] of biases by distance. */
function relative(table: Tensor): Tensor {
  const length = (table.shape[0] + 1) / 2
  const rows = Array.from({ length }, (_, i) => table.narrow(0, length - 1 - i, length))
  return stack(rows, 0).permute(2, 0, 1)
}

/** How a case computes its result, and the parameters whose gradients are wanted, by name. */
function setUp({ op, attrs, inputs }: BiasCase) {
  const { isCausal, scale, batchFirst, padding } = attrs
  const given = Object.entries(inputs).filter(([name]) => name !== 'dy' && !isWeight(name))
  const leaves = Object.fromEntries(
    given.map(([name, tensor]) => [name, new Parameter(tensor.shape, floats(tensor))]),
  )
  if (op === 'attention') {
    const { q, k, v, mask, table } = leaves
    const forward = () =>
      scaledDotProductAttention(q, k, v, { attnMask: mask ?? relative(table), isCausal, scale })
    return { leaves, forward }
  }
  const module = new MultiheadAttention(12, 3, { batchFirst })
  const weights = Object.entries(inputs).filter(([name]) => isWeight(name))
  module.loadStateDict(
    Object.fromEntries(weights.map(([name, t]) => [name, { shape: t.shape, data: floats(t) }])),
  )
  const { query, key, mask } = leaves
  const forward = (given: Record<string, Tensor>) =>
    module.forward(query, { key, attnMask: mask, keyPaddingMask: padding && given['padding'] })
  const own = {
    in_proj_weight: module.inProjWeight,
    in_proj_bias: module.inProjBias!,
    'out_proj.weight': module.outProj.weight,
    'out_proj.bias': module.outProj.bias!,
  }
  return { leaves: { ...leaves, ...own }, forward }
}

describe.each(['webgpu', 'reference'])('a learned mask on %s', (device) => {
  test.each(cases.map(({ name }) => name))('%s', async (name) => {
    const found = cases.find((one) => one.name === name)!
    const { leaves, forward } = setUp(found)
    const padding = found.attrs.padding?.flat() ?? []
    const { dy } = found.inputs
    const program = await compile(
      (given) => {
        const y = forward(given)
        y.mul(given['dy']).sum().backward()
        const gradients = Object.entries(leaves).map(([leaf, { grad }]) => [`d${leaf}`, grad!])
        return { y, ...Object.fromEntries(gradients) }
      },
      { dy: typeOf(dy), ...(padding.length > 0 && { padding: tensorType([2, 5], 'i32') }) },
      { runtime: device === 'reference' ? new ReferenceRuntime() : await testRuntime() },
    )
    const got = await program.run({
      dy: floats(dy),
      ...(padding.length > 0 && { padding: Int32Array.from(padding) }),
    })
    program.destroy()
    expect(Object.keys(got).sort()).toEqual(Object.keys(found.outputs).sort())
    expectGolden(got, found.outputs)
  })
})

const [samples, heads, length, width] = [2, 3, 5, 4]
/** Query 1 sees no key at all, query 2 not the last one. */
const bias = uniform(3, 0, length * length, -1, 1)
bias.fill(-1e38, length, 2 * length)
bias[3 * length - 1] = Number.NEGATIVE_INFINITY

type Attend = (qkv: Tensor, options: AttentionOptions) => Tensor
const inHeads: Attend = (qkv, options) => {
  const parts = [0, 1, 2].map((n) =>
    qkv
      .narrow(2, n * heads * width, heads * width)
      .reshape([samples, length, heads, width])
      .permute(0, 2, 1, 3),
  )
  return scaledDotProductAttention(parts[0], parts[1], parts[2], options)
}
const packed: Attend = (qkv, options) => packedAttention(qkv, { batch: samples, heads }, options)

/** Queries, keys and values of a token. */
const tokenWidth = 3 * heads * width

interface Inputs {
  readonly isHalf?: boolean
  /** The largest query and key; values are up to 1. */
  readonly bound?: number
  /** A factor of the loss, so that its gradients are numbers that float16 has. */
  readonly lossScale?: number
}

/** Result and gradient by the projections, with a mask that learns or does not. */
async function attend(
  attention: Attend,
  isLearned: boolean,
  more: AttentionOptions,
  { isHalf = false, bound = 1, lossScale = 1 }: Inputs = {},
) {
  const shape = [samples, length, tokenWidth]
  const drawn = uniform(1, 0, samples * length * tokenWidth, -1, 1)
  const isValue = (at: number) => at % tokenWidth >= 2 * heads * width
  const qkv = new Parameter(
    shape,
    drawn.map((x, at) => (isValue(at) ? x : bound * x)),
  )
  const mask = new Parameter([length, length], bias)
  mask.requiresGrad = isLearned
  const program = await compile(
    (): Outputs => {
      const options = { attnMask: mask, maskIndex: 5, ...more }
      const y = autocast({ enabled: isHalf }, () => attention(qkv, options))
      const loss = y.float().reshape([samples, -1]).softmax(1).square().sum()
      loss.mul(lossScale).backward()
      return { y: y.float(), dqkv: qkv.grad!, ...(isLearned && { dmask: mask.grad! }) }
    },
    {},
    { runtime: await testRuntime() },
  )
  const ops = program.prepared.nodes.map(({ op }) => op.name)
  const got = await program.run({}, more.dropoutP ? { randomSeed: 11, randomStep: 2 } : {})
  program.destroy()
  return { got, ops }
}

describe.each(Object.entries({ heads: inHeads, packed }))('composed as %s', (_, attention) => {
  test.each<[string, AttentionOptions, boolean, number]>([
    ['plain', {}, false, 1e-6],
    ['causal', { isCausal: true }, false, 1e-6],
    ['with dropout', { dropoutP: 0.4 }, false, 1e-6],
    ['in float16', {}, true, 2e-3],
  ])('%s, it computes what the op does', async (_, more, isHalf, allowed) => {
    const composed = await attend(attention, true, more, { isHalf })
    const stored = await attend(attention, false, more, { isHalf })
    expect(composed.ops).not.toContain('attention')
    expect(stored.ops).toContain('attention')
    for (const name of ['y', 'dqkv'] as const)
      expect(largestDistance(composed.got[name], stored.got[name]), name).toBeLessThan(allowed)
    const { dmask } = composed.got
    // What is hidden learns nothing, and does not make a NaN of the rest.
    expect(
      [...dmask.subarray(length, 2 * length), dmask[3 * length - 1]].every((d) => d === 0),
    ).toBe(true)
    expect(dmask.some((d) => Math.abs(d) > 1e-6)).toBe(true)
    expect(dmask.every(Number.isFinite)).toBe(true)
  })
})

test.each([
  ['heads', inHeads],
  ['packed', packed],
] as const)(
  'in float16, as %s, scores beyond the range of float16 are those of the op',
  async (_, attention) => {
    // Products reach 4 * 512^2, and scores in this scale 16.
    const [inputs, scaled] = [{ isHalf: true, bound: 512, lossScale: 2 ** 14 }, { scale: 2 ** -16 }]
    const composed = await attend(attention, true, scaled, inputs)
    const stored = await attend(attention, false, scaled, inputs)
    expect(composed.ops).not.toContain('attention')
    expect(stored.ops).toContain('attention')
    const [y, expected] = [composed.got.y, stored.got.y]
    expect(expected.some((x) => x !== 0)).toBe(true)
    // One rounding to float16 of results below 1, at most, on either side of the same sum.
    expect(largestDistance(y, expected)).toBeLessThanOrEqual(2 ** -11)
    // Gradients by queries and keys are as much smaller as these are larger: each third by its own largest. The op takes what its
    // gradient subtracts in each row from the rounded result.
    const [got, wanted] = [composed.got.dqkv, stored.got.dqkv]
    for (const part of [0, 1, 2]) {
      const ofPart = (_: number, at: number) =>
        Math.floor((at % tokenWidth) / (heads * width)) === part
      const [own, other] = [got.filter(ofPart), wanted.filter(ofPart)]
      const largest = Math.max(...other.map(Math.abs))
      expect(largest, `part ${part}`).toBeGreaterThan(0)
      expect(largestDistance(own, other) / largest, `part ${part}`).toBeLessThan(4e-3)
    }
    expect(composed.got.dmask.every(Number.isFinite)).toBe(true)
  },
)

test('a frozen mask takes the op again, and a mask of truths has no gradient', async () => {
  const { ops } = await attend(packed, false, {})
  expect(ops).toContain('attentionGrad')
  await expect(attend(packed, true, { isBooleanMask: true })).rejects.toMatchObject({
    code: 'graph.misuse',
    message: expect.stringContaining(
      'only an added mask that requires its gradient from the start can get one',
    ),
  })
})
