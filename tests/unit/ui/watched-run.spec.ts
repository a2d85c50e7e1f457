import { expect, test } from 'vitest'
import { append } from '../../../src/ui/parts/series.ts'
import { Joiner, partsOf, textOf, unpacked, valueIn } from '../../../src/ui/room/watch-words.ts'
import { changesOf, withChanges } from '../../../src/ui/room/watched-run.ts'
import { newRun, type Run } from '../../../src/ui/state/run.ts'

const making = { newRun, append }
const begun = (): Run =>
  newRun(3, {
    assignment: { epoch: 7, rank: 1, worldSize: 2, members: [], links: [] },
    startedAtMs: 5,
  })
const stepped = (run: Run, steps: number): Run => {
  let { loss } = run
  for (let i = 1; i <= steps; i++) loss = append(loss, run.step + i, 1 / (run.step + i))
  return { ...run, loss, step: run.step + steps }
}
const sent = (before: Run | null, run: Run) => valueIn(textOf(changesOf(before, run)))

test('changesOf and withChanges give an onlooker the newest of each curve, and what else has changed', () => {
  const first = stepped(begun(), 1000)
  const second = stepped(first, 100)
  const seen = withChanges(
    withChanges(null, sent(null, first), making),
    sent(first, second),
    making,
  )!
  expect(seen).toMatchObject({ isWatched: true, worldSize: 2, rank: 1, step: 1100, id: first.id })
  const { xs, ys, length } = seen.loss
  expect([xs[length - 1], ys[length - 1]]).toEqual([1100, expect.closeTo(1 / 1100, 7)])
  expect(length).toBeLessThan(420)
  expect(Object.keys(sent(first, second) as object).sort()).toEqual(['loss', 'step'])
})

const shownFields = (
  'id startedAtMs epoch rank worldSize joins members peers lost ways config phase step totalSteps dataEpoch loss trainMetric accuracy ' +
  'heldOutLoss globalSamples fullestStep seconds trainingSinceMs samples bytesSent firstBytes parts given held stateHash unlike leftOut ' +
  'assigned changed recent testingSinceMs tests testedMs resumed changes regrouped lostName undecided waits heldUp broke silent paused ' +
  'isStepping pausedMs isStopping end isPast'
).split(' ')

test('changesOf leaves out what is of the rank alone when it shows a whole run', () => {
  expect(Object.keys(changesOf(null, begun())).sort()).toEqual(shownFields.sort())
})

test('withChanges takes nothing when a rank sends what no page sends', () => {
  for (const changes of [{ logged: [] }, { step: 'x' }, { loss: 3 }, { members: null }])
    expect(withChanges(null, changes, making)).toBeNull()
})

test('a message comes whole out of its parts, and not when one lacks', async () => {
  const floats = Float32Array.from({ length: 40_000 }, () => Math.random())
  const value = { floats, map: new Map([['a', Number.NaN]]), bytes: new Uint8Array([1, 2]) }
  const parts = await partsOf(1, value)
  expect(parts.length).toBeGreaterThan(1)
  const joiner = new Joiner()
  const texts = parts.map((part) => joiner.take({ ...part }))
  const got = (await unpacked(texts.at(-1)!)) as typeof value
  expect(got).toMatchObject({ map: value.map, bytes: value.bytes })
  const errors = got.floats.map((one, i) => Math.abs(one - floats[i]) / floats[i])
  expect(Math.max(...errors)).toBeLessThan(1 / 256)
  const other = new Joiner()
  expect(parts.toSpliced(0, 1).map((part) => other.take({ ...part }))).not.toContainEqual(
    expect.any(String),
  )
})
