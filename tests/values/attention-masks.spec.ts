import { afterEach, describe, expect, test } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import {
  type AttentionOptions,
  scaledDotProductAttention,
} from '../../src/graph/functions/attention.ts'
import { sub, where } from '../../src/graph/functions/elementwise.ts'
import { arange, cat, ones, tril, zeros } from '../../src/graph/functions/shape.ts'
import type { HostData } from '../../src/graph/memory/host-values.ts'
import { ReferenceRuntime } from '../../src/graph/memory/runtime.ts'
import type { Outputs } from '../../src/graph/plan/prepare.ts'
import { Parameter } from '../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { MultiheadAttention, type MultiheadAttentionInputs } from '../../src/nn/attention.ts'
import { type TensorType, tensorType } from '../../src/util/shape.ts'
import golden from '../golden/attention-masks.json'
import {
  expectGolden,
  type GoldenResult,
  type GoldenTensor,
  typeOf,
  valuesOf,
} from '../support/golden.ts'
import { checkTestRuntime, testRuntime } from '../support/run-op.ts'

// Masks of attention against PyTorch (tests/golden/attention_masks.py): bool and float, by pairs and by keys, one and both.

afterEach(checkTestRuntime)

const floats = (tensor: GoldenTensor) => Float32Array.from(valuesOf(tensor))
const [query, key, dy] = [golden.query, golden.key, golden.dy] as GoldenTensor[]

interface Case {
  readonly name: string
  readonly attn: GoldenTensor | null
  readonly padding: GoldenTensor | null
  readonly outputs: Record<string, GoldenResult>
}

function goldenModule(): MultiheadAttention {
  const module = new MultiheadAttention(12, 3, { batchFirst: true })
  const state = Object.entries(golden.state as Record<string, GoldenTensor>)
  module.loadStateDict(
    Object.fromEntries(state.map(([name, t]) => [name, { shape: t.shape, data: floats(t) }])),
  )
  return module
}

/** How a bool mask of PyTorch's is given: integers, or what a comparison makes of floats. */
type Form = 'integers' | 'comparisons'

describe.each(['webgpu', 'reference'])('MultiheadAttention on %s', (device) => {
  describe.each<Form>(['integers', 'comparisons'])('bool masks as %s', (form) => {
    test.each((golden.cases as Case[]).map(({ name }) => name))('%s', async (name) => {
      const found = (golden.cases as Case[]).find((one) => one.name === name)!
      const module = goldenModule()
      const [q, k] = [query, key].map((tensor) => new Parameter(tensor.shape, floats(tensor)))
      const types: Record<string, TensorType> = { dy: typeOf(dy) }
      const data: Record<string, HostData> = { dy: floats(dy) }
      for (const one of ['attn', 'padding'] as const) {
        const mask = found[one]
        if (!mask) continue
        const isCompared = form === 'comparisons' && mask.dtype === 'i32'
        types[one] = isCompared ? tensorType(mask.shape) : typeOf(mask)
        const isOfIntegers = types[one].dtype === 'i32'
        data[one] = isOfIntegers ? Int32Array.from(valuesOf(mask)) : floats(mask)
      }
      const program = await compile(
        (given): Outputs => {
          const maskOf = (one: 'attn' | 'padding') =>
            form === 'comparisons' && found[one]?.dtype === 'i32' ? given[one].gt(0.5) : given[one]
          const y = module.forward(q, {
            key: k,
            ...(found.attn && { attnMask: maskOf('attn') }),
            ...(found.padding && { keyPaddingMask: maskOf('padding') }),
          })
          y.mul(given['dy']).sum().backward()
          return { y, dquery: q.grad!, dkey: k.grad!, dout: module.outProj.weight.grad! }
        },
        types,
        { runtime: device === 'reference' ? new ReferenceRuntime() : await testRuntime() },
      )
      const got = await program.run(data)
      program.destroy()
      expectGolden(got, found.outputs)
    })
  })
})

const i = () => arange(0, 3).reshape([3, 1])
const j = () => arange(0, 3)

/** Which of 3 keys each of 3 queries sees, all scores equal. */
async function seenBy(mask: () => Tensor, options: AttentionOptions = {}): Promise<number[][]> {
  const program = await compile(
    () => {
      const qk = zeros([3, 3])
      const identity = i().eq(j())
      return { y: scaledDotProductAttention(qk, qk, identity, { attnMask: mask(), ...options }) }
    },
    {},
    { runtime: new ReferenceRuntime() },
  )
  const { y } = await program.run({})
  program.destroy()
  return [0, 3, 6].map((row) => [...y.subarray(row, row + 3)].map((value) => Number(value > 0)))
}

describe('the result of a comparison is a boolean mask', () => {
  const causal = [
    [1, 0, 0],
    [1, 1, 0],
    [1, 1, 1],
  ]
  const window = [
    [1, 0, 0],
    [1, 1, 0],
    [0, 1, 1],
  ]
  const all = [1, 1, 1]
  const masks: Record<string, [() => Tensor, number[][]]> = {
    'as it is': [() => i().ge(j()), causal],
    'reshaped and expanded': [() => i().ge(j()).reshape([1, 3, 3]).expand(1, 3, 3), causal],
    'not: 1 - x': [() => sub(1, i().lt(j())), causal],
    'and: mul': [() => i().ge(j()).mul(i().sub(j()).le(1)), window],
    'and: minimum': [() => i().ge(j()).minimum(i().sub(j()).le(1)), window],
    'or: maximum': [() => i().gt(j()).maximum(i().eq(j())), causal],
    'or: where': [() => where(i().gt(j()), 1, i().eq(j())), causal],
    'its lower triangle': [() => tril(i().ge(0).expand(3, 3)), causal],
    'joined with constants': [
      () => cat([i().ge(j()).slice(0, 0, 2), ones([1, 3])], 0),
      causal.map((row, n) => (n === 2 ? all : row)),
    ],
  }
  test.each(Object.entries(masks))('%s', async (_, [mask, expected]) => {
    expect(await seenBy(mask)).toEqual(expected)
  })

  const added: Record<string, () => Tensor> = {
    constants: () => tril(ones([3, 3])),
    'a product with a number': () => i().ge(j()).mul(2),
    'a sum': () => i().ge(j()).add(0.5),
    'one minus numbers': () => sub(1, i().sub(j())),
  }
  test.each(Object.entries(added))('but not %s, which is added to the scores', async (_, mask) => {
    expect(await seenBy(mask)).toEqual([all, all, all])
  })

  test('unless isBooleanMask says otherwise', async () => {
    const none = { isBooleanMask: false }
    expect(await seenBy(() => i().ge(j()), none)).toEqual([all, all, all])
    expect(await seenBy(() => tril(ones([3, 3])), { isBooleanMask: true })).toEqual(causal)
  })
})

describe('masks that cannot be', () => {
  const attend = (inputs: (given: Record<string, Tensor>) => MultiheadAttentionInputs) => {
    const module = new MultiheadAttention(4, 2, { batchFirst: true })
    return compile(
      (given) => {
        module.forward(given['x'], inputs(given)).sum().backward()
        return { gradient: module.inProjWeight.grad! }
      },
      { x: tensorType([2, 3, 4]) },
      { runtime: new ReferenceRuntime() },
    )
  }

  test('one by keys of another shape is refused', async () => {
    await expect(attend(() => ({ keyPaddingMask: zeros([3, 2], 'i32') }))).rejects.toThrow(
      /keyPaddingMask must be \[2, 3\], got \[3, 2\]/,
    )
  })
})
