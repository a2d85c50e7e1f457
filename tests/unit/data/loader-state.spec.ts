import { describe, expect, test } from 'vitest'
import type { HostTensor } from '../../../src/data/descriptions.ts'
import { DataLoader, type DataLoaderOptions } from '../../../src/data/loader/data-loader.ts'
import { DistributedSampler } from '../../../src/data/sampler.ts'
import {
  type Dataset,
  randomStreamOf,
  type Sample,
  type SampleKey,
} from '../../../src/data/samples.ts'
import { load, type SavedState, save } from '../../../src/data/saved-tree.ts'

/** 20 samples: y the number, x a draw. */
const drawn: Dataset<Sample> = {
  length: 20,
  get: (index: number, key: SampleKey) => ({
    x: { shape: [], data: Float32Array.of(randomStreamOf(key).unit()) },
    y: index,
  }),
}

type Options = DataLoaderOptions<Sample, Readonly<Record<string, HostTensor | readonly string[]>>>
const loaderOf = (options: Options = {}) =>
  new DataLoader<Sample>(drawn, { batchSize: 3, seed: 5, ...options })
const distributed = (options: object = {}) =>
  new DistributedSampler(drawn, { numReplicas: 2, rank: 1, seed: 9, ...options })
const textOf = (batch: Readonly<Record<string, unknown>>) =>
  ['x', 'y'].map((field) => [...(batch[field] as HostTensor).data].join()).join(' ')

async function epochOf(loader: DataLoader): Promise<string[]> {
  const batches: string[] = []
  for await (const batch of loader) batches.push(textOf(batch))
  return batches
}

const throughFile = (state: object) =>
  load(save({ state: state as SavedState })).state as unknown as ReturnType<DataLoader['stateDict']>

describe("a sampler's own epoch", () => {
  test('holds until its next setEpoch, as in PyTorch; without setEpoch the loader counts', async () => {
    const wanted: string[][] = []
    for (const epoch of [0, 1, 2, 7]) {
      const loader = loaderOf({ sampler: distributed() })
      loader.setEpoch(epoch)
      wanted.push(await epochOf(loader))
    }
    const counted = loaderOf({ sampler: distributed() })
    for (const epoch of [0, 1, 2]) {
      expect(counted.epoch).toBe(epoch)
      expect(await epochOf(counted)).toEqual(wanted[epoch])
    }

    const sampler = distributed()
    const loader = loaderOf({ sampler })
    sampler.setEpoch(7)
    expect(loader.epoch).toBe(7)
    for (let loop = 0; loop < 2; loop++) expect(await epochOf(loader)).toEqual(wanted[3])
    for (const epoch of [0, 0, 2]) {
      sampler.setEpoch(epoch)
      expect(await epochOf(loader)).toEqual(wanted[epoch])
    }
    loader.setEpoch(1)
    expect(sampler.epoch).toBe(1)
    expect(await epochOf(loader)).toEqual(wanted[1])
  })

  test('the epoch of a custom sampler is not set, unless setEpoch was called or it has indices(epoch)', async () => {
    const received: number[] = []
    const own = Object.assign([4, 2], { setEpoch: (epoch: number) => received.push(epoch) })
    const loader = loaderOf({ sampler: own })
    await epochOf(loader)
    expect(received).toEqual([])
    loader.setEpoch(6)
    expect(received).toEqual([6])
    const rolling = Object.assign([0, 1], { indices: (epoch: number) => [epoch, epoch + 1] })
    const counting = loaderOf({ sampler: rolling, batchSize: 2 })
    const labels = [await epochOf(counting), await epochOf(counting)]
    expect(labels.map(([batch]) => batch.split(' ')[1])).toEqual(['0,1', '1,2'])
  })
})

describe('stateDict and loadStateDict', () => {
  const makers: [string, () => Options][] = [
    ['shuffle', () => ({ shuffle: true })],
    ['in order, short batches dropped', () => ({ dropLast: true })],
    ['a sampler that the loader counts', () => ({ sampler: distributed() })],
  ]

  test.each(makers)('%s: from every batch on, the same ones follow', async (_, options) => {
    const whole = loaderOf(options())
    const all = [await epochOf(whole), await epochOf(whole), await epochOf(whole)]
    for (let stop = 0; stop < all[1].length; stop++) {
      const first = loaderOf(options())
      await epochOf(first)
      let seen = 0
      for await (const _ of first) {
        if (seen++ < stop) continue
        const state = throughFile(first.stateDict())
        expect(state).toMatchObject({ epoch: 1, batches: stop + 1 })
        const second = loaderOf(options())
        second.loadStateDict(state)
        expect(second.epoch).toBe(1)
        expect(throughFile(second.stateDict())).toEqual(state)
        expect(await epochOf(second)).toEqual(all[1].slice(stop + 1))
        expect(await epochOf(second)).toEqual(all[2])
        break
      }
    }
  })

  test('between epochs, and after setEpoch with the same or another epoch', async () => {
    const whole = loaderOf({ shuffle: true })
    const all = [await epochOf(whole), await epochOf(whole), await epochOf(whole)]
    const first = loaderOf({ shuffle: true })
    await epochOf(first)
    const between = first.stateDict()
    expect(between).toMatchObject({ epoch: 1, batches: 0 })
    const second = loaderOf({ shuffle: true })
    second.loadStateDict(between)
    expect(await epochOf(second)).toEqual(all[1])

    for await (const _ of first) break
    expect(first.stateDict()).toMatchObject({ epoch: 2, batches: 0 })
    const middle = { ...between, batches: 4 }
    second.loadStateDict(middle)
    second.setEpoch(1)
    expect(await epochOf(second)).toEqual(all[1].slice(4))
    second.loadStateDict(middle)
    second.setEpoch(2)
    expect(await epochOf(second)).toEqual(all[2])
    second.setEpoch(1)
    expect(await epochOf(second)).toEqual(all[1])
  })

  test("a sampler's epoch is set before each loop, the resumed one too", async () => {
    const train = async (from: ReturnType<DataLoader['stateDict']> | undefined, stopAt: number) => {
      const sampler = distributed()
      const loader = loaderOf({ sampler })
      if (from) loader.loadStateDict(from)
      const seen: string[] = []
      for (let epoch = loader.epoch; epoch < 3; epoch++) {
        sampler.setEpoch(epoch)
        for await (const batch of loader) {
          seen.push(textOf(batch))
          if (seen.length === stopAt) return { seen, state: throughFile(loader.stateDict()) }
        }
      }
      return { seen, state: loader.stateDict() }
    }
    const whole = await train(undefined, Number.POSITIVE_INFINITY)
    expect(whole.seen).toHaveLength(12)
    for (let stop = 1; stop < 12; stop++) {
      const { seen, state } = await train(undefined, stop)
      const rest = await train(state, Number.POSITIVE_INFINITY)
      expect([...seen, ...rest.seen]).toEqual(whole.seen)
    }
  })

  test('a sampler that draws its own orders gives its state of the beginning of the epoch', async () => {
    const rolling = () => {
      let turn = 0
      return {
        length: 20,
        *[Symbol.iterator]() {
          turn++
          for (let i = 0; i < 20; i++) yield (i * 7 + turn) % 20
        },
        stateDict: () => ({ turn }),
        loadStateDict: (state: { turn: number }) => {
          turn = state.turn
        },
      }
    }
    const whole = loaderOf({ sampler: rolling() })
    const all = [await epochOf(whole), await epochOf(whole), await epochOf(whole)]
    const first = loaderOf({ sampler: rolling() })
    await epochOf(first)
    for await (const _ of first) {
      const second = loaderOf({ sampler: rolling() })
      second.loadStateDict(throughFile(first.stateDict()))
      expect([await epochOf(second), await epochOf(second)]).toEqual([all[1].slice(1), all[2]])
      break
    }
  })

  test.each<[string, Options]>([
    ['seed must be 6, got 5', { seed: 6 }],
    ['shuffle must be false, got true', { shuffle: false }],
    ['batchSize must be 2, got 3', { batchSize: 2 }],
    ['samples must be 10, got 20', { shuffle: false, sampler: distributed() }],
  ])('a state of other batches is refused: %s', (text, options) => {
    const saved = { ...loaderOf({ shuffle: true }).stateDict(), batches: 1 }
    const other = loaderOf({ shuffle: true, ...options })
    const settings = options.sampler ? { ...saved.settings, shuffle: false } : saved.settings
    expect(() => other.loadStateDict({ ...saved, settings })).toThrow(
      `DataLoader: the state's ${text}. Create the loader`,
    )
  })

  test('between epochs other batches may follow, as with another number of ranks', async () => {
    const ranks = (numReplicas: number) =>
      Array.from({ length: numReplicas }, (_, rank) =>
        loaderOf({ sampler: new DistributedSampler(drawn, { numReplicas, rank, seed: 9 }) }),
      )
    const two = ranks(2)
    for (const loader of two) await epochOf(loader)
    const state = throughFile(two[0].stateDict())
    expect(state).toMatchObject({ epoch: 1, batches: 0 })
    for (const [rank, loader] of ranks(4).entries()) {
      loader.loadStateDict(state)
      const wanted = ranks(4)[rank]
      wanted.setEpoch(1)
      expect(await epochOf(loader)).toEqual(await epochOf(wanted))
    }
  })

  test('a state of another sampler, or of no epoch, is refused', () => {
    const saved = loaderOf({ sampler: distributed({ seed: 1 }) }).stateDict()
    expect(() => loaderOf({ sampler: distributed() }).loadStateDict(saved)).toThrow(
      "DistributedSampler: the state's seed must be 9, got 1",
    )
    const plain = loaderOf().stateDict()
    expect(() => loaderOf().loadStateDict({ ...plain, batches: -1 })).toThrow(/batches.*got -1/)
    expect(() => loaderOf().loadStateDict({ ...plain, epoch: 0.5 })).toThrow(/epoch.*got 0.5/)
  })
})

test('waitedMs is the time that the newest batch kept its consumer waiting', async () => {
  const pauses = [1, 400, 1]
  const slow: Dataset<Sample> = {
    length: 3,
    get: async (index) => {
      await new Promise((resolve) => setTimeout(resolve, pauses[index]))
      return { y: index }
    },
  }
  const waits: number[] = []
  const loader = new DataLoader<Sample>(slow)
  expect(loader.waitedMs).toBe(0)
  for await (const _ of loader) {
    waits.push(loader.waitedMs)
    await new Promise((resolve) => setTimeout(resolve, 30))
  }
  expect(waits[1]).toBeGreaterThan(398)
  for (const wait of [waits[0], waits[2]]) expect(wait).toBeLessThan(0.5 * waits[1])
})

test('a state of more batches than an epoch has is refused', () => {
  const loader = new DataLoader({ length: 3, get: () => ({ x: 1 }) })
  const state = loader.stateDict()
  loader.loadStateDict({ ...state, batches: 3 })
  expect(() => loader.loadStateDict({ ...state, batches: 99 })).toThrow(
    "DataLoader: the state's batches must be at most 3, the loader's, got 99.",
  )
})
