import { describe, expect, test } from 'vitest'
import { GradScaler } from '../../../src/entries/amp.ts'
import {
  loadCheckpoint,
  packCheckpoint,
  type Stateful,
  saveCheckpoint,
  unpackCheckpoint,
} from '../../../src/entries/checkpoint.ts'
import {
  DataLoader,
  DistributedSampler,
  hostTensor,
  TensorDataset,
} from '../../../src/entries/data.ts'
import {
  compile,
  getRngState,
  load,
  type SavedState,
  save,
  TabringError,
  tensorType,
} from '../../../src/entries/index.ts'
import { Linear, type LoadableState, Sequential } from '../../../src/entries/nn.ts'
import * as lrScheduler from '../../../src/entries/optim/lr-scheduler.ts'
import { AdamW, ExponentialMovingAverage, SGD } from '../../../src/entries/optim.ts'
import { seenFolder } from '../../support/checkpoint-folders.ts'
import { ringOf } from '../../support/process-ring.ts'
import { updateStep } from '../../support/update-step.ts'

// A load that fails changes no part.

/** One of every kind of part, whose numbers differ from those of another `lr`. */
function partsOf(lr: number) {
  const model = new Linear(2, 2)
  const optimizer = new SGD(model.parameters(), { lr, momentum: 0.5 })
  const samples = new TensorDataset({ x: hostTensor([4, 1], new Float32Array(4)) })
  const sampler = new DistributedSampler(samples, { numReplicas: 2, rank: 0 })
  sampler.setEpoch(8 * lr)
  const loader = new DataLoader(samples)
  loader.setEpoch(8 * lr)
  const exponential = new lrScheduler.ExponentialLR(optimizer, lr)
  const scheduler = new lrScheduler.SequentialLR(optimizer, [exponential], [])
  const plateau = new lrScheduler.ReduceLROnPlateau(optimizer, { factor: lr })
  const scaler = new GradScaler({ initScale: lr })
  const ema = new ExponentialMovingAverage(model.parameters())
  return { model, optimizer, sampler, loader, scheduler, plateau, scaler, ema }
}

type Parts = ReturnType<typeof partsOf>

const statesOf = async (parts: Parts) =>
  Object.fromEntries(
    await Promise.all(
      Object.entries(parts).map(async ([name, part]) => [name, await part.stateDict()]),
    ),
  )

/** What is wrong with each part's state in a file. */
const damage: Record<keyof Parts, (state: never) => void> = {
  model: (state: { bias: SavedState }) => {
    state.bias = { shape: [1], data: Float32Array.of(1) }
  },
  optimizer: (state: { param_groups: unknown[] }) => {
    state.param_groups = []
  },
  sampler: (state: { epoch: number }) => {
    state.epoch = -1
  },
  loader: (state: { batches: number }) => {
    state.batches = -1
  },
  scheduler: (state: { _schedulers: SavedState[] }) => {
    state._schedulers = [{}]
  },
  plateau: (state: { best: string }) => {
    state.best = 'none'
  },
  scaler: (state: { scale: string }) => {
    state.scale = 'large'
  },
  ema: (state: { num_updates: number }) => {
    state.num_updates = -1
  },
}

/** The file of a run, with one of its states changed. */
async function damaged(name: keyof Parts): Promise<Uint8Array<ArrayBuffer>> {
  const states = load(await packCheckpoint({ ...partsOf(0.5), epoch: 3 }))
  damage[name](states[name] as never)
  return save(states)
}

test('all parts change when the file is whole', async () => {
  const [file, expected] = [await packCheckpoint(partsOf(0.5)), await statesOf(partsOf(0.5))]
  const parts = partsOf(0.25)
  await unpackCheckpoint(file, parts)
  const { model: _, ...others } = await statesOf(parts)
  expect(expected).toMatchObject(others)
})

test.each(Object.keys(damage) as (keyof Parts)[])(
  'no part changes when the state of %s is wrong',
  async (name) => {
    const parts = partsOf(0.25)
    const [before, random] = [await statesOf(parts), getRngState()]
    const loading = unpackCheckpoint(await damaged(name), parts)
    await expect(loading).rejects.toBeInstanceOf(TabringError)
    expect(await statesOf(parts)).toEqual(before)
    expect(getRngState()).toEqual({ ...random, nextStream: expect.any(Number) })
  },
)

test("no part changes when the loadStateDict of a user's part throws", async () => {
  const failing = (): Stateful => ({
    stateDict: () => ({}),
    loadStateDict() {
      throw new Error('of the user')
    },
  })
  const file = await packCheckpoint({ ...partsOf(0.5), last: failing() })
  const parts = partsOf(0.25)
  const before = await statesOf(parts)
  const loading = unpackCheckpoint(file, { ...parts, last: failing() })
  await expect(loading).rejects.toThrow('of the user')
  expect(await statesOf(parts)).toEqual(before)
})

test('an overridden loadStateDict is the one that loads', async () => {
  class Renamed extends Linear {
    override loadStateDict(state: LoadableState) {
      return super.loadStateDict({ weight: state['weight'], bias: state['shift'] })
    }
  }
  const model = new Renamed(1, 1)
  const { weight, bias } = await model.stateDict()
  const old = { stateDict: () => ({ weight, shift: bias }), loadStateDict: () => undefined }
  await unpackCheckpoint(await packCheckpoint({ model: old }), { model })
  expect((await model.stateDict())['bias']).toEqual(bias)
})

test('no rank loads when one of them cannot', async () => {
  const groups = await ringOf(2)
  const folder = seenFolder()
  await saveCheckpoint({ model: new Linear(2, 2) }, { folder })
  const models = [new Linear(2, 2), new Linear(2, 3)]
  const before = await models[0].stateDict()
  const loads = models.map((model, i) =>
    loadCheckpoint({ model }, { folder, processGroup: groups[i] }),
  )
  const reason = '"weight" must be [3, 2], got [2, 2]'
  const ends = await Promise.allSettled(loads)
  expect(ends.map((end) => end.status === 'rejected' && end.reason.message)).toEqual([
    expect.stringContaining(`rank 1: loadStateDict: ${reason}`),
    expect.stringContaining(`loadStateDict: ${reason}`),
  ])
  expect(await models[0].stateDict()).toEqual(before)
  for (const group of groups) group.destroy()
})

const text = (call: string) => `${call}: a step ran at the same time`

/** A model, what trains it, and a run of one step. */
async function trainingOn(device: 'cpu' | 'reference') {
  const model = new Sequential(...Array.from({ length: 20 }, () => new Linear(2, 2)))
  const optimizer = new AdamW(model.parameters())
  const program = await compile(
    updateStep(optimizer, ({ x }) => model.forward(x).sum()),
    { x: tensorType([1, 2]) },
    { device },
  )
  return { model, optimizer, step: () => program.run({ x: Float32Array.of(1, 2) }) }
}

test('loadCheckpoint changes no part when steps are under way', async () => {
  const folder = seenFolder()
  const { step, ...parts } = await trainingOn('reference')
  await saveCheckpoint(parts, { folder })
  const steps = Array.from({ length: 50 }, step)
  await expect(loadCheckpoint(parts, { folder })).rejects.toThrow(text('loadCheckpoint'))
  await Promise.all(steps)
  const { state } = await parts.optimizer.stateDict()
  expect(state[0]?.step).toBe(50)
})

describe.each(['cpu', 'reference'] as const)('on %s', (device) => {
  const training = () => trainingOn(device)

  test('saveCheckpoint and loadCheckpoint throw when a step runs at the same time', async () => {
    const folder = seenFolder()
    const { step, ...parts } = await training()
    await step()
    // Between the other parts, as a call that is not awaited.
    const between: Stateful = {
      stateDict: () => step().then(() => null),
      loadStateDict: () => step(),
    }
    await expect(saveCheckpoint({ between, ...parts }, { folder })).rejects.toThrow(
      text('saveCheckpoint'),
    )
    expect(folder.written).toEqual([])
    await saveCheckpoint({ between: { ...between, stateDict: () => null }, ...parts }, { folder })
    await expect(loadCheckpoint({ between, ...parts }, { folder })).rejects.toThrow(
      text('loadCheckpoint'),
    )
  })

  test('saveCheckpoint saves the state after the steps that are under way, or throws', async () => {
    const folder = seenFolder()
    const { step, ...parts } = await training()
    const steps = [step(), step()]
    const saving = saveCheckpoint(parts, { folder })
    // The device cpu reads behind what it was given, as a GPU does.
    if (device === 'reference') {
      await expect(saving).rejects.toThrow(text('saveCheckpoint'))
      await Promise.all(steps)
      return
    }
    await Promise.all([saving, ...steps])
    const { model, optimizer } = await training()
    await loadCheckpoint({ model, optimizer }, { folder })
    expect(await model.stateDict()).toEqual(await parts.model.stateDict())
    expect(await optimizer.stateDict()).toEqual(await parts.optimizer.stateDict())
  })
})
