import { expect, test } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { meta } from '../../../demos/playground/meta.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { synchronizeStates } from '../../../src/trainer/loop/run-groups.ts'
import { type Agreed, Changes } from '../../../src/trainer/saves/changes.ts'
import { beginning, type KeptState, KeptStates } from '../../../src/trainer/saves/kept-states.ts'
import { type Change, maxChanges } from '../../../src/trainer/settings/changes.ts'
import { RunLog } from '../../../src/trainer/watch/run-log.ts'
import { ringOf } from '../../support/process-ring.ts'

/** Each rank hears itself alone. */
const alone = {
  ranks: [0],
  allGatherBytes: async (bytes: Uint8Array) => [bytes],
} as unknown as ProcessGroup

/** The changes of a run with a learning rate of 0.02, what is reported of them, and the log of that. */
function changesOfRun() {
  const reported: Change[] = []
  const log = new RunLog()
  const changes = new Changes(
    parseTrainConfig({ demo: 'playground', lr: 0.02 }),
    meta,
    (change) => {
      reported.push(change)
      log.add({ event: 'changed', ...change })
    },
  )
  const agree = (step: number, key: string, value: number) => {
    changes.ask(key, value)
    return changes.agree(alone, step)
  }
  const logged = () => log.file({}, null).changes.map(({ step, to }) => [step, to])
  return { changes, reported, agree, logged }
}

test('Changes keeps the rate when the pace changes often, of which it keeps the newest value', async () => {
  const { changes, agree, logged } = changesOfRun()
  await agree(3, 'lr', 0.5)
  for (let i = 1; i <= 2 * maxChanges; i++) await agree(3 + i, 'maxStepsPerSec', i)
  expect(changes.at('lr', 2000)).toBe(0.5)
  expect(changes.at('maxStepsPerSec', 2000)).toBe(2 * maxChanges)
  expect(changes.brought.changes).toHaveLength(2)
  expect(logged()).toEqual([[4, 0.5]])
})

test('Changes refuses a rate when it has changed too often', async () => {
  const { changes, agree } = changesOfRun()
  for (let i = 1; i <= maxChanges; i++) await agree(i, 'lr', 1 / i)
  expect(() => changes.ask('lr', 2)).toThrow('change: lr has changed 256 times in this run')
  expect(changes.at('lr', 2)).toBe(1)
  changes.ask('maxStepsPerSec', 2)
})

test('Changes forgets later values when ranks agree after the run went back', async () => {
  const { changes, reported, agree, logged } = changesOfRun()
  await agree(9, 'lr', 0.5)
  await agree(19, 'lr', 0.25)
  await agree(14, 'lr', 0.1)
  await agree(14, 'lr', 0.125)
  expect([9, 10, 14, 15, 20].map((step) => changes.at('lr', step))).toEqual([
    0.02, 0.5, 0.5, 0.125, 0.125,
  ])
  expect(reported.map(({ step, to }) => [step, to])).toEqual([
    [10, 0.5],
    [20, 0.25],
    [15, 0.1],
    [15, 0.125],
  ])
  expect(logged()).toEqual([
    [10, 0.5],
    [15, 0.125],
  ])
  // The first one of all, too: what held before it stays.
  await agree(9, 'lr', 0.02)
  expect([9, 10, 20].map((step) => changes.at('lr', step))).toEqual([0.02, 0.02, 0.02])
})

test('Changes reports the value that holds when the list of all lacks one that was agreed on here', async () => {
  const { changes, reported, agree, logged } = changesOfRun()
  await agree(9, 'lr', 0.5)
  changes.take({ version: 0, changes: [] })
  expect(reported.at(-1)).toMatchObject({ step: 10, key: 'lr', from: 0.5, to: 0.02 })
  expect(changes.at('lr', 30)).toBe(0.02)
  expect(logged()).toEqual([[10, 0.02]])
})

/** The list that two ranks with the state of step 7 and a newcomer settle. */
async function settledOf(lists: readonly Agreed[]) {
  const groups = await ringOf(lists.length)
  const ends = groups.map(async (group, rank) => {
    const kept = new KeptStates()
    const state = { progress: { ...beginning, step: 7 }, model: {}, optimizer: {} }
    if (rank < 2) kept.add(state as unknown as KeptState)
    const counts = { suspect: 0, losses: 0, faults: 0, wentBackTo: 0 }
    const own = { ...counts, hasGiven: false, hasOtherRanks: false, agreed: lists[rank] }
    return synchronizeStates(group, kept, own, false)
  })
  const settled = await Promise.allSettled(ends)
  for (const group of groups) group.destroy()
  return settled.map((one) => (one.status === 'fulfilled' ? one.value.agreed : String(one.reason)))
}

const listOf = (version: number, step: number, to: number): Agreed => ({
  version,
  changes: [{ step, key: 'lr', from: 0.02, to }],
})

test('synchronizeStates takes the newest list when ranks that have the state differ, and none of a newcomer', async () => {
  // The newest one is of a run that went back.
  const lists = [listOf(2, 5, 0.5), listOf(1, 9, 0.25), listOf(9, 8, 0.1)]
  expect(await settledOf(lists)).toEqual([lists[0], lists[0], lists[0]])
})

test('synchronizeStates leaves out a list when it has a step that the run cannot have come to', async () => {
  const lists = [listOf(2, Number.MAX_SAFE_INTEGER, 0.5), listOf(1, 5, 0.25), listOf(0, 5, 0.1)]
  expect(await settledOf(lists)).toEqual([lists[1], lists[1], lists[1]])
})

test('synchronizeStates names the rank when it brings a value that the setting cannot have', async () => {
  const lists = [listOf(1, 5, 0.5), listOf(1, 5, -1), listOf(0, 5, 0.1)]
  for (const end of await settledOf(lists))
    expect(end).toContain('what the ranks have kept: rank 1 sent')
})
