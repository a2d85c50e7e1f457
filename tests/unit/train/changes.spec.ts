import { expect, test } from 'vitest'
import { getCheckpoint } from '../../../src/data/checkpoint-folder.ts'
import { load } from '../../../src/data/saved-tree.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import type { TrainConfigInput } from '../../../src/trainer/settings/config.ts'
import type { RunEvent, RunRecord } from '../../../src/trainer/watch/run-events.ts'
import { runLogIn } from '../../../src/trainer/watch/run-log.ts'
import { seenFolder } from '../../support/checkpoint-folders.ts'
import { enter, settings, trainAlone, warned } from '../../support/elastic-members.ts'
import { ElasticRoom } from '../../support/elastic-room.ts'
import { startTask, type TaskRank } from '../../support/task-ranks.ts'
import { resultsOf } from '../../support/train-ranks.ts'

const config = { demo: 'playground', steps: 12, batchSize: 12, bucketCapMb: 1 } as const
const open = () => new ReferenceRuntime()

const changedIn = (events: readonly RunEvent[]) =>
  events.flatMap((event) => {
    if (event.event !== 'changed') return []
    const { event: _, rank: _rank, by: _by, ...change } = event
    return [change]
  })

const outcomesOf = (ranks: readonly TaskRank[]) =>
  Promise.all(
    ranks.map(async ({ end, events }) => ({
      paramHash: (await end).paramHash,
      losses: events.flatMap((event) => (event.event === 'step' ? [event.loss] : [])),
    })),
  )

/** A run from its beginning to its end. */
async function run(size: number, input: TrainConfigInput) {
  const { ranks, close } = await startTask(size, { ...config, ...input }, open)
  const outcomes = await outcomesOf(ranks)
  close()
  return outcomes
}

test.each([
  [1, {}],
  [3, { optimizer: 'sgd' }],
  [2, { strategy: 'alone' }],
  [2, { exact: true }],
  [2, { parallel: 'fsdp' }],
  [2, { precision: 'float16' }],
] as const)(
  '%i ranks, %o: Trainer ends with the bits of a run with that list when its learning rate changes',
  async (size, more) => {
    const { ranks, close } = await startTask(size, { ...config, ...more }, open)
    const asker = ranks[size - 1]
    await asker.until('step', ({ step }) => step === 3)
    asker.trainer.change('lr', 0.2)
    await asker.until('changed')
    asker.trainer.change('lr', 0.001)
    const outcomes = await outcomesOf(ranks)
    const changes = changedIn(ranks[0].events)
    for (const { events } of ranks) expect(changedIn(events)).toEqual(changes)
    const [{ step: first }, { step: second }] = changes
    expect(changes).toEqual([
      { step: first, key: 'lr', from: 0.02, to: 0.2 },
      { step: second, key: 'lr', from: 0.2, to: 0.001 },
    ])
    expect([first > 3, second > first, second <= 12]).toEqual([true, true, true])
    // The list also has the value before.
    expect(await run(size, { ...more, lr: 0.3, changes: JSON.stringify(changes) })).toEqual(
      outcomes,
    )
    close()
  },
  30_000,
)

test('Trainer takes the value of the last rank when two ask in a pause, and none that holds already', async () => {
  const { ranks, close } = await startTask(2, { ...config, maxStepsPerSec: 0 }, open)
  ranks[0].trainer.pause()
  await Promise.all(ranks.map((rank) => rank.until('paused')))
  ranks[0].trainer.change('lr', 0.5)
  ranks[1].trainer.change('lr', 0.25)
  ranks[1].trainer.change('maxStepsPerSec', 0)
  const changed = await Promise.all(ranks.map((rank) => rank.until('changed')))
  const { step } = await ranks[0].until('paused')
  for (const one of changed)
    expect(one).toMatchObject({ step: step + 1, key: 'lr', to: 0.25, by: 1 })
  ranks[0].trainer.goOn()
  await Promise.all(ranks.map(({ end }) => end))
  for (const { events } of ranks) expect(changedIn(events)).toHaveLength(1)
  close()
})

test('Trainer keeps its bits when the pace changes', async () => {
  const [, wanted] = await run(2, {})
  const { ranks, close } = await startTask(2, { ...config, maxStepsPerSec: 1 }, open)
  await ranks[1].until('step')
  ranks[1].trainer.change('maxStepsPerSec', 0)
  const began = performance.now()
  const [, outcome] = await outcomesOf(ranks)
  expect(outcome).toEqual(wanted)
  // Nine steps or more were left, at one a second.
  expect(performance.now() - began).toBeLessThan(8000)
  close()
})

test.each([
  [
    'batchSize',
    12,
    'change: batchSize cannot change while a run trains, but lr and maxStepsPerSec can',
  ],
  ['lr', -1, 'change: lr: expected >=0, got -1'],
  ['lr', undefined, 'change: lr: expected'],
  ['maxStepsPerSec', 0.5, 'change: maxStepsPerSec: expected'],
] as const)('Trainer refuses by name when %s is to change to %s', async (key, value, words) => {
  const { ranks, close } = await startTask(1, config, open)
  expect(() => ranks[0].trainer.change(key, value)).toThrow(words)
  await ranks[0].end
  expect(changedIn(ranks[0].events)).toEqual([])
  close()
})

test('Trainer ends with the bits of an undisturbed run when it resumes with a changed learning rate', async () => {
  const folder = seenFolder()
  const checkpoints = { folder: async () => folder }
  const input = { ...config, checkpointEvery: 5 } as const
  const first = await startTask(2, { ...input, steps: 7 }, open, () => ({ checkpoints }))
  await first.ranks[0].until('step')
  first.ranks[1].trainer.change('lr', 0.1)
  await outcomesOf(first.ranks)
  const changes = changedIn(first.ranks[0].events)
  first.close()
  const { record } = load((await getCheckpoint(folder, 'latest'))!)
  const { lr } = (record as unknown as RunRecord).config
  expect(lr).toBe(0.1)
  const second = await startTask(2, { ...input, lr, resume: 'latest' }, open, () => ({
    checkpoints,
  }))
  const outcomes = await outcomesOf(second.ranks)
  const [resumed] = second.ranks[0].events.flatMap((one) => (one.event === 'resumed' ? [one] : []))
  expect(resumed.differences).toEqual([])
  second.close()
  const whole = await run(2, { changes: JSON.stringify(changes) })
  expect(outcomes.map(({ paramHash }) => paramHash)).toEqual(
    whole.map(({ paramHash }) => paramHash),
  )
})

test.each([true, false])(
  'exact %s: Trainer keeps the steps of its changes when a rank is lost and another comes',
  async (exact) => {
    warned()
    const input = { exact, steps: 90, saves: 'auto' } as const
    const folder = seenFolder()
    const checkpoints = { folder: async () => folder }
    const room = new ElasticRoom(['a', 'b', 'c'])
    const [a, b, c] = ['a', 'b', 'c'].map((name) => enter(room, name, input, { checkpoints }))
    await b.after(52)
    b.change('lr', 0.1)
    await a.after(58)
    room.become(['a', 'c'])
    b.kill()
    await c.after(70)
    room.become(['c', 'd'])
    a.kill()
    const d = enter(room, 'd', input, { joins: true, checkpoints })
    await d.after(75)
    d.change('lr', 0.003)
    const ends = await Promise.all([c.end, d.end])
    const [result, other] = resultsOf(ends)
    expect(other.paramHash).toBe(result.paramHash)
    const changes = changedIn(c.events)
    expect(changes.map(({ to }) => to)).toEqual([0.1, 0.003])
    expect(changedIn(d.events)).toEqual(changes)
    if (!exact) return
    const alone = await trainAlone({ ...input, saves: 'none', changes: JSON.stringify(changes) })
    expect(alone.result.paramHash).toBe(result.paramHash)
    const log = runLogIn(load((await getCheckpoint(folder, 'latest'))!).log)!
    expect(log.changes).toEqual(changes)
    const { config: logged } = log
    const again = await trainAlone({
      ...settings,
      ...(logged as TrainConfigInput),
      saves: 'none',
      changes: JSON.stringify(log.changes),
    })
    const hashes = again.events.flatMap((one) => (one.event === 'step' ? [one.stateHash] : []))
    expect(log.states.map(([, hash]) => hash)).toEqual(hashes)
  },
  60_000,
)
