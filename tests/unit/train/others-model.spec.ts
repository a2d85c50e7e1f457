import { expect, test } from 'vitest'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { OwnRows } from '../../../src/trainer/evaluate/own-rows.ts'
import type { Draws, ShareBatch } from '../../../src/trainer/evaluate/share-batches.ts'
import { planDraws } from '../../../src/trainer/evaluate/share-batches.ts'
import { VirtualWorkers } from '../../../src/trainer/evaluate/virtual-workers.ts'
import type { QueryContext, Task } from '../../../src/trainer/settings/task.ts'
import { ModelQueries, type Queried } from '../../../src/trainer/watch/model-queries.ts'
import { startTask, type TaskRank } from '../../support/task-ranks.ts'

/** Its query waits for a turn. */
const task = {
  meta: { title: 'a test' },
  queries: {
    waits: async ({ stateDict }: QueryContext) => {
      await stateDict()
      return { isDone: true }
    },
  },
} as unknown as Task

const steps = 12
const config = { demo: 'playground', steps, batchSize: 24, bucketCapMb: 1 } as const
const open = () => new ReferenceRuntime()

const boundary = async ({ trainer }: TaskRank, whose: 'all' | 'others') => {
  const { step, probabilities } = await trainer.query('boundary', { side: 6 }, whose)
  return { step, values: [...(probabilities as Float32Array)] }
}

/** Asks until the model of the others has caught up with the run. */
async function caughtUp(rank: TaskRank) {
  for (;;) {
    const answer = await boundary(rank, 'others')
    if (answer.step === steps) return answer.values
    await new Promise((resolve) => setTimeout(resolve, 5))
  }
}

test.each(['shuffled', 'own-slice'] as const)(
  '%s: OthersModel is what the other of two ranks trains alone when it is asked, and changes no bits',
  async (partition) => {
    const alone = await startTask(2, { ...config, partition, strategy: 'alone' }, open)
    await Promise.all(alone.ranks.map(({ end }) => end))
    const wanted = await Promise.all(alone.ranks.map((rank) => boundary(rank, 'all')))
    alone.close()

    const quiet = await startTask(2, { ...config, partition }, open)
    const results = await Promise.all(quiet.ranks.map(({ end }) => end))
    quiet.close()

    const { ranks, close } = await startTask(2, { ...config, partition }, open)
    await ranks[0].until('step')
    // While the run trains, too.
    const early = await boundary(ranks[0], 'others')
    expect(early.step).toBeLessThan(steps)
    const ends = await Promise.all(ranks.map(({ end }) => end))
    expect(ends.map(({ paramHash }) => paramHash)).toEqual(
      results.map(({ paramHash }) => paramHash),
    )
    for (const [rank, other] of [1, 0].entries()) {
      const values = await caughtUp(ranks[rank])
      const all = await boundary(ranks[rank], 'all')
      for (const [i, value] of values.entries())
        expect(value).toBeCloseTo(wanted[other].values[i], 5)
      // Not the run's own.
      expect(
        Math.max(...values.map((value, i) => Math.abs(value - all.values[i]))),
      ).toBeGreaterThan(0.005)
    }
    close()
  },
)

test('Trainer answers with its part of the newest step when it has ended', async () => {
  const { ranks, close } = await startTask(2, config, open)
  await Promise.all(ranks.map(({ end }) => end))
  const parts = await Promise.all(ranks.map(({ trainer }) => trainer.query('part', null)))
  close()
  for (const part of parts) expect(part).toMatchObject({ ofStep: steps, globalCount: 24 })
  const own = parts.flatMap(({ points }) => [...(points as Uint32Array)])
  expect(parts.map(({ count }) => count)).toEqual([12, 12])
  expect(new Set(own).size).toBe(24)
})

test('OthersModel refuses when ranks do not train one model together', async () => {
  const { ranks, close } = await startTask(2, { ...config, strategy: 'alone' }, open)
  await ranks[0].until('step')
  await expect(ranks[0].trainer.query('boundary', { side: 6 }, 'others')).rejects.toMatchObject({
    code: 'config.invalid',
  })
  close()
})

test.each(['shuffled', 'own-slice'] as const)(
  '%s: Draws gives each sample once when own and others are put together',
  (partition) => {
    const settings = { seed: 3, batchSize: 7, partition }
    for (const epoch of [0, 1]) {
      for (let inEpoch = 0; inEpoch < 4; inEpoch++) {
        const all = [0, 1, 2].map((rank) => {
          const draws = planDraws(settings, 25, rank, 3)
          const { own, share, globalCount } = draws.take(epoch, inEpoch)
          const others = draws.others(epoch, inEpoch, share)
          const both = [...own, ...others].sort((a, b) => a - b)
          expect(both).toHaveLength(globalCount)
          return both
        })
        expect(all[1]).toEqual(all[0])
        expect(all[2]).toEqual(all[0])
        expect(new Set(all[0]).size).toBe(all[0].length)
      }
    }
  },
)

test('OwnRows has the rows of a step when groups follow, steps are done again, and before the rank came', () => {
  const settings = { seed: 0, batchSize: 8, partition: 'shuffled', virtualWorkers: 4 } as const
  const two: Draws = planDraws(settings, 40, 1, 2)
  const four = new VirtualWorkers(settings, 40, 0, 4).draws
  const rows = new OwnRows()
  const took = (stepsDone: number, firstRow: number, count: number, draws = two) =>
    rows.took(stepsDone, draws, { firstRow, rows: count } as ShareBatch)
  const batch = (step: number) => [...two.others(0, step, { offset: 0, rows: 0 })]
  took(2, 4, 4)
  took(3, 4, 4)
  took(4, 0, 2, four)
  expect([...rows.others(0)]).toEqual(batch(0))
  expect([...rows.others(2)]).toEqual(batch(2).slice(0, 4))
  expect([...rows.others(3)]).toEqual(batch(3).slice(0, 4))
  expect([...rows.others(4)]).toEqual(batch(4).slice(2))
  took(3, 2, 2, four)
  expect([...rows.others(2)]).toEqual(batch(2).slice(0, 4))
  expect([...rows.others(3)]).toEqual([...batch(3).slice(0, 2), ...batch(3).slice(4)])
  expect([...rows.others(4)]).toEqual([...batch(4).slice(0, 2), ...batch(4).slice(4)])
})

test('OwnRows has no rows when the rank has taken no step', () => {
  expect(() => new OwnRows().ofStep).toThrow('there is no model yet')
  expect(() => new OwnRows().others(0)).toThrow('there is no model yet')
})

test('OwnRows frees the orders of earlier groups when they are not asked for', () => {
  const settings = { seed: 0, batchSize: 8, partition: 'shuffled' } as const
  const forgotten: string[] = []
  const drawsOf = (name: string): Draws => ({
    ...planDraws(settings, 40, 0, 2),
    forget: () => forgotten.push(name),
  })
  const [a, b] = [drawsOf('a'), drawsOf('b')]
  const rows = new OwnRows()
  const took = (stepsDone: number, draws: Draws) =>
    rows.took(stepsDone, draws, { firstRow: 0, rows: 4 } as ShareBatch)
  took(0, a)
  took(2, b)
  expect(forgotten).toEqual(['a'])
  rows.others(0)
  rows.others(1)
  expect(forgotten).toEqual(['a'])
  rows.others(2)
  expect(forgotten).toEqual(['a', 'a'])
})

test('ModelQueries leaves what waits for another model when it is destroyed', async () => {
  const run = new ModelQueries(task)
  const model = { stateDict: async () => ({}) }
  const answered = { model, isWhole: true } as unknown as Queried
  await run.gaps.close()
  run.begin(answered)
  const others = new ModelQueries(task, run.gaps)
  others.begin(answered)
  const [own, its] = [run, others].map((one) => one.ask('waits', null))
  others.destroy()
  await expect(its).rejects.toThrow('there is no model yet')
  run.gaps.open()
  expect(await own).toMatchObject({ isDone: true })
})
