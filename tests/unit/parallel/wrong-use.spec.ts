import { describe, expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy, sampleCount, stepScalar } from '../../../src/graph/functions/linear.ts'
import { norm } from '../../../src/graph/functions/reductions.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { Dropout } from '../../../src/nn/dropout.ts'
import { gpt } from '../../../src/nn/gpt.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import { Module, Sequential } from '../../../src/nn/module.ts'
import { spectralNorm } from '../../../src/nn/spectral-norm.ts'
import { AdamW } from '../../../src/optim/adam.ts'
import { clipGradNorm } from '../../../src/optim/clip.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { zipTensors } from '../../../src/parallel/data-parallel/nested.ts'
import { type DeviceMesh, initDeviceMesh } from '../../../src/parallel/mesh/device-mesh.ts'
import { pipeline } from '../../../src/parallel/pipeline/pipe.ts'
import {
  Schedule1F1B,
  ScheduleGPipe,
  ScheduleInterleaved1F1B,
} from '../../../src/parallel/pipeline/schedule.ts'
import { replicate } from '../../../src/parallel/replicated/replicate.ts'
import { fullyShard } from '../../../src/parallel/sharded/fully-shard.ts'
import { parallelizeModule } from '../../../src/parallel/tensor/parallelize-module.ts'
import { ColwiseParallel, RowwiseParallel } from '../../../src/parallel/tensor/styles.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { countElements, tensorType } from '../../../src/util/shape.ts'
import { onRanks, resultOf } from '../../support/ranks-of-one.ts'

// What PyTorch users write, or forget, and what would give wrong numbers without a word.

const types = { x: tensorType([4, 3]), y: tensorType([4], 'i32') }
const inputs = {
  x: Float32Array.from({ length: 12 }, (_, i) => Math.sin(i)),
  y: Int32Array.of(0, 1, 1, 0),
}

const errorsOf = async (work: (group: ProcessGroup) => Promise<unknown>, size = 2) =>
  (await onRanks(size, work)).map((one) =>
    one.status === 'rejected' ? String(one.reason.message) : 'no error',
  )

function tower(): Sequential {
  manualSeed(4)
  return new Sequential(new Linear(3, 4), new ReLU(), new Linear(4, 2))
}

/** A step that trains the model. */
const trainingOf = (model: Sequential, optimizer: SGD) =>
  compile(
    ({ x, y }) => {
      optimizer.zeroGrad()
      crossEntropy(model.forward(x) as Tensor, y).backward()
      optimizer.step()
      return {}
    },
    types,
    { device: 'reference' },
  )

async function backwardOf(model: Sequential): Promise<void> {
  const step = await compile(
    ({ x, y }) => {
      const loss = crossEntropy(model.forward(x) as Tensor, y)
      loss.backward()
      return { loss }
    },
    types,
    { device: 'reference' },
  )
  step.destroy()
}

class Scaled extends Module {
  readonly scale: Parameter
  constructor(size: number) {
    super()
    this.scale = new Parameter([size], new Float32Array(size).fill(2))
  }
  forward(x: Tensor): Tensor {
    return x.mul(this.scale)
  }
}

class Scaling extends Module {
  forward(x: Tensor): Tensor {
    return x.mul(stepScalar('temperature', 1))
  }
}

describe('a schedule', () => {
  test.each([ScheduleGPipe, Schedule1F1B, ScheduleInterleaved1F1B])(
    'a loss over all micro-batches trains as the whole batch does: %o',
    async (Kind) => {
      const trained = async (group?: ProcessGroup) => {
        const model = tower()
        const devices = group ? ['rank:0/reference', 'rank:1/reference'] : ['reference']
        const pipe = await pipeline(model, { stages: devices.length, balance: 'layers', devices })
        const schedule = new Kind(pipe, { microBatches: 2 })
        const optimizer = new SGD(model.parameters(), { lr: 0.5 })
        const step = await compile(
          ({ x, y }) => {
            optimizer.zeroGrad()
            const loss = crossEntropy(group ? schedule.forward(x) : model.forward(x), y)
            loss.backward()
            optimizer.step()
            return { loss }
          },
          types,
          { device: 'reference', ...(group && { group }) },
        )
        for (let i = 0; i < 3; i++) await step.run(inputs)
        step.destroy()
        return model.stateDict()
      }
      const whole = await trained()
      for (const state of (await onRanks(2, trained)).map(resultOf)) {
        for (const [key, { data }] of Object.entries(whole))
          for (const [i, value] of data.entries()) expect(state[key].data[i]).toBeCloseTo(value, 6)
      }
    },
  )

  test.each([4, 3, 2, 1])(
    '%i samples that count give the loss of the whole model',
    async (count) => {
      const lossOf = async (microBatches: number) => {
        const model = tower()
        const pipe = await pipeline(model, { stages: 1, devices: ['reference'] })
        const lossFn = (output: Tensor, target: Tensor) =>
          crossEntropy(output, target, { count: sampleCount() })
        const schedule = new ScheduleGPipe(pipe, { microBatches, lossFn })
        const step = await compile(({ x, y }) => ({ loss: schedule.step(x, y).loss }), types, {
          device: 'reference',
        })
        const { loss } = await step.run(inputs, { count })
        step.destroy()
        return loss[0]
      }
      expect(await lossOf(2)).toBeCloseTo(await lossOf(1), 6)
    },
  )
})

describe('ranks that have a stage each', () => {
  const devices = ['rank:0/reference', 'rank:1/reference']

  interface Differing {
    /** Before `compile`. */
    readonly optimizer?: (model: Sequential, rank: number) => SGD | AdamW
    readonly limit?: (rank: number) => number
    /** Between the two steps. */
    readonly change?: (optimizer: SGD | AdamW, rank: number) => void
    /** Whether layers are moved without a pipeline. */
    readonly isMoved?: boolean
  }

  /** How the second step ends on each rank; 'moved' if a step that failed changed this rank's parameters all the same. */
  const secondStep = (differing: Differing) =>
    errorsOf(async (group) => {
      const model = tower()
      const { rank } = group
      const layers = model.children().map(([, layer]) => layer as Linear)
      if (differing.isMoved)
        for (const [i, layer] of layers.entries()) await layer.to(devices[+(i > 0)])
      const schedule =
        !differing.isMoved &&
        new Schedule1F1B(await pipeline(model, { splitSpec: ['2'], devices }), {
          microBatches: 2,
          lossFn: crossEntropy,
        })
      const optimizer =
        differing.optimizer?.(model, rank) ?? new SGD(model.parameters(), { lr: 0.5 })
      const step = await compile(
        ({ x, y }) => {
          optimizer.zeroGrad()
          if (schedule) schedule.step(x, y)
          else {
            const hidden = layers[0].forward(x).to(devices[1])
            crossEntropy(layers[2].forward(hidden), y).backward()
          }
          if (differing.limit) clipGradNorm(model.parameters(), differing.limit(rank))
          optimizer.step()
          return {}
        },
        types,
        { device: 'reference', group },
      )
      const own = model.parameters().filter(({ isReleased }) => !isReleased)
      const read = async () => JSON.stringify(await Promise.all(own.map((one) => one.read())))
      const first = await read()
      let before = first
      try {
        if (differing.change) {
          await step.run(inputs)
          before = await read()
          expect(before).not.toBe(first)
          differing.change(optimizer, rank)
        }
        await step.run(inputs)
      } catch (error) {
        if ((await read()) !== before) throw new Error('moved')
        throw error
      }
    })

  test.each<[string, Differing, RegExp]>([
    [
      'other learning rates',
      { optimizer: (model, rank) => new SGD(model.parameters(), { lr: 0.1 + 0.1 * rank }) },
      /^compile: ranks disagree .* SGD, group 0: lr 0\.1.* on rank 0, .* lr 0\.2.* on rank 1/,
    ],
    [
      'other optimizers',
      {
        optimizer: (model, rank) => {
          const Kind = rank === 0 ? SGD : AdamW
          return new Kind(model.parameters(), { lr: 0.1 })
        },
      },
      /^compile: ranks disagree .* SGD, group 0: .* on rank 0, AdamW, group 0: .* on rank 1/,
    ],
    [
      'other limits of gradients',
      { limit: (rank) => (rank === 0 ? 0.5 : 0.25) },
      /optimizer's settings: maxNorm 0\.5 .* on rank 0, maxNorm 0\.25 .* on rank 1/,
    ],
    [
      'a learning rate that only the rank with the loss lowers',
      {
        change: ({ paramGroups: [group] }, rank) => {
          if (rank === 1) group.lr = 0.25
        },
      },
      /optimizer's settings: lr 0\.5 .* on rank 0, lr 0\.25 .* on rank 1/,
    ],
    [
      'the same, of layers without a pipeline',
      {
        isMoved: true,
        change: ({ paramGroups: [group] }, rank) => {
          if (rank === 1) group.lr = 0.25
        },
      },
      /optimizer's settings: lr 0\.5 .* on rank 0, lr 0\.25 .* on rank 1/,
    ],
  ])('are refused with %s, before anything is updated', async (_, differing, text) => {
    for (const error of await secondStep(differing)) expect(error).toMatch(text)
  })

  test('may change settings together', async () => {
    const change: Differing['change'] = ({ paramGroups: [group] }) => {
      group.lr = 0.25
    }
    for (const error of await secondStep({ change, limit: () => 0.5 }))
      expect(error).toBe('no error')
  })
})

test('a mesh of some ranks is refused with the name of its option', async () => {
  const errors = await errorsOf(async (processGroup) => {
    const group = await processGroup.newGroup([0, 1])
    await initDeviceMesh('reference', [2], { processGroup: group as never })
  })
  for (const error of errors)
    expect(error).toMatch(/^initDeviceMesh: processGroup must be the group of all ranks/)
})

describe('sharded and replicated parameters', () => {
  test('replicate, then fullyShard, is refused', async () => {
    const errors = await errorsOf(async (processGroup) => {
      const mesh = await initDeviceMesh('reference', [2, 2], {
        meshDimNames: ['dp', 'shard'],
        processGroup,
      })
      const model = tower()
      await replicate(model, { mesh: mesh.get('dp') })
      await fullyShard(model, { mesh: mesh.get('shard') })
    }, 4)
    for (const error of errors)
      expect(error).toMatch(/^fullyShard: ranks share "0\.weight" already, by replicate/)
  })

  test('a weight that two calls of fullyShard would divide is named', async () => {
    const errors = await errorsOf(async (processGroup) => {
      const mesh = await initDeviceMesh('reference', [2], { processGroup })
      const model = new Sequential(new Linear(3, 3), new Linear(3, 3))
      const [[, first], [, second]] = model.children()
      Reflect.set(second, 'weight', Reflect.get(first, 'weight'))
      await fullyShard(first, { mesh })
      await fullyShard(model, { mesh })
    })
    for (const error of errors)
      expect(error).toMatch(/^fullyShard: "weight" of Linear is ".*weight", which another call has/)
  })

  test.each(['fullyShard', 'replicate', 'parallelizeModule'])(
    '%s names a shape that differs between ranks',
    async (way) => {
      const errors = await errorsOf(async (processGroup) => {
        const mesh = await initDeviceMesh('reference', [2], { processGroup })
        const model = new Sequential(
          processGroup.rank ? new Linear(4, 2, { bias: false }) : new Linear(2, 4, { bias: false }),
        )
        if (way === 'fullyShard') await fullyShard(model, { mesh })
        else if (way === 'replicate') await replicate(model, { mesh })
        else await parallelizeModule(model, mesh, { 0: new ColwiseParallel() })
      })
      for (const error of errors)
        expect(error).toBe(
          `${way}: ranks have different models: "0.weight" f32[4, 2] on rank 0, "0.weight" f32[2, 4] on rank 1. Create the same model on all ranks.`,
        )
    },
  )

  test('optimizers with other settings are named when the step is compiled', async () => {
    const errors = await errorsOf(async (processGroup) => {
      const mesh = await initDeviceMesh('reference', [2], { processGroup })
      const model = await replicate(tower(), { mesh })
      const optimizer = new SGD(model.parameters(), { lr: 0.1 + 0.1 * processGroup.rank })
      await trainingOf(model, optimizer)
    })
    for (const error of errors)
      expect(error).toMatch(
        /ranks disagree about the step: SGD, group 0: lr 0\.1.* on rank 0, .*lr 0\.2.* on rank 1/,
      )
  })

  describe('in a step', () => {
    const replicas = 'fullyShard on a mesh of two dimensions'
    const ways = ['replicate', 'fullyShard', replicas, 'parallelizeModule']

    type Change = Record<string, number> | Promise<Record<string, number>>

    /** How a second step ends on each rank, before which the first one trained; 'moved' if it changed parameters all the same. */
    async function secondStep(
      way: string,
      change: (optimizer: SGD, rank: number, again: () => Promise<unknown>) => Change,
    ): Promise<string[]> {
      const work = async (processGroup: ProcessGroup) => {
        const shape = way === replicas ? [2, 2] : [2]
        const mesh = await initDeviceMesh('reference', shape, { processGroup })
        const model = tower()
        const plan = { 0: new ColwiseParallel(), 2: new RowwiseParallel() }
        if (way === 'replicate') await replicate(model, { mesh })
        else if (way === 'parallelizeModule') await parallelizeModule(model, mesh, plan)
        else await fullyShard(model, { mesh })
        const optimizer = new SGD(model.parameters(), { lr: 0.5, momentum: 0.5 })
        const step = await trainingOf(model, optimizer)
        await step.run(inputs)
        const read = () => Promise.all(model.parameters().map((one) => one.read()))
        const scalars = await change(optimizer, processGroup.rank, () => step.run(inputs))
        const before = await read()
        const error = await step.run(inputs, scalars).then(() => 'no error', String)
        const isMoved = JSON.stringify(await read()) !== JSON.stringify(before)
        return error !== 'no error' && isMoved ? 'moved' : error
      }
      return (await onRanks(way === replicas ? 4 : 2, work)).map(resultOf)
    }

    test.each(ways)('%s names a learning rate that one rank has changed', async (way) => {
      const errors = await secondStep(way, (optimizer, rank) => {
        optimizer.paramGroups[0].lr = rank === 1 ? 1.5 : 0.5
        return {}
      })
      // On a grid either of rank 1's groups may be the first to find out.
      for (const error of errors)
        expect(error).toMatch(
          /disagree about the optimizer's settings: .*lr 1\.5 \(.*\) on rank 1\b/,
        )
    })

    test.each(ways)('%s names weights that one rank alone has loaded', async (way) => {
      const load = ({ paramGroups }: SGD, scale: number) => {
        for (const one of paramGroups[0].params) {
          const whole = Float32Array.from({ length: countElements(one.stateShape) }, () => scale)
          one.assignWhole(whole)
        }
        return {}
      }
      const errors = await secondStep(way, (optimizer, rank) =>
        rank === 1 ? load(optimizer, 1) : {},
      )
      for (const error of errors)
        expect(error).toMatch(/ranks disagree about weights .*: contents of ".*" .* on rank 1\b/)
      for (const error of await secondStep(way, (optimizer) => load(optimizer, 1)))
        expect(error).toBe('no error')
    })

    test.each(ways)(
      '%s names a second load on one rank, unless it has what all have',
      async (way) => {
        const loads = (isState: boolean, isOld: boolean) =>
          secondStep(way, async (optimizer, rank, again) => {
            const [{ params }] = optimizer.paramGroups
            const keep = async () => {
              const state = await optimizer.stateDict()
              const wholes: Float32Array<ArrayBuffer>[] = []
              for (const one of params) wholes.push(await one.stateOf(await one.read()))
              return () =>
                isState
                  ? optimizer.loadStateDict(state)
                  : void params.map((one, i) => one.assignWhole(wholes[i]))
            }
            const load = await keep()
            load()
            await again()
            const loadNew = await keep()
            if (rank === 1) (isOld ? load : loadNew)()
            return {}
          })
        for (const isState of [false, true]) {
          for (const error of await loads(isState, true))
            expect(error).toMatch(/ranks disagree about weights or .*: contents of .* on rank 1\b/)
          for (const error of await loads(isState, false)) expect(error).toBe('no error')
        }
      },
    )

    test.each(ways.slice(0, 3))('%s takes only weights that add up to 1', async (way) => {
      const weightOf = (rank: number, sum: number) => ({
        gradientWeight: way === replicas ? (rank * sum) / 6 : rank ? 0.75 * sum : 0.25 * sum,
      })
      for (const error of await secondStep(way, (_, rank) => weightOf(rank, 1)))
        expect(error).toBe('no error')
      for (const error of await secondStep(way, (_, rank) => weightOf(rank, 1.5)))
        expect(error).toMatch(/gradientWeight: the weights of the [24] ranks .* to 1, got 1\.5\. /)
    })

    test('replicate refuses a weight that only one rank passes', async () => {
      const weightOf = (rank: number): Record<string, number> => (rank ? { gradientWeight: 1 } : {})
      for (const error of await secondStep('replicate', (_, rank) => weightOf(rank)))
        expect(error).toContain('gradientWeight: all ranks must pass it, or none, but 1 of 2 ranks')
    })
  })

  test('a shard read outside of forward is refused', async () => {
    class Twice extends Scaled {
      other(x: Tensor): Tensor {
        return x.mul(this.scale)
      }
    }
    const errors = await errorsOf(async (processGroup) => {
      const mesh = await initDeviceMesh('reference', [2], { processGroup })
      const model = await fullyShard(new Twice(3), { mesh })
      await compile(({ x }) => ({ y: model.other(x) }), { x: types.x }, { device: 'reference' })
    })
    for (const error of errors)
      expect(error).toContain('"scale" is sharded over ranks, and whole only in forward')
  })

  test.each(['fullyShard', 'parallelizeModule'])(
    'an optimizer that was made before %s is refused',
    async (way) => {
      const errors = await errorsOf(async (processGroup) => {
        const mesh = await initDeviceMesh('reference', [2], { processGroup })
        const model = tower()
        const optimizer = new SGD(model.parameters(), { lr: 0.1 })
        if (way === 'fullyShard') await fullyShard(model, { mesh })
        else
          await parallelizeModule(model, mesh, {
            0: new ColwiseParallel(),
            2: new RowwiseParallel(),
          })
        await compile(
          ({ x, y }) => {
            const loss = crossEntropy(model.forward(x), y)
            loss.backward()
            optimizer.step()
            return { loss }
          },
          types,
          { device: 'reference' },
        )
      })
      for (const error of errors)
        expect(error).toContain(
          `optimizer.step: ${way} has divided "0.weight" over ranks since SGD was created. Create the optimizer afterwards.`,
        )
    },
  )
})

describe('a division that nobody awaits', () => {
  const kinds = {
    fullyShard: (model, mesh) => fullyShard(model, { mesh }),
    replicate: (model, mesh) => replicate(model, { mesh }),
    parallelizeModule: (model, mesh) =>
      parallelizeModule(model, mesh, { 0: new ColwiseParallel(), 2: new RowwiseParallel() }),
  } satisfies Record<string, (model: Sequential, mesh: DeviceMesh) => Promise<unknown>>

  test.each(Object.entries(kinds))(
    '%s: a step is refused until it has ended',
    async (by, divide) => {
      const ended = await onRanks(2, async (processGroup) => {
        const mesh = await initDeviceMesh('reference', [2], { processGroup })
        const model = tower()
        const under = divide(model, mesh)
        const twice = await divide(model, mesh).catch((error: Error) => error.message)
        const early = await backwardOf(model).catch((error: Error) => error.message)
        await under
        await backwardOf(model)
        return { early, twice }
      })
      for (const { early, twice } of ended.map(resultOf)) {
        const begun = `${by} has begun to share "0.weight"`
        expect(early).toContain(`linear: ${begun} among ranks, and has not ended. Await it`)
        expect(twice).toContain(`${by}: ${begun}, and has not ended. Await it first`)
      }
    },
  )

  test('a step that was compiled before replicate refuses to run', async () => {
    const errors = await errorsOf(async (processGroup) => {
      const mesh = await initDeviceMesh('reference', [2], { processGroup })
      const model = tower()
      const step = await trainingOf(model, new SGD(model.parameters()))
      await replicate(model, { mesh })
      await step.run(inputs)
    })
    for (const error of errors)
      expect(error).toContain(
        'run: the step was compiled before replicate had ranks share "0.weight"',
      )
  })
})

describe('divided layers', () => {
  test.each([
    ['nothing between them', [], 'no error'],
    ['activations between them', [() => new ReLU()], 'no error'],
    ['a whole parameter between them', [() => new Scaled(4)], '"1.scale" is not divided'],
  ])('with %s: backward on both ranks', async (_, between, expected) => {
    const errors = await errorsOf(async (processGroup) => {
      const mesh = await initDeviceMesh('reference', [2], { processGroup })
      const middle = between.map((make) => make())
      const model = new Sequential(new Linear(3, 8), ...middle, new Linear(8, 2))
      await parallelizeModule(model, mesh, {
        0: new ColwiseParallel(),
        [1 + between.length]: new RowwiseParallel(),
      })
      await backwardOf(model)
    })
    for (const error of errors) expect(error).toContain(expected)
  })

  test('an undivided layer stays the same on all ranks when its buffers begin with other values', async () => {
    const ended = await onRanks(2, async (processGroup) => {
      manualSeed(3 + processGroup.rank)
      const mesh = await initDeviceMesh('reference', [2], { processGroup })
      const model = new Sequential(
        spectralNorm(new Linear(3, 4)),
        new Linear(4, 4),
        new Linear(4, 2),
      )
      await parallelizeModule(model, mesh, { 1: new ColwiseParallel(), 2: new RowwiseParallel() })
      const optimizer = new SGD(model.parameters(), { lr: 0.5 })
      const step = await trainingOf(model, optimizer)
      for (let i = 0; i < 3; i++) await step.run(inputs)
      return model.stateDict()
    })
    const [first, second] = ended.map(resultOf)
    expect(first).toHaveProperty('0.weight_orig')
    expect(second).toEqual(first)
  })

  const [colwise, rowwise] = [new ColwiseParallel(), new RowwiseParallel()]
  test.each([
    [
      'a RowwiseParallel layer alone',
      { 2: rowwise },
      '"2" is divided by RowwiseParallel, so each rank reads 4 of 8 input features, but its input is whole. Give the layer before it ColwiseParallel',
    ],
    [
      'a ColwiseParallel layer alone',
      { 0: colwise },
      'Linear "2": expected 8 input features, got 4 in x[4, 4]. The input is a part of a layer that ColwiseParallel divides: give this layer RowwiseParallel',
    ],
    [
      'two ColwiseParallel layers',
      { 0: colwise, 2: colwise },
      '"2" is divided by ColwiseParallel, but its input is a part of another such layer. Give this one RowwiseParallel',
    ],
    [
      'a RowwiseParallel layer before a ColwiseParallel one',
      { 0: rowwise, 2: colwise },
      '"0" is divided by RowwiseParallel, so each rank reads 2 of 4 input features',
    ],
  ])('%s: the error says what to pair', async (_, plan, message) => {
    const errors = await errorsOf(async (processGroup) => {
      const mesh = await initDeviceMesh('reference', [2], { processGroup })
      const model = new Sequential(new Linear(4, 8), new ReLU(), new Linear(8, 2))
      await parallelizeModule(model, mesh, plan)
      const x = tensorType([4, 4])
      await compile(({ x }) => ({ y: model.forward(x) }), { x }, { device: 'reference' })
    })
    for (const error of errors) expect(error).toContain(message)
  })

  describe('compare what they see in each step', () => {
    const random = { randomSeed: 3, randomStep: 5 }
    const { x } = inputs
    test.each<
      [string, (rank: number) => Record<string, number>, (rank: number) => typeof x, string]
    >([
      ['the same', () => random, () => x, 'no error'],
      [
        'other seeds',
        (rank) => ({ ...random, randomSeed: rank }),
        () => x,
        'randomSeed 0 (of this step) on rank 0, randomSeed 1 (of this step) on rank 1',
      ],
      [
        'other steps',
        (rank) => ({ ...random, randomStep: rank }),
        () => x,
        'randomStep 0 (of this step) on rank 0',
      ],
      [
        'other first samples',
        (rank) => ({ ...random, sampleOffset: rank }),
        () => x,
        'sampleOffset 0 (of this step) on rank 0',
      ],
      [
        'other scalars',
        (rank) => ({ ...random, temperature: 1 + rank }),
        () => x,
        'temperature 1 (of this step) on rank 0, temperature 2 (of this step) on rank 1',
      ],
      ['other inputs', () => random, (rank) => x.map((value) => value + rank), 'hash of input "x"'],
    ])('%s', async (_, scalars, inputOf, expected) => {
      const ended = await onRanks(2, async (processGroup) => {
        const { rank } = processGroup
        const mesh = await initDeviceMesh('reference', [2], { processGroup })
        const model = new Sequential(
          new Linear(3, 4),
          new Dropout(0.5),
          new Linear(4, 8),
          new Linear(8, 2),
          new Scaling(),
        )
        await parallelizeModule(model, mesh, { 2: colwise, 3: rowwise })
        const step = await trainingOf(model, new SGD(model.parameters(), { lr: 0.5 }))
        const read = () => Promise.all(model.parameters().map((one) => one.read()))
        const before = await read()
        const run = step.run({ ...inputs, x: inputOf(rank) }, scalars(rank))
        const error = await run.then(() => 'no error', String)
        return { error, isMoved: JSON.stringify(await read()) !== JSON.stringify(before) }
      })
      for (const { error, isMoved } of ended.map(resultOf)) {
        expect(error).toContain(expected)
        expect(isMoved).toBe(expected === 'no error')
      }
    })
  })

  test.each(['trained', 'frozen'])(
    'one block alone, with other layers that are %s, is refused',
    async (how) => {
      const errors = await errorsOf(async (processGroup) => {
        manualSeed(3 + processGroup.rank)
        const mesh = await initDeviceMesh('reference', [2], { processGroup })
        const block = new Sequential(new Linear(3, 8), new ReLU(), new Linear(8, 3))
        const model = new Sequential(block, new Linear(3, 2))
        for (const one of model.at(1).parameters()) one.requiresGrad = how === 'trained'
        await parallelizeModule(block, mesh, { 0: colwise, 2: rowwise })
        model.parameters()
        await backwardOf(model)
      })
      for (const error of errors)
        expect(error).toContain('the loss reads "1.weight", which parallelizeModule was not called')
    },
  )

  test('a layer with spectralNorm is refused', async () => {
    const errors = await errorsOf(async (processGroup) => {
      const mesh = await initDeviceMesh('reference', [2], { processGroup })
      const model = new Sequential(spectralNorm(new Linear(3, 8)), new Linear(8, 2))
      await parallelizeModule(model, mesh, { 0: new ColwiseParallel(), 1: new RowwiseParallel() })
    })
    for (const error of errors)
      expect(error).toContain('the weight of "0" is normalized by spectralNorm')
  })

  test('a loss of one part of them is refused', async () => {
    const errors = await errorsOf(async (processGroup) => {
      const mesh = await initDeviceMesh('reference', [2], { processGroup })
      const model = new Sequential(new Linear(3, 8), new Linear(8, 4))
      await parallelizeModule(model, mesh, { 1: new ColwiseParallel() })
      await backwardOf(model)
    })
    for (const error of errors)
      expect(error).toContain('the loss is computed from a part of a divided layer')
  })
})

describe('the gradient of a divided parameter', () => {
  const hooked = async (
    way: string,
    hook: (gradient: Tensor) => Tensor,
    processGroup?: ProcessGroup,
  ) => {
    const model = tower()
    if (processGroup) {
      const mesh = await initDeviceMesh('reference', [2], { processGroup })
      const plan = { 0: new ColwiseParallel(), 2: new RowwiseParallel() }
      if (way === 'fullyShard') await fullyShard(model, { mesh })
      else await parallelizeModule(model, mesh, plan)
    }
    const [first] = model.parameters()
    if (way !== 'grad') first.registerHook(hook)
    const optimizer = new SGD(model.parameters(), { lr: 0.5 })
    const step = await compile(
      ({ x, y }) => {
        optimizer.zeroGrad()
        crossEntropy(model.forward(x) as Tensor, y).backward()
        if (way === 'grad') first.grad = hook(first.grad!)
        optimizer.step()
        return {}
      },
      types,
      { device: 'reference' },
    )
    await step.run(inputs)
    step.destroy()
    return Object.values(await model.stateDict()).flatMap(({ data }) => [...data])
  }

  const ways = ['fullyShard', 'parallelizeModule', 'grad']
  test.each(ways)('by its norm is refused: %s', async (way) => {
    const byNorm = (gradient: Tensor) => gradient.div(norm(gradient.reshape([-1])))
    for (const error of await errorsOf((group) => hooked(way, byNorm, group)))
      expect(error).toMatch(/^sum: each rank has only a part of this gradient, .* use clipGradNorm/)
  })

  test.each(ways)('by an elementwise function trains as on one rank: %s', async (way) => {
    const twice = (gradient: Tensor) => gradient.mul(2).clamp(-0.1, 0.1)
    const whole = await hooked(way, twice)
    for (const numbers of (await onRanks(2, (group) => hooked(way, twice, group))).map(resultOf)) {
      expect(numbers).toHaveLength(whole.length)
      for (const [i, value] of numbers.entries()) expect(value).toBeCloseTo(whole[i], 5)
    }
  })
})

describe('divided attention', () => {
  const tokens = tensorType([2, 4], 'i32')
  const forward = (heads: number, blocks?: number) => async (processGroup: ProcessGroup) => {
    manualSeed(1)
    const mesh = await initDeviceMesh('reference', [2], { processGroup })
    const model = gpt({ vocabSize: 7, blockSize: 4, layers: 1, heads, width: 12 })
    await parallelizeModule(model, mesh, {
      'transformer.h.*.attn.c_attn': new ColwiseParallel({ blocks }),
      'transformer.h.*.attn.c_proj': new RowwiseParallel(),
    })
    const step = await compile(
      ({ x }) => ({ y: model.forward(x) }),
      { x: tokens },
      { device: 'reference' },
    )
    const { y } = await step.run({ x: Int32Array.of(0, 1, 2, 3, 4, 5, 6, 0) })
    return [...y]
  }

  test('heads that the ranks do not divide are refused', async () => {
    for (const error of await errorsOf(forward(3)))
      expect(error).toContain('gpt: the ranks cannot divide 3 heads equally')
  })

  test('queries, keys and values are divided when blocks is omitted', async () => {
    const received = await onRanks(2, forward(2, 3))
    const unsent = await onRanks(2, forward(2))
    expect(unsent.map(resultOf)).toEqual(received.map(resultOf))
    for (const error of await errorsOf(forward(2, 1)))
      expect(error).toContain('has 3 blocks, got blocks 1. Omit blocks.')
  })
})

describe('what replicas of DataParallel return', () => {
  const join = () => {
    throw new Error('no tensors here')
  }
  class Out {
    readonly n = 3
  }

  test.each([
    [[new Out(), new Out()], 'a replica returned an object of a class with '],
    [[[1], [1, 2]], 'the replicas returned arrays of 1, 2 parts'],
    [[{ a: 1 }, { b: 1 }], 'not all replicas returned "a"'],
    [[new Map([['a', 1]]), new Map([['b', 1]])], 'not all replicas returned "a"'],
    [[3, 2], 'the replicas returned 3, 2 in one place'],
  ])('%j is refused', (values, text) => {
    expect(() => zipTensors(values, join)).toThrow(text)
  })

  test('maps are joined by their keys, in whatever order', () => {
    const [one, other] = [['a', 1] as const, ['b', 2] as const]
    const joined = zipTensors([new Map([one, other]), new Map([other, one])], join)
    expect(joined).toEqual(new Map([one, other]))
  })

  test('equal numbers and nothing are kept', () => {
    expect(
      zipTensors(
        [
          { n: 3, none: null },
          { n: 3, none: null },
        ],
        join,
      ),
    ).toEqual({
      n: 3,
      none: null,
    })
  })
})

test.each<[string, () => Promise<unknown>, RegExp]>([
  ['fullyShard', () => fullyShard(null as never), /^fullyShard: module must be a Module, got null/],
  [
    'fullyShard',
    () => fullyShard(tower(), { mesh: 3 as never }),
    /mesh must be a DeviceMesh, got 3/,
  ],
  [
    'fullyShard',
    () => fullyShard(tower(), { reshardAfterForward: 'no' as never }),
    /reshardAfterForward must be true or false/,
  ],
  [
    'RowwiseParallel',
    async () => new RowwiseParallel(3 as never),
    /^RowwiseParallel: expected an object with options \(none\), got 3/,
  ],
  [
    'a schedule',
    async () =>
      new ScheduleGPipe(pipeline(tower(), { stages: 1, devices: ['reference'] }) as never, {
        microBatches: 1,
      }),
    /^ScheduleGPipe: pipe must be what await pipeline\(…\) returns, got /,
  ],
  ['replicate', () => replicate((() => 1) as never), /^replicate: module must be a Module/],
  ['replicate', () => replicate(tower(), { mesh: {} as never }), /mesh must be a DeviceMesh/],
  ['initDeviceMesh', () => initDeviceMesh([2] as never, [2]), /deviceType must be one of 'webgpu'/],
  [
    'initDeviceMesh',
    () => initDeviceMesh('reference', 2 as never),
    /meshShape must be a list of sizes/,
  ],
  [
    'initDeviceMesh',
    () => initDeviceMesh('reference', [2], { meshDimNames: 'x' as never }),
    /meshDimNames must be a list of texts, got "x"/,
  ],
])('%s refuses what it cannot use, %#', async (_, call, message) => {
  // With a group, so that no error comes from its absence.
  const [got] = await errorsOf(call)
  expect(got).toMatch(message)
})
