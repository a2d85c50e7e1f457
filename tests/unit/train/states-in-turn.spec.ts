import { afterEach, expect, test } from 'vitest'
import { getCheckpoint } from '../../../src/data/checkpoint-folder.ts'
import { load } from '../../../src/data/saved-tree.ts'
import { loadCheckpoint, saveCheckpoint } from '../../../src/ddp/checkpoint/checkpoint.ts'
import { packCheckpoint } from '../../../src/ddp/checkpoint/checkpoint-file.ts'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { StepLR } from '../../../src/entries/optim/lr-scheduler.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import {
  type AccumulatedProgram,
  compileAccumulated,
} from '../../../src/graph/compile/compile-accumulated.ts'
import { mseLoss } from '../../../src/graph/functions/losses.ts'
import type { StepProgram } from '../../../src/graph/plan/step-program.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear } from '../../../src/nn/layers.ts'
import type { Module } from '../../../src/nn/module.ts'
import { Adam } from '../../../src/optim/adam.ts'
import { ExponentialMovingAverage } from '../../../src/optim/ema.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { seenFolder } from '../../support/checkpoint-folders.ts'
import { ringOf } from '../../support/process-ring.ts'
import { testRuntime } from '../../support/run-op.ts'

const programs: (StepProgram | AccumulatedProgram)[] = []
afterEach(() => {
  for (const program of programs.splice(0)) program.destroy()
})

const types = { x: tensorType([4, 3]), y: tensorType([4, 2]) }

async function training(group?: ProcessGroup, steps?: number) {
  manualSeed(5)
  const linear = new Linear(3, 2)
  const model: Module = group
    ? new DistributedDataParallel(linear, { processGroup: group, bucketCapMb: 1 })
    : linear
  const optimizer = new Adam(model.parameters(), { lr: 0.1 })
  const ema = new ExponentialMovingAverage(model.parameters(), { decay: 0.5 })
  const fn = ({ x, y }: Parameters<Parameters<typeof compile<typeof types, never>>[0]>[0]) => {
    const loss = mseLoss(model.forward(x), y)
    optimizer.zeroGrad()
    loss.backward()
    optimizer.step()
    ema.update()
    return { loss }
  }
  const runtime = await testRuntime()
  const program = await (steps
    ? compileAccumulated(fn, types, { runtime, steps })
    : compile(fn, types, { runtime }))
  programs.push(program)
  const scheduler = new StepLR(optimizer, 1, { gamma: 0.9 })
  const run = (i: number) => {
    const at = i + 10 * (group?.rank ?? 0)
    return program.run({
      x: Float32Array.from({ length: 12 }, (_, j) => Math.sin(at * 12 + j)),
      y: Float32Array.from({ length: 8 }, (_, j) => Math.cos(at * 8 + j)),
    })
  }
  const parts = { model, optimizer, ema, scheduler }
  return { run, parts, model, optimizer, ema, scheduler }
}

type Training = Awaited<ReturnType<typeof training>>

const statesOf = ({ model, optimizer, ema }: Training) =>
  Promise.all([
    model.stateDict(),
    optimizer.stateDict().then(({ state }) => state),
    ema.stateDict(),
  ])

/** The states after each of the steps, awaited. */
async function awaited({ run, ...of }: Training, steps: number) {
  const states = [await statesOf({ run, ...of })]
  for (let i = 0; i < steps; i++) {
    await run(i)
    states.push(await statesOf({ run, ...of }))
  }
  return states
}

/** As `awaited`, where nothing is: five runs, the states, and three more runs. */
async function inOneGo({ run, ...of }: Training) {
  const runs = [0, 1, 2, 3, 4].map(run)
  const read = statesOf({ run, ...of })
  const later = [5, 6, 7].map(run)
  const states = await read
  await Promise.all([...runs, ...later])
  return [states, await statesOf({ run, ...of })]
}

test('states are those between the runs that were called before and after, awaited or not', async () => {
  const states = await awaited(await training(), 8)
  expect(await inOneGo(await training())).toEqual([states[5], states[8]])
  const accumulated = await awaited(await training(undefined, 2), 8)
  expect(await inOneGo(await training(undefined, 2))).toEqual([accumulated[5], accumulated[8]])
})

test('states are of one step on every rank when ranks await nothing', async () => {
  const onRanks = async <T>(each: (training: Training) => Promise<T>) => {
    const groups = await ringOf(2)
    const trainings = await Promise.all(groups.map((group) => training(group)))
    const all = await Promise.all(trainings.map(each))
    for (const group of groups) group.destroy()
    return all
  }
  const [states] = await onRanks((one) => awaited(one, 8))
  for (const own of await onRanks(inOneGo)) expect(own).toEqual([states[5], states[8]])
})

test('a checkpoint is of the step before it when runs and schedules go on meanwhile', async () => {
  const first = await training()
  const folder = seenFolder()
  for (const i of [0, 1, 2]) {
    await first.run(i)
    first.scheduler.step()
  }
  const file = load(await packCheckpoint({ ...first.parts, step: 3 }))
  const second = await training()
  for (const i of [0, 1, 2]) {
    await second.run(i)
    second.scheduler.step()
  }
  const saved = saveCheckpoint({ ...second.parts, step: 3 }, { folder })
  const packed = packCheckpoint({ ...second.parts, step: 3 })
  const running = second.run(3)
  second.scheduler.step()
  await Promise.all([saved, packed, running])
  const random = { checkpoint: expect.anything() }
  expect(load(await packed)).toEqual({ ...file, ...random })
  expect(load((await getCheckpoint(folder, 'latest'))!)).toEqual({
    ...file,
    ...random,
  })
  const third = await training()
  const loading = loadCheckpoint(third.parts, { folder })
  await third.run(3)
  await loading
  expect(await statesOf(third)).toEqual(await statesOf(second))
})

test('a part of a user’s class is saved with the others when it reads its models late', async () => {
  const one = await training()
  class Pair {
    async stateDict() {
      await Promise.resolve()
      return { model: await one.model.stateDict() }
    }
    loadStateDict() {
      return undefined
    }
  }
  await one.run(0)
  const before = await one.model.stateDict()
  const packed = packCheckpoint({ pair: new Pair(), optimizer: one.optimizer })
  await one.run(1)
  expect(load(await packed)['pair']).toEqual({ model: before })
})

test('each run has the learning rate of its call when nothing is awaited', async () => {
  const first = await training()
  const second = await training()
  for (const i of [0, 1, 2, 3, 4, 5]) {
    await first.run(i)
    first.scheduler.step()
  }
  const runs = [0, 1, 2, 3, 4, 5].map((i) => {
    const run = second.run(i)
    second.scheduler.step()
    return run
  })
  await Promise.all(runs)
  expect(await statesOf(second)).toEqual(await statesOf(first))
})

test('a state that is loaded changes no run that was called before', async () => {
  const states = await awaited(await training(), 8)
  const one = await training()
  const model = await one.model.stateDict()
  const optimizer = await one.optimizer.stateDict()
  const ema = await one.ema.stateDict()
  const runs = [0, 1, 2, 3, 4].map(one.run)
  const before = statesOf(one)
  one.model.loadStateDict(model)
  one.optimizer.loadStateDict(optimizer)
  one.ema.loadStateDict(ema)
  const later = [0, 1].map(one.run)
  expect(await before).toEqual(states[5])
  await Promise.all([...runs, ...later])
  expect(await statesOf(one)).toEqual(states[2])
})
