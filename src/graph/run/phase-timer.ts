import { PassClock } from '../../gpu/clock.ts'
import type { Gpu } from '../../gpu/device.ts'
import { mapped } from '../../gpu/readback.ts'
import { bufferUsage } from '../../gpu/usage.ts'
import { type PhaseRange, type PhaseShares, phases } from '../plan/phases.ts'

/** The first runs are timed, then one in `timedEvery`: the program is the same in all of them. */
const timedAtFirst = 4
const timedEvery = 8

/** Share of the samples before that each sample keeps: clocks of browsers tick in 100 us, so short steps need several samples to be distinguished. */
const keptOfOlder = 0.7

/** Time of the device by phase; all of it is backward's where the phases are not distinguished. */
export function splitTime(ms: number, shares: PhaseShares | undefined): PhaseShares {
  if (!shares) return { forward: 0, backward: ms, optimizer: 0 }
  const { forward, backward, optimizer } = shares
  const scale = ms / (forward + backward + optimizer)
  return { forward: forward * scale, backward: backward * scale, optimizer: optimizer * scale }
}

/** Shares of a program that has one phase alone, which needs no clock. */
export function sharesOfOnePhase(ranges: readonly PhaseRange[]): PhaseShares | undefined {
  const [first, ...others] = new Set(ranges.map(({ phase }) => phase))
  if (first === undefined || others.length > 0) return undefined
  return { forward: 0, backward: 0, optimizer: 0, [first]: 1 }
}

/**
 * Times forward, backward and optimizer of a program on the device's own clock: on sampled runs, each range of one phase is a pass
 * between two timestamps, or several passes where a submit ends inside it. No submit is added, and nothing is created in a run.
 */
export class PhaseTimer {
  readonly #clock: PassClock
  readonly #ranges: readonly PhaseRange[]
  readonly #staging: GPUBuffer
  readonly #gpu: Gpu
  #runs = 0
  #isTimed = false
  /** Timestamps that are on their way: until they are there, no other run is timed. */
  #isReading = false
  readonly #sums = { forward: 0, backward: 0, optimizer: 0 }

  private constructor(gpu: Gpu, ranges: readonly PhaseRange[]) {
    this.#gpu = gpu
    this.#ranges = ranges
    this.#clock = new PassClock(gpu, ranges.length)
    this.#staging = gpu.createBuffer(
      'readback of phase times',
      ranges.length * 16,
      bufferUsage.MAP_READ | bufferUsage.COPY_DST,
    )
  }

  /** A timer for `ranges`; undefined where the device has no timestamps or there is nothing to time. */
  static of(gpu: Gpu, ranges: readonly PhaseRange[]): PhaseTimer | undefined {
    return gpu.facts.hasTimestamps && ranges.length > 0 ? new PhaseTimer(gpu, ranges) : undefined
  }

  /** Decides whether the run that begins is timed. */
  begin(): void {
    const isDue = this.#runs < timedAtFirst || this.#runs % timedEvery === 0
    this.#runs++
    this.#isTimed = isDue && !this.#isReading
  }

  /** Passes for dispatches [start, end), timed where this run is: each gets the dispatches that it holds. */
  passes(start: number, end: number): readonly TimedPass[] {
    if (!this.#isTimed) return []
    return this.#ranges.flatMap((range, slot) => {
      const part = { start: Math.max(range.start, start), end: Math.min(range.end, end) }
      if (part.start >= part.end) return []
      const isFirst = part.start === range.start
      const isLast = part.end === range.end
      return [{ ...part, descriptor: this.#clock.pass(slot, isFirst, isLast) }]
    })
  }

  /** Records, behind the last timed pass, the copies that bring the times to the host; `read` maps them after the submit. */
  resolve(encoder: GPUCommandEncoder): void {
    if (this.#isTimed) this.#clock.resolve(encoder, this.#staging)
  }

  /** The milliseconds that the run that was submitted last takes on the device, if it is timed. errors: the device's. */
  async read(): Promise<PhaseShares | undefined> {
    if (!this.#isTimed) return undefined
    this.#isTimed = false
    this.#isReading = true
    try {
      await mapped(this.#gpu, this.#staging)
      const times = new BigUint64Array(this.#staging.getMappedRange())
      const newest = { forward: 0, backward: 0, optimizer: 0 }
      this.#ranges.forEach(({ phase }, slot) => {
        // A device may round its clock so that an end comes before its begin.
        newest[phase] += Math.max(0, Number(times[2 * slot + 1] - times[2 * slot]) / 1e6)
      })
      this.#staging.unmap()
      for (const phase of phases)
        this.#sums[phase] = keptOfOlder * this.#sums[phase] + newest[phase]
      return newest
    } finally {
      this.#isReading = false
    }
  }

  /** Of the samples so far, newer ones counting more; undefined while the clock has not ticked in any. */
  get shares(): PhaseShares | undefined {
    return phases.some((phase) => this.#sums[phase] > 0) ? this.#sums : undefined
  }

  destroy(): void {
    this.#clock.destroy()
    this.#staging.destroy()
  }
}

/** A pass of a timed run. */
export interface TimedPass {
  readonly start: number
  readonly end: number
  readonly descriptor: GPUComputePassDescriptor
}
