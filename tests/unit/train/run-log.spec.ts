import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { RunLog, readRunLog, stepOf } from '../../../src/trainer/watch/run-log.ts'
import { trainDigits } from '../../support/digit-ranks.ts'
import { serveDigits } from '../../support/served-digits.ts'
import { resultsOf } from '../../support/train-ranks.ts'

beforeEach(() => serveDigits(36, (_, i) => (i * 7919) % 251))
afterEach(() => vi.restoreAllMocks())

const proof = { samples: 'ab', parameters: 'cd', results: 'ef' }
const member = (name: string, samples: number) => ({ id: `id ${name}`, name, samples })

/** The log of each rank of a run. */
async function logsOf(size: number, seed = 0) {
  const input = { exact: true, virtualWorkers: 4, steps: 5, batchSize: 15, seed } as const
  const ranks = await trainDigits(size, input)
  const config = parseTrainConfig({ demo: 'digits', ...input })
  return ranks.map((rank) => {
    const log = new RunLog()
    for (const event of rank.events) log.add(event)
    const [{ steps: step, paramHash }] = resultsOf([rank])
    return readRunLog(log.text(config, { step, paramHash }))!
  })
}

test('the log of an exact run has the hash of the state before each step, the same on all ranks', async () => {
  const [one] = await logsOf(1)
  expect(one.states.map(([step]) => step)).toEqual([0, 1, 2, 3, 4])
  expect(new Set(one.states.map(([, hash]) => hash)).size).toBe(5)
  expect(one.config).toMatchObject({ demo: 'digits', exact: true, virtualWorkers: 4 })
  for (const { states, end, groups, proof } of await logsOf(3)) {
    expect(states).toEqual(one.states)
    expect(end).toEqual(one.end)
    // 15 samples are virtual workers of 4, 4, 4 and 3.
    const members = [4, 4, 7].map((samples, rank) => {
      const device = 'the plain references (slow)'
      return { id: String(rank), name: `rank ${rank}`, samples, device }
    })
    expect(groups).toEqual([{ step: 0, worldSize: 3, members }])
    expect(proof).toEqual(one.proof)
    expect(proof).toBeDefined()
  }
  const [other] = await logsOf(1, 1)
  expect(other.states).not.toEqual(one.states)
}, 60_000)

test('a log notes other ranks, shares and devices with the step before', () => {
  const log = new RunLog()
  const step = (step: number) => log.add({ event: 'step', step, stateHash: `h${step}` })
  step(1)
  log.add({ event: 'assigned', step: 1, samples: [40, 24] })
  step(2)
  const members = [member('one', 40), { ...member('two', 24), proof: { ...proof, results: 'ff' } }]
  log.add({ event: 'devices', devices: ['2 threads', 'a GPU'] })
  log.add({ event: 'group', step: 2, members, proof })
  const unlike = { step: 2, text: 'rank 2 computes other bits', isLasting: true }
  log.add({ event: 'unlike', ...unlike })
  log.add({ event: 'unlike', ...unlike })
  const changed = { step: 3, devices: ['1 thread', 'a GPU'] }
  log.add({ event: 'devices', ...changed })
  expect(readRunLog(log.text({ exact: true }, null))).toEqual({
    format: 'tabring-run-log-1',
    config: { exact: true },
    states: [
      [0, 'h1'],
      [1, 'h2'],
    ],
    groups: [{ step: 2, worldSize: 2, members }],
    deals: [{ step: 1, samples: [40, 24] }],
    devices: [changed],
    proof,
    changes: [],
    unlike: [unlike],
    end: null,
  })
})

test('stepOf gives the step after which a run stopped: as many steps again come to the last logged state', async () => {
  const log = new RunLog()
  expect(log.step).toBe(0)
  const input = { exact: true, virtualWorkers: 4, batchSize: 15, seed: 0 } as const
  const [stopped] = await trainDigits(2, { ...input, steps: 5 })
  const received = stopped.events.filter((event) => event.event !== 'step' || event.step <= 3)
  for (const event of received) log.add(event)
  expect(log.step).toBe(3)
  const { states } = readRunLog(log.text({ exact: true }, null))!
  expect(states.map(([step]) => step)).toEqual([0, 1, 2])
  const [again] = await trainDigits(1, { ...input, steps: stepOf(states) })
  const hashes = again.events.flatMap((event) => (event.event === 'step' ? event.stateHash : []))
  expect(hashes).toEqual(states.map(([, hash]) => hash))
}, 60_000)

test('stepOf a run that went back to an earlier step gives the step of its newest attempt', () => {
  const log = new RunLog()
  for (const step of [1, 2, 3, 2]) log.add({ event: 'step', step, stateHash: `h${step}` })
  expect(log.step).toBe(2)
})

test('a log of an earlier version, which has no members, is read', () => {
  const earlier = { states: [[0, 'h1']], groups: [{ step: 0, worldSize: 3 }], deals: [], end: null }
  const text = JSON.stringify({ format: 'tabring-run-log-1', config: {}, ...earlier })
  expect(readRunLog(text)).toMatchObject(earlier)
})

test('a log with a bound keeps hashes of steps evenly, and the newest groups and assignments', () => {
  const log = new RunLog(10)
  for (let step = 1; step <= 1000; step++) {
    log.add({ event: 'step', step, stateHash: `h${step - 1}` })
    log.add({ event: 'assigned', step, samples: [step] })
    const members = [member('one', step), member('two', 1), member('three', 1)]
    log.add({ event: 'group', step, members, proof })
  }
  const { states, groups, deals } = log.file({}, null)
  expect(states.map(([step]) => step)).toEqual([0, 128, 256, 384, 512, 640, 768, 896])
  expect(states[1]).toEqual([128, 'h128'])
  // Ten members are in three groups of three.
  expect(groups.map(({ step }) => step)).toEqual([998, 999, 1000])
  expect(deals.at(-1)).toEqual({ step: 1000, samples: [1000] })
  expect(deals).toHaveLength(10)
})

test('a log takes over an earlier one, once, and is then of the whole run', () => {
  const log = new RunLog()
  log.add({ event: 'step', step: 1, stateHash: 'h0' })
  log.begin()
  log.add({ event: 'group', step: 0, members: [member('one', 24)], proof })
  const early = log.file({ resume: 'latest' }, null)
  expect(early).toMatchObject({ groups: [{ step: 0, worldSize: 1 }], config: {} })
  expect(early.config.resume).toBeUndefined()
  const later = new RunLog()
  later.begin(early)
  later.begin(early)
  later.add({
    event: 'group',
    step: 1,
    members: [member('one', 12), member('two', 12)],
    proof,
  })
  later.add({ event: 'step', step: 2, stateHash: 'h1' })
  const { states, groups, config } = later.file({ resume: 'latest' }, null)
  expect(states.map(([step]) => step)).toEqual([0, 1])
  expect(groups.map(({ step, members }) => [step, members?.map(({ name }) => name)])).toEqual([
    [0, ['one']],
    [1, ['one', 'two']],
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
