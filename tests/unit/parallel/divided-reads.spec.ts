import { describe, expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { linear } from '../../../src/graph/functions/linear.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import { Module, Sequential } from '../../../src/nn/module.ts'
import { spectralNorm } from '../../../src/nn/spectral-norm.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { initDeviceMesh } from '../../../src/parallel/mesh/device-mesh.ts'
import { fullyShard } from '../../../src/parallel/sharded/fully-shard.ts'
import { parallelizeModule } from '../../../src/parallel/tensor/parallelize-module.ts'
import { ColwiseParallel, RowwiseParallel } from '../../../src/parallel/tensor/styles.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { onRanks, resultOf } from '../../support/ranks-of-one.ts'

// What still reads a parameter that ranks have divided: its contents are freed, and zeros would be computed with.

const types = { x: tensorType([2, 4]) }
const inputs = { x: Float32Array.from({ length: 8 }, (_, i) => Math.sin(i)) }

const meshOf = (processGroup: ProcessGroup) => initDeviceMesh('reference', [2], { processGroup })

const errorsOf = async (work: (group: ProcessGroup) => Promise<unknown>) =>
  (await onRanks(2, work)).map((one) =>
    one.status === 'rejected' ? String(one.reason.message) : 'no error',
  )

const forwardOf = (model: Module) =>
  compile(({ x }) => ({ y: model.forward(x) }), types, { device: 'reference' })

/** Two layers with one weight. */
function tied(): [Linear, Linear] {
  manualSeed(1)
  const layers: [Linear, Linear] = [new Linear(4, 4), new Linear(4, 4)]
  Reflect.set(layers[1], 'weight', layers[0].weight)
  return layers
}

describe('the whole of a divided parameter', () => {
  test('is refused when a module keeps it in a closure', async () => {
    class Hidden extends Module {
      weight = new Parameter([4, 4], new Float32Array(16).fill(1))
      readonly #read = (
        (weight) => () =>
          weight
      )(this.weight)
      forward(x: Tensor): Tensor {
        return linear(x, this.#read())
      }
    }
    const errors = await errorsOf(async (group) => {
      const model = new Sequential(new Hidden())
      await fullyShard(model, { mesh: await meshOf(group) })
      await forwardOf(model)
    })
    for (const error of errors)
      expect(error).toMatch(
        /^linear: "0\.weight" was divided over ranks by fullyShard, but this reads the whole/,
      )
  })

  test('is refused in another module, in a step and in its state dict', async () => {
    const ended = await onRanks(2, async (group) => {
      const [first, second] = tied()
      await fullyShard(first, { mesh: await meshOf(group) })
      return Promise.allSettled([forwardOf(second), second.stateDict()])
    })
    for (const [step, state] of ended.map(resultOf)) {
      expect(step).toMatchObject({
        reason: { message: expect.stringMatching(/^linear: "weight"/) },
      })
      expect(state).toMatchObject({
        reason: {
          message: expect.stringMatching(/^"weight" was divided over ranks by fullyShard/),
        },
      })
    }
  })

  test('is refused in a program that was compiled before', async () => {
    const errors = await errorsOf(async (group) => {
      const model = new Sequential(new Linear(4, 4))
      const before = await forwardOf(model)
      await fullyShard(model, { mesh: await meshOf(group) })
      const after = await forwardOf(model)
      await after.run(inputs)
      await before.run(inputs)
    })
    for (const error of errors) expect(error).toContain('was divided over ranks by fullyShard')
  })
})

describe('parallelizeModule', () => {
  test.each([
    ['the plan', { 0: new ColwiseParallel(), 1: new RowwiseParallel() }],
    ['nothing else', { 0: new ColwiseParallel() }],
  ])('refuses a weight that two layers share when %s names the second', async (_, plan) => {
    const errors = await errorsOf(async (group) =>
      parallelizeModule(new Sequential(...tied()), await meshOf(group), plan),
    )
    for (const error of errors)
      expect(error).toMatch(/^parallelizeModule: "0\.weight" is also a parameter of "1"\./)
  })
})

describe('spectralNorm', () => {
  /** The states after 3 steps, and what the model then gives in evaluation. */
  async function trained(group?: ProcessGroup, isByLayer = false) {
    manualSeed(6)
    const model = new Sequential(spectralNorm(new Linear(4, 3)), new ReLU(), new Linear(3, 2))
    if (group) {
      const mesh = await meshOf(group)
      if (isByLayer) await fullyShard(model.at(0), { mesh })
      await fullyShard(model, { mesh })
    }
    const optimizer = new SGD(model.parameters(), { lr: 0.5 })
    const step = await compile(
      ({ x }) => {
        optimizer.zeroGrad()
        const loss = (model.forward(x) as Tensor).square().mean()
        loss.backward()
        optimizer.step()
        return { loss }
      },
      types,
      { device: 'reference' },
    )
    for (let i = 0; i < 3; i++) await step.run(inputs)
    const evaluation = await forwardOf(model.eval())
    const { y } = await evaluation.run(inputs)
    const state = await model.stateDict()
    return [...Object.values(state).flatMap(({ data }) => [...data]), ...y]
  }

  test.each([false, true])(
    'trains as on one rank when fullyShard divides it',
    async (isByLayer) => {
      const whole = await trained()
      const ranks = await onRanks(2, (group) => trained(group, isByLayer))
      for (const numbers of ranks.map(resultOf)) {
        expect(numbers).toHaveLength(whole.length)
        for (const [i, value] of numbers.entries()) expect(value).toBeCloseTo(whole[i], 5)
      }
    },
  )
})
