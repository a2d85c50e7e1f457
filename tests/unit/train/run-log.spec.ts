import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { isLogged, RunLog, readRunLog } from '../../../src/trainer/watch/run-log.ts'
import { trainDigits } from '../../support/digit-ranks.ts'
import { serveDigits } from '../../support/served-digits.ts'
import { resultsOf } from '../../support/train-ranks.ts'

beforeEach(() => serveDigits(36, (_, i) => (i * 7919) % 251))
afterEach(() => vi.restoreAllMocks())

/** The log of each rank of a run. */
async function logsOf(size: number, seed = 0) {
  const input = { exact: true, virtualWorkers: 4, steps: 5, batchSize: 15, seed } as const
  const ranks = await trainDigits(size, input)
  const config = parseTrainConfig({ demo: 'digits', ...input })
  return ranks.map((rank) => {
    const log = new RunLog()
    for (const event of rank.events) if (isLogged(event)) log.add(event)
    const [{ steps: step, paramHash }] = resultsOf([rank])
    return readRunLog(log.text(config, { step, paramHash }))!
  })
}

test('the log of an exact run has the hash of the state before each step, the same on all ranks', async () => {
  const [one] = await logsOf(1)
  expect(one.states.map(([step]) => step)).toEqual([0, 1, 2, 3, 4])
  expect(new Set(one.states.map(([, hash]) => hash)).size).toBe(5)
  expect(one.config).toMatchObject({ demo: 'digits', exact: true, virtualWorkers: 4 })
  for (const { states, end } of await logsOf(3)) {
    expect(states).toEqual(one.states)
    expect(end).toEqual(one.end)
  }
  const [other] = await logsOf(1, 1)
  expect(other.states).not.toEqual(one.states)
}, 60_000)

test('a log notes other ranks and other shares with the step before', () => {
  const log = new RunLog()
  const step = (step: number) => log.add({ event: 'step', step, stateHash: `h${step}` })
  step(1)
  log.add({ event: 'dealt', step: 1, samples: [40, 24] })
  step(2)
  log.add({ event: 'regrouped', step: 2, worldSize: 3 })
  const unlike = { step: 2, text: 'rank 2 computes other bits', isLasting: true }
  log.add({ event: 'unlike', ...unlike })
  log.add({ event: 'unlike', ...unlike })
  expect(readRunLog(log.text({ exact: true }, null))).toEqual({
    format: 'tabring-run-log-1',
    config: { exact: true },
    states: [
      [0, 'h1'],
      [1, 'h2'],
    ],
    groups: [{ step: 2, worldSize: 3 }],
    deals: [{ step: 1, samples: [40, 24] }],
    unlike: [unlike],
    end: null,
  })
})

test('a log with a bound keeps hashes of steps evenly, and the newest groups and deals', () => {
  const log = new RunLog(10)
  for (let step = 1; step <= 1000; step++) {
    log.add({ event: 'step', step, stateHash: `h${step - 1}` })
    log.add({ event: 'dealt', step, samples: [step] })
    log.add({ event: 'regrouped', step, worldSize: step })
  }
  const { states, groups, deals } = log.file({}, null)
  expect(states.map(([step]) => step)).toEqual([0, 128, 256, 384, 512, 640, 768, 896])
  expect(states[1]).toEqual([128, 'h128'])
  expect(groups.map(({ step }) => step)).toEqual([
    991, 992, 993, 994, 995, 996, 997, 998, 999, 1000,
  ])
  expect(deals.at(-1)).toEqual({ step: 1000, samples: [1000] })
  expect(deals).toHaveLength(10)
})

test('a log takes over an earlier one, once, and is then of the whole run', () => {
  const log = new RunLog()
  log.add({ event: 'step', step: 1, stateHash: 'h0' })
  log.begin(0, 2)
  const early = log.file({ resume: 'latest' }, null)
  expect(early).toMatchObject({ groups: [{ step: 0, worldSize: 2 }], config: {} })
  expect(early.config.resume).toBeUndefined()
  const later = new RunLog()
  later.begin(1, 3, early)
  later.begin(1, 3, early)
  later.add({ event: 'step', step: 2, stateHash: 'h1' })
  const { states, groups, config } = later.file({ resume: 'latest' }, null)
  expect(states.map(([step]) => step)).toEqual([0, 1])
  expect(groups).toEqual([
    { step: 0, worldSize: 2 },
    { step: 1, worldSize: 3 },
  ])
  expect(config.resume).toBeUndefined()
  const alone = new RunLog()
  alone.add({ event: 'step', step: 2, stateHash: 'h1' })
  expect(alone.file({ resume: 'latest' }, null).config.resume).toBe('latest')
})

test.each(['', '{', '[]', '{"format":"tabring-run-log-1"}', '{"format":"other"}'])(
  'readRunLog gives undefined for a file that is no log: %j',
  (text) => expect(readRunLog(text)).toBeUndefined(),
)
