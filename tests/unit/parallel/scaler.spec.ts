import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import { type TracedFunction, traceStep } from '../../../src/graph/plan/prepare.ts'
import { autocast } from '../../../src/graph/trace/autocast.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { Adam } from '../../../src/optim/adam.ts'
import { GradScaler } from '../../../src/optim/grad-scaler.ts'
import { pipeline } from '../../../src/parallel/pipeline/pipe.ts'
import { Schedule1F1B } from '../../../src/parallel/pipeline/schedule.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { onRanks, resultOf } from '../../support/ranks-of-one.ts'

// Loss scaling in a pipeline: whether an update is left out depends on the gradients of all stages.

const types = { x: tensorType([8, 6]), y: tensorType([8], 'i32') }
const inputs = {
  x: Float32Array.from({ length: 48 }, (_, i) => Math.sin(i)),
  y: Int32Array.from({ length: 8 }, (_, i) => i % 3),
}

async function train(stages: number, initScale: number, group?: ProcessGroup) {
  manualSeed(2)
  const model = new Sequential(new Linear(6, 7), new ReLU(), new Linear(7, 3))
  const devices = Array.from({ length: stages }, (_, at) =>
    group ? `rank:${at}/reference` : 'reference',
  )
  const pipe = await pipeline(model, { stages, balance: 'layers', devices })
  const optimizer = new Adam(model.parameters(), { lr: 0.01 })
  const scaler = new GradScaler({ initScale, growthInterval: 3 })
  const inHalf = <T>(work: () => T) => autocast({ dtype: 'float16' }, work)
  const schedule = new Schedule1F1B(pipe, {
    microBatches: 4,
    lossFn: (output: Tensor, target: Tensor) => inHalf(() => crossEntropy(output, target)),
    scaled: (loss) => scaler.scale(loss),
  })
  const step = await compile(
    ({ x, y }) => {
      optimizer.zeroGrad()
      const { loss } = inHalf(() => schedule.step(x, y))
      scaler.step(optimizer)
      scaler.update()
      return { loss }
    },
    types,
    { device: 'reference', ...(group && { group }) },
  )
  const scales: number[] = []
  for (let i = 0; i < 8; i++) {
    await step.run(inputs)
    scales.push(await scaler.getScale())
  }
  step.destroy()
  return { scales, state: await model.stateDict(), saved: await scaler.stateDict() }
}

test.each([2 ** 10, 2 ** 40])(
  'from a scale of %d both stages end with the bits of one',
  async (initScale) => {
    const whole = await train(1, initScale)
    const ranks = (await onRanks(2, (group) => train(2, initScale, group))).map(resultOf)
    const isTooLarge = initScale > 2 ** 15
    expect(whole.scales[0]).toBe(isTooLarge ? initScale / 2 : initScale)
    expect(whole.scales[2]).toBe(isTooLarge ? initScale / 8 : 2 * initScale)
    for (const rank of ranks) expect(rank).toEqual(whole)
  },
)

test('a scaler that has run on one device is refused on another, whose state would be older', async () => {
  const scaler = new GradScaler()
  const stepFor = (model: Linear): TracedFunction => {
    const optimizer = new Adam(model.parameters(), { lr: 0.01 })
    return ({ x }) => {
      const loss = model.forward(x).mean()
      optimizer.zeroGrad()
      scaler.scale(loss).backward()
      scaler.step(optimizer)
      scaler.update()
      return { loss }
    }
  }
  const step = await compile(stepFor(new Linear(6, 2)), { x: types.x }, { device: 'reference' })
  await step.run({ x: inputs.x })
  step.destroy()
  const other = { type: 'webgpu', index: 0 } as const
  expect(() => traceStep(other, stepFor(new Linear(6, 2)), { x: types.x })).toThrow(
    /GradScaler: the program runs on webgpu:0, but the scale is on reference\. .*load its state/,
  )
})
