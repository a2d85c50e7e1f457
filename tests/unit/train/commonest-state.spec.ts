import { describe, expect, test } from 'vitest'
import { task } from '../../../demos/playground/demo.ts'
import { manifestName, readManifest } from '../../../src/data/checkpoint-folder.ts'
import { load } from '../../../src/data/saved-tree.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { commonestState, type HeldFile } from '../../../src/trainer/saves/commonest-state.ts'
import type { TrainConfigInput } from '../../../src/trainer/settings/config.ts'
import type { Task } from '../../../src/trainer/settings/task.ts'
import { runLogIn } from '../../../src/trainer/watch/run-log.ts'
import { type SeenFolder, seenFolder } from '../../support/checkpoint-folders.ts'
import { lossesOf, resultsOf, resumedOf, trainRanks } from '../../support/train-ranks.ts'

// Which checkpoint an exact run resumes from when the folders of its ranks hold different files.

/** `saved`: states in the order of their saves, with the ms at which this rank's clock says that they were saved. */
const files = (saved: Record<string, number>): HeldFile[] =>
  Object.entries(saved).map(([state, savedAtMs]) => ({ name: `${state}.file`, state, savedAtMs }))

describe('commonestState', () => {
  test.each<[string, Record<string, number>[], string | undefined, number]>([
    ['the newest that more than half have', [{ b: 2, c: 3 }, { a: 1, b: 2 }, { b: 2 }], 'b', 3],
    ['a newer one that 2 of 3 have', [{ b: 2, c: 3 }, { b: 2, c: 3 }, { b: 2 }], 'c', 2],
    ['without a majority the one that most have', [{ a: 1 }, { a: 1 }, { b: 2 }, {}, {}], 'a', 2],
    ['of single ones the newest', [{ a: 1 }, { b: 2 }, {}], 'b', 1],
    ['half is no majority', [{ a: 1, b: 2 }, { a: 1, b: 2 }, { a: 1 }, {}], 'a', 3],
    ['the order of a rank before clocks', [{ a: 900 }, { a: 1, b: 2 }, { b: 2 }], 'b', 2],
    ['nothing', [{}, {}], undefined, 0],
  ])('chooses %s', (_, held, state, holders) => {
    const found = commonestState(held.map(files))
    expect(found?.holders ?? 0).toBe(holders)
    const names = held.map((own) => (state && state in own ? `${state}.file` : undefined))
    if (state) expect(found?.names).toEqual(names)
  })
})

describe('an exact run', () => {
  const settings = {
    demo: 'playground',
    model: 'tanh-8-8',
    data: 'xor',
    batchSize: 24,
    bucketCapMb: 0.04,
    exact: true,
    virtualWorkers: 4,
  } as const
  const train = (folders: readonly SeenFolder[], input: TrainConfigInput) =>
    trainRanks(
      folders.length,
      { ...settings, ...input },
      () => new ReferenceRuntime(),
      (rank) => ({ folder: async () => folders[rank], run: `run of ${rank}` }),
      task as Task,
    )
  /** Folders of ranks that each saved the same run up to its step. */
  async function savedUpTo(...steps: number[]): Promise<SeenFolder[]> {
    const folders = steps.map(() => seenFolder())
    for (const step of new Set(steps)) {
      const own = folders.filter((_, rank) => steps[rank] === step)
      if (step > 0) resultsOf(await train(own, { steps: step, saves: 'auto', checkpointEvery: 3 }))
    }
    return folders
  }

  test('is saved by every rank, with equal states and logs, but once in a folder that ranks share', async () => {
    const [a, b] = await savedUpTo(4, 4)
    const manifests = await Promise.all([a, b].map(readManifest))
    const [first, second] = manifests.map((one) => one!.files.map((file) => file.stateHash))
    expect(first).toEqual(second)
    expect(first).toHaveLength(2)
    expect(new Set(first).size).toBe(2)
    const logs = [a, b].map(async ({ files }) => {
      const file = await files.get('step-4.safetensors')!.arrayBuffer()
      return runLogIn(load(new Uint8Array(file)).log)!
    })
    const [log, other] = await Promise.all(logs)
    expect(log).toEqual(other)
    expect(log.states.map(([step]) => step)).toEqual([0, 1, 2, 3])
    expect(log.groups).toMatchObject([{ step: 0, worldSize: 2 }])

    let turn: Promise<unknown> = Promise.resolve()
    // As tabs of one browser take turns.
    const withLock = <T>(work: () => Promise<T>): Promise<T> => {
      const done = turn.then(work)
      turn = done.catch(() => undefined)
      return done
    }
    const shared = { ...seenFolder(), withLock }
    resultsOf(await train([shared, shared], { steps: 4, saves: 'auto', checkpointEvery: 3 }))
    const written = shared.written.filter((name) => name !== manifestName)
    expect(written).toEqual(['step-3.safetensors', 'step-4.safetensors'])
  }, 60_000)

  test('resumes from the newest state that most ranks have, and says how many', async () => {
    const whole = await train([seenFolder(), seenFolder(), seenFolder()], { steps: 7 })
    const [{ paramHash }] = resultsOf(whole)
    // Rank 0 has the oldest files, then alone the newest, then none.
    for (const [steps, from, holders] of [
      [[2, 4, 4], 4, 2],
      [[5, 4, 4], 4, 2],
      [[0, 0, 4], 4, 1],
    ] as const) {
      const folders = await savedUpTo(...steps)
      const ends = await train(folders, { steps: 7, resume: 'latest' })
      for (const [rank, result] of resultsOf(ends).entries()) {
        expect(result.paramHash).toBe(paramHash)
        expect(lossesOf(ends[rank])).toEqual(lossesOf(whole[rank]).slice(from))
        expect(resumedOf(ends[rank])).toMatchObject([{ step: from, holders }])
      }
    }
  }, 120_000)

  test('continues the log of the state that it resumes to the bit, on ranks without the file too, else begins one', async () => {
    const folders = await savedUpTo(4, 4)
    const more = { steps: 6, resume: 'latest', saves: 'auto', checkpointEvery: 3 } as const
    const logIn = async ({ files }: SeenFolder) =>
      runLogIn(load(new Uint8Array(await files.get('step-6.safetensors')!.arrayBuffer())).log)!
    const three = [...folders, seenFolder()]
    resultsOf(await train(three, more))
    const log = await logIn(three[2])
    expect(log.states.map(([step]) => step)).toEqual([0, 1, 2, 3, 4, 5])
    expect(log.groups.map(({ worldSize }) => worldSize)).toEqual([2, 3])
    expect(log.config.resume).toBeUndefined()
    const changed = await savedUpTo(4, 4)
    resultsOf(await train(changed, { ...more, lr: 0.01 }))
    const other = await logIn(changed[1])
    expect(other.states.map(([step]) => step)).toEqual([4, 5])
    expect(other.config.resume).toBe('latest')
  }, 60_000)

  test('takes the next copy where the first is damaged, and names the damage where all are', async () => {
    const folders = await savedUpTo(4, 4)
    const damage = ({ files }: SeenFolder) => files.set('step-4.safetensors', new Blob(['no']))
    damage(folders[0])
    const ends = await train(folders, { steps: 5, resume: 'latest' })
    resultsOf(ends)
    expect(resumedOf(ends[0])[0].step).toBe(4)
    damage(folders[1])
    for (const { reason } of await train(folders, { steps: 5, resume: 'latest' }))
      expect(String(reason)).toContain('"step-4.safetensors" has changed since it was saved')
  }, 60_000)

  test('with exact off resumes from the latest file of rank 0', async () => {
    const folders = await savedUpTo(2, 4, 4)
    const ends = await train(folders, { steps: 5, resume: 'latest', exact: false })
    resultsOf(ends)
    expect(resumedOf(ends[1])[0]).toMatchObject({ step: 2 })
    expect(resumedOf(ends[1])[0]).not.toHaveProperty('holders')
  }, 60_000)
})
