import { expect, test } from 'vitest'
import { autocast } from '../../../src/entries/amp.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { scaledDotProductAttention } from '../../../src/graph/functions/attention.ts'
import { crossEntropy, mseLoss } from '../../../src/graph/functions/losses.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { type Outputs, type Prepared, prepare } from '../../../src/graph/plan/prepare.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import {
  type AttentionAttrs,
  attention,
  attentionGrad,
} from '../../../src/kernels/attention/attention.ts'
import { roundHalf, unpackHalves } from '../../../src/kernels/half.ts'
import { gpt } from '../../../src/nn/gpt.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { type DType, type TensorType, tensorType } from '../../../src/util/shape.ts'
import { checkHalfTraining, halfModel, halfTypes } from '../../support/amp-run.ts'
import { formulaUniform } from '../../support/formula-data.ts'
import { documentedPlan, measuredPlan } from '../../support/plan-table.ts'

const { limits } = new ReferenceRuntime()

/** A training step of the model on one square batch. */
function prepareStep(
  model: Sequential,
  types: typeof halfTypes,
  { enabled = true } = {},
): Prepared {
  const optimizer = new SGD(model.parameters())
  const step = ({ x, y }: Record<string, Tensor>) => {
    const loss = autocast({ enabled }, () => mseLoss(model.forward(x), y))
    loss.backward()
    optimizer.step()
    return { loss }
  }
  return prepare({ limits, variants: {} }, step, types)
}

test("the references follow PyTorch's float16 roundings through training with a loss scale that backs off and grows", () =>
  checkHalfTraining({ device: 'reference' }))

test('without rewrites the values are the same', () =>
  checkHalfTraining({ device: 'reference', useNaiveKernels: true }))

test('activations in float16 take half the memory of a plan, beside the copies of four weights', () => {
  const width = 64
  const deep = () =>
    new Sequential(
      ...Array.from({ length: 16 }, (_, n) => (n % 2 ? new ReLU() : new Linear(width, width))),
      new Linear(width, 8),
    )
  const types = { x: tensorType([1024, width]), y: tensorType([1024, 8]) }
  const full = prepareStep(deep(), types, { enabled: false }).plan
  const half = prepareStep(deep(), types).plan
  // Four of one dispatch, and that of the last layer, which forward and backward make apart.
  const copyBytes = 5 * width * width * 2
  expect(half.peakBytes).toBeLessThan(0.6 * full.peakBytes + copyBytes)
  expect(half.lowerBoundBytes).toBeLessThan(0.55 * full.lowerBoundBytes + copyBytes)
  const row = 'eight layers of width 64 at 1,024 rows'
  expect(documentedPlan(row)).toEqual(measuredPlan(half, full))
})

test('a step reads and stores packed halves, without shader-f16', () => {
  const { plan } = prepareStep(halfModel(), halfTypes)
  const packed = plan.dispatches.map(({ dispatch }) => dispatch.wgsl).join('\n')
  expect(packed).toContain('var<storage, read> a: array<vec2<u32>>;')
  expect(packed).toContain('pack_half(')
  expect(packed).toContain('unpack2x16float(word')
  expect(packed).not.toContain('f16>')
})

test('a step adds copies of its input and weights, and one pass before the mean, to the kernels of float32', () => {
  const labelsOf = (enabled: boolean) =>
    prepareStep(halfModel(), halfTypes, { enabled }).plan.dispatches.map(
      ({ dispatch }) => dispatch.label,
    )
  const labels = labelsOf(true)
  // x; three weights in forward, two of them again in backward.
  expect(labels.filter((label) => label === 'map ')).toHaveLength(1)
  expect(labels.filter((label) => label.startsWith('half copies '))).toHaveLength(2)
  expect(labels).toHaveLength(labelsOf(false).length + 3 + 1)
})

test('float16 rounds to nearest, ties to even, and too large to infinity', () => {
  const pairs: [number, number][] = [
    [1 + 2 ** -11, 1],
    [1 + 3 * 2 ** -11, 1 + 2 ** -9],
    [-65_519, -65_504],
    [65_520, Number.POSITIVE_INFINITY],
    [2 ** -25, 0],
    [3 * 2 ** -25, 2 ** -23],
    [1e-6, 17 * 2 ** -24],
    [0.1, 0.0999755859375],
  ]
  for (const [value, expected] of pairs) expect(roundHalf(value), `${value}`).toBe(expected)
  expect(roundHalf(Number.NaN)).toBeNaN()
  expect([...unpackHalves(Uint32Array.of(0x7c00_3c01, 0x0001_c000), 4)]).toEqual([
    1 + 2 ** -10,
    Number.POSITIVE_INFINITY,
    -2,
    2 ** -24,
  ])
})

test.each(['f16', 'bf16'])('compile names an input that is refused when it is %s', (dtype) => {
  const types = { x: { shape: [4], dtype: dtype as DType } }
  expect(() => prepare({ limits, variants: {} }, ({ x }) => ({ y: x }), types)).toThrow(
    `compile: input "x" must be f32, i32 or u32, got ${dtype}.`,
  )
})

test('attention under autocast is attention of rounded operands, its gradients those of them and of the rounded result', async () => {
  const shape = [1, 2, 5, 4]
  const type = tensorType(shape)
  const drawn = ['q', 'k', 'v', 'dy'].map((name, n) => [name, formulaUniform(n, 40, 2)] as const)
  const attend = (enabled: boolean, values: (data: Float32Array) => Float32Array<ArrayBuffer>) => {
    const parameters = drawn.slice(0, 3).map(([, data]) => new Parameter(shape, values(data)))
    const step = ({ dy }: Record<string, Tensor>): Outputs => {
      const [q, k, v] = parameters
      const y = autocast({ enabled }, () => scaledDotProductAttention(q, k, v, { isCausal: true }))
      y.float().mul(dy).sum().backward()
      const gradients = parameters.map(({ grad }, n) => [`d${n}`, grad!] as const)
      return { y, ...Object.fromEntries(gradients) }
    }
    return compile(step, { dy: tensorType(shape) }, { device: 'reference' })
  }
  const dy = drawn[3][1].map(roundHalf)
  const [half, rounded] = await Promise.all([
    attend(true, (data) => data.slice()).then((program) => program.run({ dy })),
    attend(false, (data) => data.map(roundHalf)).then((program) => program.run({ dy })),
  ])
  expect([...half.y]).toEqual([...rounded.y].map(roundHalf))
  const attrs: AttentionAttrs = {
    layout: 'heads',
    batch: 1,
    heads: 2,
    scale: 0.5,
    isCausal: true,
    mask: null,
    dropout: null,
  }
  const operands = drawn.slice(0, 3).map(([, data]) => Float64Array.from(data, roundHalf))
  const callOf = (types: TensorType[]) => ({ inputs: types, outputs: [], attrs })
  const [, lse] = attention.reference(operands, callOf(operands.map(() => type)), [])
  const gradients = attentionGrad.reference(
    [
      Float64Array.from(dy),
      Float64Array.from(half.y),
      Float64Array.from(lse, Math.fround),
      ...operands,
    ],
    {
      ...callOf([type, type, tensorType([1, 2, 5]), type, type, type]),
      outputs: [type, type, type],
    },
    [],
  )
  gradients.forEach((gradient, n) => {
    expect([...half[`d${n}`]], `d${n}`).toEqual([...gradient].map(Math.fround))
  })
})

test('a GPT under autocast has equal losses with and without rewrites, near those of float32', async () => {
  const [batch, length, vocabulary] = [2, 6, 12]
  const tokens = Int32Array.from({ length: batch * length }, (_, i) => (i * 7 + 3) % vocabulary)
  const losses = async (enabled: boolean, useNaiveKernels: boolean): Promise<number[]> => {
    manualSeed(4)
    const model = gpt({ vocabSize: vocabulary, blockSize: length, layers: 1, heads: 2, width: 16 })
    const optimizer = new SGD(model.parameters(), { lr: 0.5 })
    const program = await compile(
      ({ x, y }) => {
        const logits = autocast({ enabled }, () => model.forward(x))
        const loss = crossEntropy(logits.reshape([batch * length, vocabulary]), y)
        optimizer.zeroGrad()
        loss.backward()
        optimizer.step()
        return { loss }
      },
      { x: tensorType([batch, length], 'i32'), y: tensorType([batch * length], 'i32') },
      { device: 'reference', useNaiveKernels },
    )
    const y = tokens.map((token) => (token + 1) % vocabulary)
    const result: number[] = []
    for (let step = 0; step < 4; step++) result.push((await program.run({ x: tokens, y })).loss[0])
    return result
  }
  const [half, naive, full] = [
    await losses(true, false),
    await losses(true, true),
    await losses(false, false),
  ]
  expect(half[3]).toBeLessThan(half[0])
  half.forEach((loss, step) => {
    expect(Math.abs(loss - naive[step]), `without rewrites, step ${step}`).toBeLessThan(1e-4)
    expect(Math.abs(loss - full[step]), `float32, step ${step}`).toBeLessThan(1e-2)
  })
  expect(half).not.toEqual(full)
})
