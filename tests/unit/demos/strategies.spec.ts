import { describe, expect, it } from 'vitest'
import type { DemoName } from '../../../demos/metas.ts'
import { curvesCsv } from '../../../demos/strategies/curves-csv.ts'
import { meta } from '../../../demos/strategies/meta.ts'
import {
  checkDraft,
  configOf,
  type Draft,
  defaultDraft,
  draftFromQuery,
  experiments,
  parametersOf,
  type Settings,
  withSetting,
  withStrategy,
} from '../../../demos/strategies/settings.ts'
import { simulatedStep } from '../../../demos/strategies/simulated.ts'
import { isSameTraining, slotOf, strategies } from '../../../demos/strategies/strategies.ts'
import { StrategyLog } from '../../../demos/strategies/strategy-log.ts'
import { differenceOf, verdictsOf } from '../../../demos/strategies/verdicts.ts'
import { reasonsOf } from '../../../demos/strategies/why.ts'
import { tasks } from '../../../demos/tasks.ts'
import { noTimes } from '../../../src/graph/plan/step-program.ts'
import { planDraws } from '../../../src/trainer/evaluate/share-batches.ts'
import type { StepParts } from '../../../src/trainer/watch/run-events.ts'
import type { RunResult } from '../../../src/worker/api.ts'

const strategy = (name: string) => strategies.find((one) => one.name === name)!

const settingsOf = (draft: Partial<Draft>): Settings => {
  const { settings, errors } = checkDraft({ ...defaultDraft(draft.experiment), ...draft })
  expect(errors).toEqual({})
  return settings!
}

describe("the comparison's settings", () => {
  it('go through an address and come back', () => {
    const drafts: Draft[] = [
      defaultDraft(),
      defaultDraft('digits'),
      { ...defaultDraft('digits'), strategies: '2x', seed: '7', steps: '9' },
      { ...defaultDraft(), data: 'moons', batch: 'x' },
    ]
    for (const draft of drafts)
      expect(draftFromQuery(`?${new URLSearchParams(parametersOf(draft))}`)).toEqual(draft)
    expect(parametersOf(defaultDraft())).toEqual([])
    expect(checkDraft(draftFromQuery(meta.expected.query)).errors).toEqual({})
  })

  it('that cannot be are named, with what to enter instead', () => {
    const wrong = checkDraft(
      draftFromQuery('?strategies=&steps=1.5&batch=3000&seed=-1&data=digits'),
    )
    expect(wrong.settings).toBeNull()
    expect(Object.keys(wrong.errors).sort()).toEqual([
      'batch',
      'data',
      'seed',
      'steps',
      'strategies',
    ])
    expect(wrong.errors.steps).toBe('Enter a whole number from 1 to 5000, not 1.5')
    expect(checkDraft(draftFromQuery('?strategies=1,2sim')).errors.strategies).toMatch(
      /^Choose 1 rank/,
    )
    expect(checkDraft({ ...defaultDraft(), steps: ' ' }).errors.steps).toMatch(/to 5000$/)
    expect(checkDraft(draftFromQuery('?experiment=text')).errors.experiment).toContain('not "text"')
  })

  it('another experiment brings its own; strategies keep the order of training', () => {
    const draft = { ...defaultDraft(), strategies: '4', seed: '3', steps: '7' }
    const digits = withSetting(draft, 'experiment', 'digits')
    expect(digits).toEqual({ ...defaultDraft('digits'), strategies: '4', seed: '3' })
    expect(withSetting(defaultDraft(), 'experiment', 'cores')).toEqual(defaultDraft('cores'))
    expect(withStrategy(draft, '1', true).strategies).toBe('1,4')
    expect(withStrategy(draft, '4', false).strategies).toBe('')
    expect(new Set(strategies.map(slotOf)).size).toBe(strategies.length)
  })

  it('know how many samples each experiment makes', async () => {
    for (const [name, { samples }] of Object.entries(experiments)) {
      const settings = settingsOf({ experiment: name })
      const config = configOf(settings, strategy('1'))
      const task = await tasks[config.demo as DemoName]()
      const { train } = await task.load({ config, given: null, baseUrl: 'https://data.example/' })
      expect(train.count, name).toBe(samples)
    }
  })

  it('give all strategies as many samples, up to one batch', () => {
    for (const [batch, steps] of [
      ['96', '500'],
      ['100', '33'],
      ['7', '1'],
      ['2048', '3'],
    ]) {
      const settings = settingsOf({ batch, steps })
      const { samples } = experiments.playground
      const taken = (name: string, by = 0) => {
        const config = configOf(settings, strategy(name))
        const { perEpoch, take } = planDraws(config, samples, 0, 1)
        let sum = 0
        for (let i = 0; i < config.steps! - by; i++)
          sum += take(Math.floor(i / perEpoch), i % perEpoch).globalCount
        return sum
      }
      for (const name of ['2x', '4x']) {
        expect(taken(name)).toBeGreaterThanOrEqual(taken('1'))
        expect(taken(name, 1)).toBeLessThan(taken('1'))
      }
      for (const name of ['2', '4', '2alone']) expect(taken(name)).toBe(taken('1'))
    }
  })
})

const times = { data: 0, ...noTimes, total: 0 }

/** A log of its ranks' events: `losses` by rank, a step each `stepMs`, a test of 1 s behind the first one. */
function logOf(
  name: string,
  losses: readonly (readonly number[])[],
  hashes: readonly string[],
  { stepMs = 10, ...parts }: Partial<StepParts> & { stepMs?: number } = {},
) {
  const one = strategy(name)
  const steps = losses[0].length
  const log = new StrategyLog(one, configOf(settingsOf({ steps: `${steps}` }), one))
  log.begin(0)
  const samples = 96 / one.ranks
  for (const rank of losses.keys()) log.add({ event: 'phase', phase: 'train', rank }, 500)
  for (let i = 0; i < steps; i++) {
    for (const [rank, own] of losses.entries()) {
      const atMs = 500 + stepMs * (i + 1) + (i > 0 ? 1000 : 0) + rank
      const ownTimes = { ...times, ...parts }
      const counts = { samples, globalSamples: 96, bytesSent: 5000 + 100 * i, times: ownTimes }
      log.add(
        {
          event: 'step',
          step: i + 1,
          totalSteps: steps,
          epoch: 0,
          loss: own[i],
          value: 0,
          rank,
          ...counts,
        },
        atMs,
      )
    }
    if (i > 0) continue
    for (const rank of losses.keys()) {
      log.add({ event: 'phase', phase: 'evaluate', rank }, 500 + stepMs + rank)
      const value = rank / 2
      log.add(
        { event: 'evaluation', step: 1, epoch: 0, loss: 1, metric: 'accuracy', value, rank },
        1500 + stepMs + rank,
      )
    }
  }
  const results = hashes.map((paramHash) => ({
    paramHash,
    value: 0,
  }))
  log.finish(results as unknown as RunResult[])
  return log
}

describe('the log of a strategy', () => {
  it('becomes lines without set-up and tests', () => {
    const log = logOf(
      '2',
      [
        [3, 2, 1],
        [9, 9, 9],
      ],
      ['a', 'a'],
    )
    expect(log.losses).toEqual({
      steps: [1, 2, 3],
      samples: [96, 192, 288],
      seconds: [0.01, 0.02, 0.03],
      // Rank 0's: the ranks of a group report the same loss.
      values: [3, 2, 1],
    })
    expect(log.tests).toEqual({ steps: [1], samples: [96], seconds: [0.01], values: [0] })
    expect(log.setupSeconds).toBe(0.5)
    expect(log.bytesPerStep).toEqual([100, 100])
    expect(log.shares).toEqual([48, 48])
  })

  it('is the mean of ranks that exchange nothing, as far as all have reported', () => {
    const log = logOf(
      '2alone',
      [
        [3, 2],
        [1, 1],
      ],
      ['a', 'b'],
    )
    expect(log.losses.values).toEqual([2, 1.5])
    expect(log.losses.samples).toEqual([96, 192])
    expect(log.losses.seconds[0]).toBeCloseTo(0.011, 9)
    expect(log.tests.values).toEqual([0.25])
    const early = new StrategyLog(strategy('2alone'), log.config)
    const step = {
      event: 'step',
      step: 1,
      totalSteps: 2,
      epoch: 0,
      loss: 3,
      value: 0,
      times,
    } as const
    early.add({ ...step, rank: 1, samples: 48, globalSamples: 96, bytesSent: 0 }, 1)
    expect(early.step).toBe(0)
    // A rank without samples has no part in the mean.
    early.add({ ...step, loss: 7, rank: 0, samples: 0, globalSamples: 48, bytesSent: 0 }, 2)
    expect(early.losses.values).toEqual([3])
  })

  it('is judged by its curve, near with an exchange and apart without, and by its parameters', () => {
    const judge = (...logs: StrategyLog[]) => verdictsOf(logs).map(({ is }) => is)
    const one = logOf('1', [[3, 2, 1]], ['a'])
    const near = [3, 2, 1.000001]
    const far = [3, 2, 1.01001]
    const alike = logOf('2', [near, near], ['b', 'b'])
    const alone = logOf('2alone', [far, far], ['a', 'b'])
    expect(judge(one, alike, alone)).toEqual([true, true, true, true])
    expect(judge(one, logOf('2', [far, far], ['b', 'b']))).toEqual([false, true])
    expect(judge(one, logOf('2', [near, near], ['b', 'c']))).toEqual([true, false])
    expect(judge(one, logOf('2alone', [near, near], ['b', 'b']))).toEqual([false, false])
    const waiting = new StrategyLog(strategy('4'), one.config)
    expect(judge(one, waiting)).toEqual([undefined, undefined])
    expect(judge(one)).toEqual([])
    // Another batch is another training.
    expect(judge(one, logOf('2x', [far, far], ['b', 'b']))).toEqual([true])
    expect(strategies.filter(isSameTraining).map(({ name }) => name)).toEqual(['1', '2', '4'])
  })

  it('a loss that is no number is no small difference', () => {
    expect(differenceOf([1, Number.NaN, 2], [1, 1, 2])).toBeNaN()
    expect(differenceOf([1, 1.5], [1, 1, 2])).toBe(0.5)
  })

  it('says from its times and bytes why it is faster than one rank, or is not', () => {
    const logs = (...costs: { stepMs: number; backward: number; wire: number }[]) =>
      costs.map((cost, at) => {
        const ranks = 2 ** at
        const own = new Array<number[]>(ranks).fill([3, 2, 1])
        return logOf(`${ranks}`, own, new Array<string>(ranks).fill('a'), cost)
      })
    const alone = { stepMs: 300, backward: 290, wire: 0 }
    const shared = { kind: 'shared' } as const
    const reasons = reasonsOf(
      logs(
        alone,
        { stepMs: 160, backward: 150, wire: 4 },
        { stepMs: 400, backward: 295, wire: 90 },
      ),
      { kind: 'cores', cores: 2 },
    )
    expect(reasons).toEqual([
      '2 ranks: 1.9 times as fast as 1 rank. Each computes less (150 ms a step, 290 ms with 1 rank), which saves more than the exchange costs: exchanging 100 B takes 4.00 ms.',
      '4 ranks: a step takes 1.3 times as long as with 1 rank. This computer has 2 cores for 4 ranks, so computing hardly gets shorter (295 ms a step, 290 ms with 1 rank), and exchanging 100 B takes 90.0 ms.',
    ])
    const [saved] = reasonsOf(logs(alone, { stepMs: 400, backward: 260, wire: 100 }), shared)
    expect(saved).toContain('but that saves only 30.0 ms, and exchanging 100 B takes 100 ms')
    const [crowded] = reasonsOf(logs(alone, { stepMs: 400, backward: 300, wire: 100 }), shared)
    expect(crowded).toContain('The ranks share one device, so')
    const [near] = reasonsOf(logs(alone, { stepMs: 301, backward: 280, wire: 9 }), shared)
    expect(near).toContain('a step takes 301 ms, 300 ms with 1 rank')
    // Without one rank there is nothing to compare with, and another batch is another training.
    expect(reasonsOf(logs(alone, alone).slice(1), shared)).toEqual([])
    const twice = [
      [3, 2],
      [3, 2],
    ]
    expect(reasonsOf([...logs(alone), logOf('2x', twice, ['a', 'a'])], shared)).toEqual([])
  })

  it('of simulated devices has the curve of one rank, and the times of shares and of simulated links', async () => {
    const one = logOf('1', [[3, 2, 1]], ['a'], { stepMs: 300, backward: 290 })
    const share = { totalMs: 80, computedMs: 75, exchangedMs: 0, bytes: 0 }
    const cost = await simulatedStep(4, share, 80_000)
    // Direct: two messages one after the other, and three quarters of 80 kB twice at 100 MB/s.
    expect(cost.exchangedMs).toBeGreaterThan(2 + 1.2)
    expect(cost.exchangedMs).toBeLessThan(2 + 1.4)
    expect(cost.totalMs).toBe(80 + cost.exchangedMs)
    const log = new StrategyLog(strategy('4sim'), one.config)
    log.simulate(one, cost)
    expect(log.losses.values).toEqual([3, 2, 1])
    expect(log.losses.seconds.at(-1)).toBeCloseTo((3 * cost.totalMs) / 1000, 9)
    expect(log.losses.samples).toEqual(one.losses.samples)
    const [reason] = reasonsOf([one, log], { kind: 'shared' })
    expect(reason).toMatch(
      /^4 devices, simulated: 3\.6 times as fast as 1 rank\. Each computes less/,
    )
    expect(verdictsOf([one, log])).toEqual([])
  })

  it('is saved with what was measured on held-out samples', () => {
    const text = curvesCsv([
      logOf('1', [[3, 2]], ['a']),
      logOf(
        '2alone',
        [
          [1, 1],
          [2, 2],
        ],
        ['a', 'b'],
      ),
    ])
    expect(text.split('\n').slice(0, 4)).toEqual([
      'experiment,model,data,seed,strategy,ranks,batch,exchange,step,samples,seconds,loss,held_out_accuracy',
      '"playground","tanh","spiral",0,"1",1,96,"yes",1,96,0.01,3,0',
      '"playground","tanh","spiral",0,"1",1,96,"yes",2,192,0.02,2,',
      '"playground","tanh","spiral",0,"2alone",2,96,"no",1,96,0.011,1.5,0.25',
    ])
  })
})
