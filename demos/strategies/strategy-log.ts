import { batchShares } from '../../src/data/shares.ts'
import type { TrainConfig } from '../../src/trainer/settings/config.ts'
import type { RunEvent, RunResult } from '../../src/worker/api.ts'
import type { Strategy } from './strategies.ts'

/** A line's points, one a step or one a test, in the order of steps. */
export interface Points {
  readonly steps: number[]
  /** That all ranks have drawn together. */
  readonly samples: number[]
  /** Of training: set-up and tests on held-out samples are left out. */
  readonly seconds: number[]
  readonly values: number[]
}

/** What a strategy came to on its ranks. */
export interface StrategyEnd {
  /** By rank, of held-out samples. */
  readonly tested: readonly number[]
  readonly paramHashes: readonly string[]
}

/** What a step took on average. */
export interface StepCost {
  readonly totalMs: number
  /** Forward, backward and the optimizer. */
  readonly computedMs: number
  /** Waiting for other ranks, and for what they send, as far as it is not hidden by computing. */
  readonly exchangedMs: number
  /** Sent by a rank. */
  readonly bytes: number
}

/** One rank's own counts. */
interface Counts {
  sinceMs: number
  /** Spent on held-out samples. */
  testedMs: number
  testingSinceMs: number
  /** Payload bytes that the rank has sent, by the first step and the newest that it reported. */
  firstBytes: number
  bytes: number
  /** Steps behind the first, which fills caches. */
  stepsBetween: number
  /** In these steps. */
  computedMs: number
  exchangedMs: number
}

/**
 * The events of a strategy's ranks, as lines to draw.
 *
 * Ranks that exchange gradients report the same losses, so rank 0's count; of ranks that exchange nothing each has its own, and a point is
 * their mean, weighed by samples: the loss over the global batch, each sample judged by the model of the rank that drew it.
 */
export class StrategyLog {
  readonly strategy: Strategy
  readonly config: TrainConfig
  stage: 'waiting' | 'setup' | 'training' | 'finished' | 'stopped' | 'failed' = 'waiting'
  readonly losses = noPoints()
  readonly tests = noPoints()
  /** From the strategy's beginning to that of training; NaN before. */
  setupSeconds = Number.NaN
  end: StrategyEnd | null = null
  #beganMs = Number.NaN
  #simulated: StepCost | undefined
  readonly #counts: Counts[]
  /** Of a step that some ranks have not reported yet. */
  readonly #parts = new Map<string, Part>()

  constructor(strategy: Strategy, config: TrainConfig) {
    this.strategy = strategy
    this.config = config
    this.#counts = Array.from({ length: strategy.ranks }, () => ({
      sinceMs: Number.NaN,
      testedMs: 0,
      testingSinceMs: Number.NaN,
      firstBytes: Number.NaN,
      bytes: Number.NaN,
      stepsBetween: 0,
      computedMs: 0,
      exchangedMs: 0,
    }))
  }

  /** By rank: rows of its share of a full batch. */
  get shares(): number[] {
    return batchShares(this.config.batchSize, this.strategy.ranks).map(({ rows }) => rows)
  }

  get step(): number {
    return this.losses.steps.at(-1) ?? 0
  }

  /** The last loss; NaN before the first. */
  get loss(): number {
    return this.losses.values.at(-1) ?? Number.NaN
  }

  get samples(): number {
    return this.losses.samples.at(-1) ?? 0
  }

  get seconds(): number {
    return this.losses.seconds.at(-1) ?? Number.NaN
  }

  get samplesPerSecond(): number {
    return this.samples / this.seconds
  }

  /**
   * By rank: what a step sent on average, with what lies between steps (tests, comparing parameters) and without set-up, which sends much
   * to measure the links. NaN before the second step. units: bytes.
   */
  get bytesPerStep(): number[] {
    if (this.#simulated) return [this.#simulated.bytes]
    return this.#counts.map(
      ({ firstBytes, bytes, stepsBetween }) => (bytes - firstBytes) / stepsBetween,
    )
  }

  /** The mean of the steps behind the first and of the ranks; NaN before the second step. */
  get cost(): StepCost {
    if (this.#simulated) return this.#simulated
    const mean = (of: (counts: Counts) => number) =>
      this.#counts.reduce((sum, counts) => sum + of(counts) / counts.stepsBetween, 0) /
      this.#counts.length
    const { seconds } = this.losses
    return {
      totalMs: (1000 * (seconds.at(-1)! - seconds[0])) / (seconds.length - 1),
      computedMs: mean(({ computedMs }) => computedMs),
      exchangedMs: mean(({ exchangedMs }) => exchangedMs),
      bytes: mean(({ firstBytes, bytes }) => bytes - firstBytes),
    }
  }

  begin(atMs: number): void {
    this.stage = 'setup'
    this.#beganMs = atMs
  }

  /** Takes an event of a rank. `atMs`: when it happened. */
  add(event: RunEvent, atMs: number): void {
    const { rank } = event
    const own = this.#counts[rank]
    if (event.event === 'phase' && event.phase === 'train') {
      // A rank that lost its device sends this again.
      if (!Number.isNaN(own.sinceMs)) return
      own.sinceMs = atMs
      if (rank === 0) {
        this.stage = 'training'
        this.setupSeconds = (atMs - this.#beganMs) / 1000
      }
    } else if (event.event === 'phase' && event.phase === 'evaluate') {
      own.testingSinceMs = atMs
    } else if (event.event === 'evaluation') {
      own.testedMs += atMs - own.testingSinceMs
      const { step, value } = event
      this.#tell('tests', step, { weight: 1, value, seconds: this.#secondsOf(rank, atMs) }, rank)
    } else if (event.event === 'step') {
      // A rank without samples in an epoch's short last batch has no part in the mean.
      const { step, loss, globalSamples, samples: weight } = event
      if (Number.isNaN(own.firstBytes)) own.firstBytes = event.bytesSent
      else {
        const { forward, backward, optimizer, wait, wire } = event.times
        own.stepsBetween++
        own.computedMs += forward + backward + optimizer
        own.exchangedMs += wait + wire
      }
      own.bytes = event.bytesSent
      const part = { weight, value: loss, seconds: this.#secondsOf(rank, atMs), globalSamples }
      this.#tell('losses', step, part, rank)
    }
  }

  finish(results: readonly RunResult[]): void {
    this.stage = 'finished'
    this.end = {
      tested: results.map(({ value }) => value),
      paramHashes: results.map(({ paramHash }) => paramHash),
    }
  }

  /** Ends with the curves of one rank, which trains the same, at simulated times. */
  simulate(one: StrategyLog, cost: StepCost): void {
    this.#simulated = cost
    for (const line of ['losses', 'tests'] as const) {
      const { steps, samples, values } = one[line]
      this[line].steps.push(...steps)
      this[line].samples.push(...samples)
      this[line].values.push(...values)
      this[line].seconds.push(...steps.map((step) => (step * cost.totalMs) / 1000))
    }
    this.stage = 'finished'
  }

  #secondsOf(rank: number, atMs: number): number {
    const { sinceMs, testedMs } = this.#counts[rank]
    return (atMs - sinceMs - testedMs) / 1000
  }

  #tell(line: 'losses' | 'tests', step: number, count: Report, rank: number): void {
    const { ranks, isAlone } = this.strategy
    if (!isAlone && rank !== 0) return
    const key = `${line} ${step}`
    const part = this.#parts.get(key) ?? { count: 0, weight: 0, sum: 0, seconds: 0 }
    part.count++
    part.weight += count.weight
    part.sum += count.weight * count.value
    part.seconds = Math.max(part.seconds, count.seconds)
    this.#parts.set(key, part)
    if (part.count < (isAlone ? ranks : 1)) return
    this.#parts.delete(key)
    const points = this[line]
    points.steps.push(step)
    points.seconds.push(part.seconds)
    points.samples.push(
      line === 'losses' ? this.samples + (count.globalSamples ?? 0) : this.samples,
    )
    points.values.push(part.weight > 0 ? part.sum / part.weight : count.value)
  }
}

interface Report {
  readonly weight: number
  readonly value: number
  readonly seconds: number
  readonly globalSamples?: number
}

interface Part {
  count: number
  weight: number
  sum: number
  seconds: number
}

const noPoints = (): Points => ({ steps: [], samples: [], seconds: [], values: [] })
