import { describe, expect, test } from 'vitest'
import { loadCheckpoint, saveCheckpoint } from '../../../src/ddp/checkpoint/checkpoint.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../../src/graph/functions/losses.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import { Sequential, type StateDict } from '../../../src/nn/module.ts'
import { Adam } from '../../../src/optim/adam.ts'
import { clipGradNorm } from '../../../src/optim/clip.ts'
import type { OptimizerStateDict } from '../../../src/optim/state-dict.ts'
import { pipeline } from '../../../src/parallel/pipeline/pipe.ts'
import { Schedule1F1B } from '../../../src/parallel/pipeline/schedule.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { seenFolder } from '../../support/checkpoint-folders.ts'
import { ifMember } from '../../support/members.ts'
import { onRanks, resultOf } from '../../support/ranks-of-one.ts'

// Ranks of one process, on the CPU, over real message channels.

const batch = 12
const types = { x: tensorType([batch, 6]), y: tensorType([batch], 'i32') }
const inputs = {
  x: Float32Array.from({ length: batch * 6 }, (_, i) => Math.sin(i * 1.7)),
  y: Int32Array.from({ length: batch }, (_, i) => (i * 7) % 3),
}

/** The same model with the same weights on every rank; making it is synchronous, so ranks do not mix their draws. */
function makeModel(): Sequential {
  manualSeed(7)
  return new Sequential(
    new Linear(6, 8),
    new BatchNorm1d(8),
    new ReLU(),
    new Linear(8, 8),
    new ReLU(),
    new Linear(8, 3),
  )
}

interface Saved {
  readonly model: StateDict
  readonly optimizer: OptimizerStateDict
}

/** Trains on `devices` for 5 steps, in micro-batches of 4 samples. */
async function train(devices: readonly string[], group?: ProcessGroup, from?: Saved) {
  const model = makeModel()
  const splitSpec = ['3', '5'].slice(0, devices.length - 1)
  const pipe = await pipeline(model, { splitSpec, devices })
  const schedule = new Schedule1F1B(pipe, { splitSize: 4, lossFn: crossEntropy })
  const optimizer = new Adam(model.parameters(), { lr: 0.01 })
  if (from) {
    model.loadStateDict(from.model)
    optimizer.loadStateDict(from.optimizer)
  }
  const step = await compile(
    ({ x, y }) => {
      optimizer.zeroGrad()
      const { loss } = schedule.step(x, y)
      clipGradNorm(model.parameters(), 0.5)
      optimizer.step()
      return { loss }
    },
    types,
    { device: 'reference', ...(group && { group }) },
  )
  const losses: number[] = []
  for (let i = 0; i < 5; i++) {
    const outputs: Partial<Record<string, ArrayLike<number>>> = await step.run(inputs)
    if (outputs.loss) losses.push(outputs.loss[0])
  }
  const saved: Saved = { model: await model.stateDict(), optimizer: await optimizer.stateDict() }
  const own = model.parameters().filter(({ isReleased }) => !isReleased)
  return { losses, saved, own: own.map(({ name }) => name), model, optimizer }
}

/** The same over ranks, each of which has a stage. */
const trainOn = async (size: number, from?: Saved) => {
  const devices = Array.from({ length: size }, (_, rank) => `rank:${rank}/reference`)
  return (await onRanks(size, (group) => train(devices, group, from))).map(resultOf)
}

describe('a pipeline over ranks', () => {
  test.each([2, 3])(
    'of %i trains to the bits of one; each holds its own part, and saves the whole',
    async (size) => {
      const one = await train(['reference'])
      const ranks = await trainOn(size)
      expect(ranks.map(({ losses }) => losses.length)).toEqual([...Array(size - 1).fill(0), 5])
      expect(ranks[size - 1].losses).toEqual(one.losses)
      expect(ranks.flatMap(({ own }) => own)).toEqual(one.own)
      for (const { own } of ranks) expect(own.length).toBeGreaterThan(0)
      for (const { saved } of ranks) expect(saved).toEqual(one.saved)
    },
  )

  test('a run saved on 2 ranks continues on 1 and on 3, and one saved on 1 on 2', async () => {
    const one = await train(['reference'])
    const [two] = await trainOn(2)
    const expected = await train(['reference'], undefined, one.saved)
    expect((await train(['reference'], undefined, two.saved)).saved).toEqual(expected.saved)
    for (const size of [2, 3]) {
      const ranks = await trainOn(size, size === 2 ? one.saved : two.saved)
      for (const { saved } of ranks) expect(saved).toEqual(expected.saved)
      expect(ranks[size - 1].losses).toEqual(expected.losses)
    }
  })
})

test('what is sent is what a tensor holds at that place of the step, whatever changes it later', async () => {
  const places = ['rank:0/reference', 'rank:1/reference']
  const ranks = (
    await onRanks(2, async (group) => {
      manualSeed(7)
      const norm = new BatchNorm1d(6)
      await norm.to(places[0])
      const optimizer = new Adam(norm.parameters(), { lr: 0.5 })
      const step = await compile(
        ({ x }) => {
          optimizer.zeroGrad()
          const before = norm.runningMean!.to(places[1]).add(0)
          const weight = norm.weight!.to(places[1]).add(0)
          const loss = norm.forward(x.to(places[0]).mul(norm.weight!)).square().sum()
          const after = norm.runningMean!.to(places[1]).mul(1)
          loss.backward()
          optimizer.step()
          return { before, after, weight }
        },
        { x: types.x },
        { device: 'reference', group },
      )
      const runs: Partial<Record<string, ArrayLike<number>>>[] = []
      for (let i = 0; i < 2; i++)
        runs.push(await step.run(group.rank === 0 ? { x: inputs.x } : ({} as never)))
      return { runs, mean: group.rank === 0 ? await norm.runningMean!.read() : undefined }
    })
  ).map(resultOf)
  const [first, second] = ranks[1].runs
  expect(first['before']).toEqual(new Float32Array(6))
  expect(first['weight']).toEqual(new Float32Array(6).fill(1))
  expect(second['before']).toEqual(first['after'])
  expect(second['weight']).not.toEqual(first['weight'])
  expect(second['after']).toEqual(ranks[0].mean)
})

test('a checkpoint of a pipeline on 2 ranks holds the whole model', async () => {
  const folder = seenFolder()
  const [saved] = (
    await onRanks(2, async (processGroup) => {
      const { model, optimizer, saved } = await train(
        ['rank:0/reference', 'rank:1/reference'],
        processGroup,
      )
      await saveCheckpoint({ model, optimizer, step: 5 }, { folder, processGroup })
      return saved
    })
  ).map(resultOf)
  const model = makeModel()
  const optimizer = new Adam(model.parameters(), { lr: 0.01 })
  expect(await loadCheckpoint({ model, optimizer }, { folder })).toMatchObject({ step: 5 })
  expect(await model.stateDict()).toEqual(saved.model)
  expect(await optimizer.stateDict()).toEqual(saved.optimizer)
})

describe('layers on ranks', () => {
  const forward =
    (first: Linear, last: Linear, device: string) => (given: Record<string, Tensor>) => ({
      y: last.forward(first.forward(given.x).to(device)),
    })
  const layers = async (places: readonly string[]) => {
    manualSeed(1)
    const both = [new Linear(6, 4), new Linear(4, 2)]
    for (const [i, layer] of both.entries()) await layer.to(places[i])
    return both
  }

  test('a rank that fails ends the step on its group, with its message, and no other group', async () => {
    const places = ['rank:0/reference', 'rank:1/reference']
    const ended = await onRanks(3, async (all) => {
      const group = ifMember(await all!.newGroup([0, 1]))
      let message = ''
      if (group) {
        const [first, last] = await layers(places)
        const make = forward(first, last, places[1])
        const step = await compile(make, { x: types.x }, { device: 'reference', group })
        const run = step.run(group.rank === 0 ? { x: new Float32Array(1) } : {})
        message = await run.then(String, (error: Error) => error.message)
      }
      const sum = Float32Array.of(1)
      await all!.allReduce(sum)
      return { message, sum: sum[0] }
    })
    const results = ended.map(resultOf)
    expect(results.map(({ sum }) => sum)).toEqual([3, 3, 3])
    const [zero, one] = results.map(({ message }) => message)
    expect(zero).toContain('input "x" must be a Float32Array of 72 elements')
    expect(one).toContain(`rank 0 failed in a step: ${zero}`)
  })

  test.each<[name: string, size: (rank: number) => number, texts: readonly string[]]>([
    [
      'does not compile on one rank, ends on all with its message',
      (rank) => (rank === 1 ? 0 : 12),
      [
        'compile: the step did not compile on rank 1: no samples',
        'no samples',
        'compile: the step did not compile on rank 1: no samples',
      ],
    ],
    [
      'differs between ranks, is refused on all before anything is sent',
      (rank) => (rank === 1 ? 11 : 12),
      Array(3).fill(
        'compile: ranks disagree about the step: transfer 0 from rank 0 to rank 1: f32[12, 4] on rank 0, transfer 0 from rank 0 to rank 1: f32[11, 4] on rank 1. Compile functions that send and receive the same.',
      ),
    ],
  ])('a step that %s', async (_, samplesOf, texts) => {
    const places = ['rank:0/reference', 'rank:1/reference']
    const ended = await onRanks(3, async (group) => {
      const [first, last] = await layers(places)
      const samples = samplesOf(group.rank)
      const bytesBefore = group.stats().payloadBytesSent
      const error = await compile(
        ({ x }) => {
          if (samples === 0) throw new RangeError('no samples')
          return forward(first, last, places[1])({ x })
        },
        { x: tensorType([samples, 6]) },
        { device: 'reference', group },
      ).catch(({ message }: Error) => message)
      await group.barrier()
      return { error, sentBytes: group.stats().payloadBytesSent - bytesBefore }
    })
    const all = ended.map(resultOf)
    expect(all.map(({ error }) => error)).toEqual(texts)
    for (const { sentBytes } of all) expect(sentBytes).toBeLessThan(5000)
  })

  test.each([
    [
      ['rank:0/reference', 'rank:1/reference'],
      0,
      'the step uses rank:0/reference, but has no group',
    ],
    [
      ['rank:0/reference', 'rank:2/reference'],
      2,
      'the step uses rank:2/reference, but the group has ranks 0 and 1',
    ],
    [
      ['rank:0/reference', 'reference'],
      2,
      'the step uses rank:0/reference and reference, which each rank has',
    ],
  ])('on %j of %i ranks are refused', async (places, size, text) => {
    const work = async (group: ProcessGroup | undefined) => {
      const [first, last] = await layers(places)
      const options = { device: 'reference', ...(group && { group }) } as const
      return compile(forward(first, last, places[1]), { x: types.x }, options)
    }
    const ended =
      size === 0 ? await Promise.allSettled([work(undefined)]) : await onRanks(size, work)
    for (const each of ended) expect((each as PromiseRejectedResult).reason.message).toContain(text)
  })
})
