import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { gpt } from '../../../src/nn/gpt.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import { Module, Sequential } from '../../../src/nn/module.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { layersOf } from '../../../src/parallel/pipeline/cut.ts'
import { layerTimes } from '../../../src/parallel/pipeline/layer-times.ts'
import { pipeline } from '../../../src/parallel/pipeline/pipe.ts'
import { Schedule1F1B } from '../../../src/parallel/pipeline/schedule.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { onRanks, resultOf } from '../../support/ranks-of-one.ts'

// What goes wrong in a pipeline names the rank, the stage and its layers.

const types = { x: tensorType([4, 6]), y: tensorType([4], 'i32') }
const inputs = { x: new Float32Array(24).fill(1), y: new Int32Array(4) }
const devices = ['rank:0/reference', 'rank:1/reference']

class Throwing extends Module {
  readonly when: () => boolean

  constructor(when: () => boolean) {
    super()
    this.when = when
  }

  forward(x: Tensor): Tensor {
    if (this.when()) throw new RangeError('the input is too hot')
    return x
  }
}

test('a schedule says what it takes when it is called outside of a step, or without labels', async () => {
  const pipe = await pipeline(new Sequential(new Linear(6, 3)), {
    stages: 1,
    devices: ['reference'],
  })
  const schedule = new Schedule1F1B(pipe, { microBatches: 2, lossFn: crossEntropy })
  const [x, y] = [inputs.x, inputs.y] as unknown as [Tensor, Tensor]
  const misuse = (message: string) =>
    expect.objectContaining({ code: 'graph.misuse', message: expect.stringContaining(message) })
  const words = 'x must be a Tensor, got Float32Array'
  expect(() => schedule.step(x, y)).toThrow(misuse(`Schedule1F1B.step: ${words}`))
  expect(() => schedule.forward(x)).toThrow(misuse(`Schedule1F1B.forward: ${words}`))
  const step = compile(
    ({ x }) => ({ loss: schedule.step(x, undefined as unknown as Tensor).loss }),
    { x: types.x },
    { device: 'reference' },
  )
  await expect(step).rejects.toThrow(misuse('Schedule1F1B.step: target must be a Tensor'))
})

/** Compiles a pipeline of two ranks and runs it once; the error of each rank. */
async function errorsOf(
  make: (rank: number) => Module,
  {
    batch = () => inputs,
    microBatches = () => 2,
  }: { batch?: (rank: number) => typeof inputs; microBatches?: (rank: number) => number } = {},
): Promise<string[]> {
  const ended = await onRanks(2, async (group: ProcessGroup) => {
    manualSeed(1)
    const model = make(group.rank)
    const pipe = await pipeline(model, { splitSpec: ['2'], devices })
    const schedule = new Schedule1F1B(pipe, {
      microBatches: microBatches(group.rank),
      lossFn: crossEntropy,
    })
    const optimizer = new SGD(model.parameters(), { lr: 0.1 })
    const run = async () => {
      const step = await compile(
        ({ x, y }) => {
          optimizer.zeroGrad()
          const { loss } = schedule.step(x, y)
          optimizer.step()
          return { loss }
        },
        types,
        { device: 'reference', group },
      )
      await step.run(batch(group.rank))
    }
    return run().then(
      () => 'no error',
      (error: Error) => error.message,
    )
  })
  return ended.map(resultOf)
}

const tower = () => new Sequential(new Linear(6, 5), new ReLU(), new Linear(5, 4), new ReLU())

test('a stage that throws is named on all ranks', async () => {
  const errors = await errorsOf(
    (rank) =>
      new Sequential(
        new Linear(6, 5),
        new ReLU(),
        new Linear(5, 4),
        new Throwing(() => rank === 1),
      ),
  )
  expect(errors[1]).toBe('stage 1 ("2" to "3"): the input is too hot')
  expect(errors[0]).toContain('rank 1')
  expect(errors[0]).toContain('stage 1 ("2" to "3"): the input is too hot')
})

test('shapes that differ between ranks are named with the stage that they go into', async () => {
  const errors = await errorsOf((rank) => {
    const width = rank === 0 ? 5 : 7
    return new Sequential(new Linear(6, width), new ReLU(), new Linear(width, 4))
  })
  for (const error of errors) {
    expect(error).toContain('forward of micro-batch 0 in stage 1 ("2")')
    expect(error).toMatch(/f32\[2, 5\] on rank 0, .*f32\[2, 7\] on rank 1/)
  }
})

test('numbers of micro-batches that differ are named', async () => {
  const errors = await errorsOf(tower, { microBatches: (rank) => 2 + 2 * rank })
  for (const error of errors)
    expect(error).toContain('forward of micro-batch 0 in stage 1 ("2" to "3"): f32[2, 5] on rank 0')
})

test('a rank that fails in a step is named, with the micro-batch that another waits for', async () => {
  const errors = await errorsOf(tower, {
    batch: (rank) => (rank === 0 ? { ...inputs, x: new Float32Array(3) } : inputs),
  })
  expect(errors[0]).toMatch(/input "x" .*24/)
  expect(errors[1]).toContain('forward of micro-batch 0 in stage 1 ("2" to "3")')
  expect(errors[1]).toContain('rank 0')
})

class Backwards extends Module {
  second = new Linear(5, 4)
  first = new Linear(6, 5)

  forward(x: Tensor): Tensor {
    return this.second.forward(this.first.forward(x))
  }
}

test('a weight that two stages share is named', async () => {
  const errors = await errorsOf(() => {
    const [first, second] = [new Linear(6, 6, { bias: false }), new Linear(6, 6, { bias: false })]
    Object.assign(second, { weight: first.weight })
    return new Sequential(first, new ReLU(), second)
  })
  for (const error of errors) {
    expect(error).toContain('argument 1 ("0.weight") is on rank:0/reference')
    expect(error).toContain('micro-batch 0 in stage 1 ("2")')
  }
})

test('layers that forward calls in another order than they are registered are named', async () => {
  await expect(layerTimes(await new Backwards().to('reference'), types.x)).rejects.toThrow(
    'pipeline: forward called "second" of stage 0 ("second") in stage 1 ("first"). Register layers in the order',
  )
})

test('set-ups that contradict themselves are refused', async () => {
  const refused = (given: object) =>
    pipeline(tower(), { devices: ['reference'], ...given }).then(
      () => 'no error',
      (error: Error) => error.message,
    )
  expect(await refused({ stages: 3, splitSpec: ['2'] })).toContain(
    'splitSpec and stages or balance exclude each other',
  )
  expect(await refused({ splitSpec: ['2'], devices: ['reference', 'reference'] })).toContain(
    'devices has reference twice',
  )
  expect(
    await refused({
      splitSpec: ['2'],
      devices: ['rank:0/reference', 'rank:1/reference', 'rank:2/reference'],
    }),
  ).toBe(
    'pipeline: 2 stages for 3 devices, so rank:2/reference has none. Make more stages, or list fewer devices.',
  )
  const model = tower()
  const pipe = await pipeline(model, { splitSpec: ['2'], devices: ['reference'] })
  await expect(pipeline(model, { splitSpec: ['2'], devices: ['reference'] })).rejects.toThrow(
    'the module is a pipeline already. Call pipe.release() first.',
  )
  pipe.release()
  await pipeline(model, { splitSpec: ['2'], devices: ['reference'] })
})

test('a GPT is cut where forward calls, and its layers can be timed', async () => {
  const config = { vocabSize: 11, blockSize: 64, layers: 2, heads: 1, width: 8 }
  const model = gpt(config)
  await model.to('reference')
  const times = await layerTimes(model, tensorType([2, 6], 'i32'), { repeats: 1 })
  expect(times).toHaveLength(layersOf(model).length)
  for (const time of times) expect(time).toBeGreaterThanOrEqual(0)
  for (const balance of ['parameters', 'layers'] as const) {
    const pipe = await pipeline(gpt(config), { stages: 4, balance, devices: ['reference'] })
    expect(pipe.stages.map(({ path }) => path)).not.toContain('transformer.wpe')
    expect(pipe.stages.flatMap(({ keys }) => keys)).toEqual(
      [...model.namedParameters()].map(([key]) => key),
    )
  }
})
