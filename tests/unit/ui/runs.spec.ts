import { describe, expect, it } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { scoreOf } from '../../../src/trainer/settings/demo-meta.ts'
import { metricName } from '../../../src/ui/parts/metric-words.ts'
import { append, emptySeries } from '../../../src/ui/parts/series.ts'
import {
  type ChartColumn,
  chartColumns,
  chartDemo,
  chartLines,
  chartTable,
  ghostOf,
  leftOutOfChart,
  legendRuns,
  type Shown,
} from '../../../src/ui/run/chart-data.ts'
import { lookOf } from '../../../src/ui/run/run-looks.ts'
import { rememberRuns, type TextMemory } from '../../../src/ui/run/run-memory.ts'
import { nameOfRun } from '../../../src/ui/run/run-words.ts'
import {
  allRuns,
  freeSlot,
  type KeptRun,
  keptRun,
  maxPoints,
  maxRuns,
  thinnedPoints,
} from '../../../src/ui/state/kept-runs.ts'
import {
  assigned,
  comparing,
  makeResult,
  makeSnapshot,
  otherDemo,
  play,
  training,
} from '../../support/page-states.ts'
import { differingColumns, lossCsv, recallRuns } from '../../support/ui-with-experiments.ts'

const finish = (steps = 300) =>
  play(training(2, steps), { type: 'finished', result: makeResult(2), bytesSent: 1 })

/** A memory with the browser's interface, for `capacity` characters. */
function memoryOf(
  capacity = Number.POSITIVE_INFINITY,
): TextMemory & { texts: Map<string, string> } {
  const texts = new Map<string, string>()
  return {
    texts,
    recall: (key) => texts.get(key) ?? '',
    remember(key, text) {
      const others = [...texts].reduce(
        (sum, [name, one]) => sum + (name === key ? 0 : one.length),
        0,
      )
      if (others + text.length > capacity) return false
      if (text === '') texts.delete(key)
      else texts.set(key, text)
      return true
    },
  }
}

describe('the runs of a tab', () => {
  it('are kept when they end, with settings, points and what they came to', () => {
    const before = training(2, 300)
    expect(before.runs).toEqual([])
    expect(allRuns(before)).toHaveLength(1)
    const [run] = finish().runs
    expect(run).toMatchObject({
      ending: 'finished',
      worldSize: 2,
      loss: 0.0713,
      finalValue: 0.9745,
      isShown: true,
      slot: 0,
    })
    expect(run.points.steps).toHaveLength(300)
    // 64 samples every 40 ms, from the beginning of training on.
    expect(run.points.samples[299]).toBe(300 * 64)
    expect(run.points.seconds[299]).toBeCloseTo(12, 6)
    // With the tests after the last step, as the run reports it.
    expect(run.seconds).toBe(22.4)
    expect(run.samplesPerSec).toBeCloseTo((300 * 64) / 22.4, 6)
    expect([...run.accuracy.steps]).toEqual([180])
    expect(run.accuracy.losses).toHaveLength(1)
    expect(run).toMatchObject({ trainValue: before.run!.trainMetric.ys[299], heldOutLoss: 0.1341 })
  })

  it('a run that ends before its first step is not kept, and one that ends twice is kept once', () => {
    expect(play(assigned(2), { type: 'failed', code: 'x', text: 'early' }).runs).toEqual([])
    const twice = play(finish(), { type: 'failed', code: 'x', text: 'late' })
    expect(twice.runs).toHaveLength(1)
  })

  it('are shown, hidden, named and deleted, each with a different line style', () => {
    const { runs } = comparing()
    expect(runs.map(({ slot }) => slot)).toEqual([0, 1, 2])
    expect(comparing().run?.slot).toBe(3)
    const [{ id }] = runs
    const hidden = play(comparing(), { type: 'runShown', id, isShown: false })
    expect(chartLines(hidden, 'step')).toHaveLength(3)
    // The legend has the one that is hidden too: it is shown again there.
    const inLegend = legendRuns(hidden, 'digits')
    expect(inLegend.map(({ isShown }) => isShown)).toEqual([false, true, true, true])
    expect(inLegend.map(({ isRunning }) => isRunning)).toEqual([false, false, false, true])
    expect(legendRuns(training(2, 300), 'digits')).toEqual([])
    const fewer = play(hidden, { type: 'runDeleted', id })
    expect(fewer.runs.map(({ slot }) => slot)).toEqual([1, 2])
    expect(freeSlot([1, 2])).toBe(0)
    const styles = Array.from({ length: 48 }, (_, slot) => JSON.stringify(lookOf(slot)))
    expect(new Set(styles).size).toBe(48)
    const dashes = styles.slice(0, 6).map((look) => JSON.parse(look).dash.join())
    expect(new Set(dashes).size).toBe(6)
  })

  it('old ones give way, and a few are shown at once', () => {
    let snapshot = finish(5)
    for (let i = 1; i < maxRuns + 5; i++) {
      snapshot = training(2, 5, 0, {
        from: play(snapshot, {
          type: 'assigned',
          assignment: {
            epoch: i + 1,
            rank: 0,
            worldSize: 2,
            members: snapshot.run!.members,
            links: [],
          },
          startedAtMs: i,
        }),
      })
      snapshot = play(snapshot, { type: 'finished', result: makeResult(2), bytesSent: 1 })
    }
    expect(snapshot.runs).toHaveLength(maxRuns)
    expect(snapshot.runs.filter(({ isShown }) => isShown)).toHaveLength(6)
    expect(snapshot.runs.at(-1)?.isShown).toBe(true)
  })

  it('the table has the settings that differ, and a name has them too', () => {
    const { runs } = comparing()
    const columns = differingColumns(runs)
    expect(columns.map(({ key }) => key)).toEqual(['batchSize', 'optimizer', 'lr'])
    expect(columns[2].textOf(runs[2])).toBe('0.001')
    expect(differingColumns(runs.slice(0, 1))).toEqual([])
    const shorter = { ...runs[0], config: { ...runs[0].config, steps: 5 } }
    expect(differingColumns([runs[0], shorter]).map(({ label }) => label)).toEqual(['Steps set'])
    expect(nameOfRun(runs[0], columns, 0)).toBe('the one from the lecture')
    expect(nameOfRun(runs[1], columns, 0)).toContain('Optimizer SGD, Learning rate 0.01')
  })

  it('thinned points are the means of equal stretches, and end with the run', () => {
    let loss = emptySeries
    for (let step = 1; step <= 2 * maxPoints + 1; step++) loss = append(loss, step, step)
    const trainMetric = { ...loss, ys: loss.ys.map((value) => value / 4) }
    const all = { loss, trainMetric, globalSamples: loss, seconds: loss }
    const { steps, losses, metrics } = thinnedPoints(all)
    expect(steps.length).toBeLessThanOrEqual(maxPoints)
    expect([steps[0], losses[0], metrics[0]]).toEqual([3, 2, 0.5])
    expect(steps.at(-1)).toBe(2 * maxPoints + 1)
  })
})

const everything = { testLoss: true, trainMetric: true, testMetric: true }

describe('the chart of several runs', () => {
  it('shows what is wanted: of one run all, training and test of loss and metric', () => {
    const kinds = (shown: Shown, isSmoothing: boolean) => {
      const lines = chartLines(training(1, 200), 'step')
      const columns = chartColumns(lines, shown, isSmoothing)
      expect(chartTable(lines, shown, isSmoothing ? 5 : 0)).toHaveLength(1 + columns.length)
      return columns.map(({ is }) => is)
    }
    expect(kinds(everything, true)).toEqual([
      'raw',
      'loss',
      'testLoss',
      'trainMetric',
      'testMetric',
    ])
    const none = { testLoss: false, trainMetric: false, testMetric: false }
    expect(kinds(none, false)).toEqual(['loss'])
    for (const is of ['testLoss', 'trainMetric', 'testMetric'] as const)
      expect(kinds({ ...none, [is]: true }, false)).toEqual(['loss', is])
    const [line] = chartLines(training(1, 200), 'step')
    expect(line.testXs).toEqual([180])
    expect(line.testLosses[0]).toBeCloseTo(2.3 * Math.exp(-3) + 0.08 + 0.018, 9)
    expect(line.metrics).toHaveLength(200)
    // A run that was kept, once it stands alone, shows the same.
    const kept = { run: null, runs: finish(200).runs }
    const columns = chartColumns(chartLines(kept, 'step'), everything, true)
    expect(columns.map(({ is }) => is)).toEqual(['loss', 'testLoss', 'trainMetric', 'testMetric'])
  })

  it('has every point of each run, and gaps where a run has none', () => {
    const snapshot = comparing()
    for (const axis of ['step', 'samples', 'seconds'] as const) {
      const lines = chartLines(snapshot, axis)
      expect(lines).toHaveLength(4)
      const [xs, ...columns] = chartTable(lines, everything, 0)
      const kinds = chartColumns(lines, everything, false)
      expect(columns).toHaveLength(kinds.length)
      const sorted = [...(xs as Float64Array)].sort((a, b) => a - b)
      expect([...(xs as Float64Array)]).toEqual(sorted)
      expect(new Set(sorted).size).toBe(sorted.length)
      for (const line of lines) {
        const has = (is: ChartColumn['is']) => {
          const at = kinds.findIndex((kind) => kind.is === is && kind.slot === line.slot)
          return at < 0 ? null : Array.from(columns[at]).filter((value) => value !== null)
        }
        expect(has('loss')).toEqual([...line.losses])
        expect(has('testLoss')).toEqual(line.testLosses)
        expect(has('testMetric')).toEqual(line.testMetrics)
        expect(line.testLosses.length).toBeGreaterThan(0)
        expect(new Set(line.testLosses).size).toBe(line.testLosses.length)
        expect(has('trainMetric')).toEqual([...line.metrics])
      }
    }
    // Twice the batch, twice the samples at the same step.
    const [, , larger] = chartLines(snapshot, 'samples')
    expect(larger.xs[0]).toBe(64)
  })

  it('has the runs of one experiment, since losses of several cannot be compared', () => {
    const text = otherDemo()
    expect(chartDemo(text)).toBe('text')
    expect(chartLines(text, 'step')).toHaveLength(1)
    expect(leftOutOfChart(text)).toBe(1)
    // Ended, and taken out of the chart: the one before shows again.
    const ended = play(text, { type: 'failed', code: 'x', text: 'lost' })
    const hidden = play(ended, { type: 'runShown', id: ended.run!.id, isShown: false })
    expect(chartDemo(hidden)).toBe('digits')
    expect(chartLines(hidden, 'step').map(({ isMain }) => isMain)).toEqual([false])
    expect(legendRuns(hidden, 'text')).toEqual([])
    expect(leftOutOfChart(hidden)).toBe(0)
    // By name and unit, not as an accuracy.
    const [, last] = ended.runs
    const csv = lossCsv([last], () => 'a')
    expect(csv.trim().split('\n').at(-1)).toMatch(
      /,"text",2,170,.*,1\.811\d*,"loss in bits per character",[\d.]+,2\.613$/,
    )
    expect(metricName({ name: 'squared error', unit: '', better: 'lower' })).toBe(
      'test squared error',
    )
  })

  it('shows the expected curve when there is no run to show', () => {
    const { experiments } = makeSnapshot()
    for (const demo of Object.keys(experiments.metas)) {
      const { words, line } = ghostOf(experiments, demo, 'step')!
      expect(words).toBe('expected with default settings')
      const { metric, expected } = experiments.metaOf(demo)
      const [{ atLeast, atMost, withinSteps }] = expected
      expect(line.xs.at(-1)).toBe(withinSteps)
      expect(line.metrics).toHaveLength(line.xs.length)
      // What is measured on training samples has got to what is stated.
      const last = metric.ofLoss ? line.losses.at(-1)! * metric.ofLoss : line.metrics.at(-1)!
      expect(scoreOf(metric, last)).toBeGreaterThan(scoreOf(metric, (atLeast ?? atMost)!))
    }
    expect(ghostOf(experiments, 'digits', 'samples')!.line.xs[0]).toBe(13 * 64)
  })

  it('a long run is thinned, and smoothing still counts steps', () => {
    let { run } = training(1, 2)
    for (let step = 3; step <= 10_000; step++)
      run = {
        ...run!,
        loss: append(run!.loss, step, 1),
        trainMetric: append(run!.trainMetric, step, 1),
        globalSamples: append(run!.globalSamples, step, 64 * step),
        seconds: append(run!.seconds, step, step / 100),
      }
    const [line] = chartLines({ run, runs: [] }, 'seconds')
    expect(line.xs.length).toBeLessThanOrEqual(3000)
    expect(line.stretch).toBe(4)
    expect(line.xs.at(-1)).toBe(100)
    // And so when it is one of the earlier ones, whose points are fewer still.
    const ended = { ...run!, end: { kind: 'stopped', code: '', text: '' } as const }
    const [earlier] = chartLines({ run: null, runs: [keptRun(ended)!] }, 'seconds')
    expect(earlier.stretch * earlier.xs.length).toBeCloseTo(10_000, -2)
  })
})

describe('what a tab remembers of its runs', () => {
  const same = (a: readonly KeptRun[], b: readonly KeptRun[]) =>
    expect(a.map(({ id, name, loss, config }) => ({ id, name, loss, config }))).toEqual(
      b.map(({ id, name, loss, config }) => ({ id, name, loss, config })),
    )

  it('comes back as it was', () => {
    const memory = memoryOf()
    const { runs } = comparing()
    rememberRuns(runs, [], memory)
    const back = recallRuns(memory)
    same(back, runs)
    expect(back[0].points.steps).toEqual(runs[0].points.steps)
    expect(back[0].points.losses[5]).toBeCloseTo(runs[0].points.losses[5], 5)
    expect(back[0].points.metrics[5]).toBeCloseTo(runs[0].points.metrics[5], 5)
    expect(back[0].accuracy.losses[1]).toBeCloseTo(runs[0].accuracy.losses[1], 5)
    expect(back[0].heldOutLoss).toBe(runs[0].heldOutLoss)
    rememberRuns(runs.slice(1), runs, memory)
    same(recallRuns(memory), runs.slice(1))
    expect(memory.texts.size).toBe(1 + 2)
  })

  it('what cannot be read is passed over', () => {
    const memory = memoryOf()
    const { runs } = comparing()
    rememberRuns(runs, [], memory)
    const [first, second] = runs.map(({ id }) => `tabring-run-${id}`)
    memory.texts.set(first, memory.texts.get(first)!.slice(0, 100))
    memory.texts.set(second, memory.texts.get(second)!.replace('"mlp"', '"gone"'))
    same(recallRuns(memory), runs.slice(2))
    memory.texts.set('tabring-runs', '{"not": "a list"}')
    expect(recallRuns(memory)).toEqual([])
  })

  it('what does not fit gives way, the oldest first', () => {
    const { runs } = comparing()
    const all = memoryOf()
    rememberRuns(runs, [], all)
    const size = [...all.texts.values()].reduce((sum, { length }) => sum + length, 0)
    const memory = memoryOf(size - 1000)
    rememberRuns(runs, [], memory)
    same(recallRuns(memory), runs.slice(1))
    rememberRuns(runs, [], memoryOf(10))
  })
})

describe('loss as CSV', () => {
  it('has a line a point, with what spreadsheets take for formulas as texts', () => {
    const { runs } = finish(200)
    const lines = lossCsv(runs, () => '=1,"2"')
      .trim()
      .split('\n')
    expect(lines).toHaveLength(1 + 200)
    expect(lines[1]).toMatch(
      /^"'=1,""2""","2026-11-22T14:05:00.000Z","digits",2,1,64,0\.04,[\d.]+,1,,"accuracy",[\d.]+,$/,
    )
    expect(Number(lines[180].split(',').at(-1))).toBeCloseTo(0.95542, 5)
    expect(lines.filter((line) => !line.endsWith(','))).toHaveLength(2)
  })

  it('a thinned run keeps its tests', () => {
    const kept = keptRun(training(2, 200).run!)
    const points = {
      stretch: 100,
      steps: Float64Array.of(100, 190, 200),
      losses: Float64Array.of(3, 2, 1),
      metrics: Float64Array.of(0.25, 0.5, 0.75),
      samples: Float64Array.of(1, 2, 3),
      seconds: Float64Array.of(1, 2, 3),
    }
    const config = parseTrainConfig({})
    const lines = lossCsv([{ ...kept, config, points }], () => 'a').split('\n')
    const cells = lines.slice(1, -1).map((line) => line.split(',').slice(4).join())
    expect(cells).toEqual([
      '100,1,1,3,100,,"accuracy",0.25,',
      // Between two points, with nothing but what was tested.
      expect.stringMatching(/^180,,,,,0\.21\d*,"accuracy",,0\.955/),
      '190,2,2,2,90,,"accuracy",0.5,',
      '200,3,3,1,10,,"accuracy",0.75,',
    ])
  })

  it('10,000 steps tested at every fifth: each test at its own step, with its own value', () => {
    let { run } = training(1, 2)
    let accuracy = emptySeries
    for (let step = 3; step <= 10_000; step++) {
      run = {
        ...run!,
        loss: append(run!.loss, step, 1),
        trainMetric: append(run!.trainMetric, step, 1),
        globalSamples: append(run!.globalSamples, step, 64 * step),
        seconds: append(run!.seconds, step, step / 100),
      }
      if (step % 5 === 0) accuracy = append(accuracy, step, step / 1e4)
    }
    const received = (max?: number) =>
      lossCsv([keptRun({ ...run!, accuracy, heldOutLoss: accuracy }, max)], () => 'a')
        .trim()
        .split('\n')
        .slice(1)
        .map((line) => line.split(','))
        .filter((cells) => cells.at(-1) !== '')
    const whole = received(Number.POSITIVE_INFINITY)
    expect(whole).toHaveLength(2000)
    const thinned = received()
    expect(thinned.length).toBeGreaterThan(maxPoints / 2)
    expect(thinned.length).toBeLessThanOrEqual(maxPoints)
    for (const cells of [...whole, ...thinned])
      expect(Number(cells.at(-1))).toBe(Number(cells[4]) / 1e4)
    expect(thinned.at(-1)![4]).toBe('10000')
  })
})
