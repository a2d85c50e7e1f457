import { expect, test } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { append } from '../../../src/ui/parts/series.ts'
import { Joiner, partsOf, textOf, unpacked, valueIn } from '../../../src/ui/room/watch-words.ts'
import { changesOf, withChanges } from '../../../src/ui/room/watched-run.ts'
import { newRun, type Run } from '../../../src/ui/state/run.ts'
import { makeResult } from '../../support/page-states.ts'

const making = { newRun, append, parseTrainConfig }
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

test('withChanges adds the newest of each curve when changesOf has thinned it', () => {
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

test('withChanges takes a run whole when every field has a value', () => {
  const config = parseTrainConfig({ demo: 'digits', exact: true })
  const result = { ...makeResult(2), loss: Number.NaN }
  const run: Run = {
    ...stepped(begun(), 10),
    config,
    leftOut: new Map([['Ada', { steps: 2, newest: 9 }]]),
    unlike: [{ step: 3, who: ['Ada'], text: 'other bits', isLasting: true }],
    changed: { maxStepsPerSec: { step: 4, by: 'Ada' } },
    paused: { step: 9, by: [0] },
    end: { kind: 'finished', result, bytesSent: 5 },
  }
  const seen = withChanges(null, sent(null, run), making)
  const { loss: _, slot: __, isWatched: ___, ...rest } = run
  expect(seen).toMatchObject(rest)
})

test('withChanges takes nothing when a rank sends what no page sends', () => {
  const many = { xs: Array(402).fill(1), ys: Array(402).fill(1) }
  const wrong = [
    { logged: [] },
    { step: 'x' },
    { loss: 3 },
    { loss: many },
    { loss: { xs: [1], ys: [] } },
    { members: null },
    { members: [{ name: 'Ada' }] },
    { end: { kind: 'finished' } },
    { changes: [{}] },
    { config: { demo: 'digits', batchSize: 'all' } },
  ]
  for (const changes of wrong) expect(withChanges(null, changes, making)).toBeNull()
})

test('Joiner returns a message once when all its parts have come in order', async () => {
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
  expect(joiner.take({ ...parts.at(-1)!, part: parts.length, parts: parts.length + 1 })).toBeNull()
  const other = new Joiner()
  expect(parts.toSpliced(0, 1).map((part) => other.take({ ...part }))).not.toContainEqual(
    expect.any(String),
  )
})
