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
  expect(readRunLog(log.text({ exact: true }, null))).toEqual({
    format: 'tabring-run-log-1',
    config: { exact: true },
    states: [
      [0, 'h1'],
      [1, 'h2'],
    ],
    groups: [{ step: 2, worldSize: 3 }],
    deals: [{ step: 1, samples: [40, 24] }],
    end: null,
  })
})

test.each(['', '{', '[]', '{"format":"tabring-run-log-1"}', '{"format":"other"}'])(
  'readRunLog gives undefined for a file that is no log: %j',
  (text) => expect(readRunLog(text)).toBeUndefined(),
)
