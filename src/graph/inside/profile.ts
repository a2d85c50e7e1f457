import { PassClock } from '../../gpu/clock.ts'
import type { Gpu } from '../../gpu/device.ts'
import { log } from '../../util/log.ts'
import { isTracing, span } from '../../util/spans.ts'
import { switchValue } from '../../util/switches.ts'
import type { PhaseRange, PhaseShares } from '../plan/phases.ts'
import type { Prepared } from '../plan/prepare.ts'
import { formatKernels, formatTotals, type KernelRow, kernelRows } from './kernel-rows.ts'

const isPowerOfTwo = (count: number): boolean => (count & (count - 1)) === 0

let programs = 0

/**
 * Times of a program's kernels, run by run: `debug=2` and `trace=1`.
 *
 * Each dispatch gets a separate pass with two timestamps, and runs go one after the other, so a step is slower than without.
 */
export class Profile {
  readonly #name = `program ${++programs}`
  readonly #rows: KernelRow[]
  readonly #clock: PassClock | undefined
  /** Milliseconds by dispatch, since the last table. */
  readonly #sums: Float64Array
  readonly #newest: Float64Array
  #summed = 0
  #runs = 0
  /** The least seen of host's time less the device's, at moments when the host knew of the device's last end. */
  #hostAhead = Number.POSITIVE_INFINITY

  private constructor(gpu: Gpu, prepared: Prepared) {
    const dispatches = prepared.plan.dispatches.length
    this.#rows = kernelRows(prepared)
    this.#sums = new Float64Array(dispatches)
    this.#newest = new Float64Array(dispatches)
    if (gpu.facts.hasTimestamps) this.#clock = new PassClock(gpu, dispatches)
    else {
      console.info(
        `tabring kernels: the adapter has no timestamp-query, so ${this.#name} has no kernel times, only host times of whole runs`,
      )
    }
  }

  /** A program's profile where a switch asks for one. */
  static of(gpu: Gpu, prepared: Prepared): Profile | undefined {
    const isWanted = switchValue('debug') >= 2 || isTracing()
    return isWanted && prepared.plan.dispatches.length > 0 ? new Profile(gpu, prepared) : undefined
  }

  /** True if dispatches need separate passes. */
  get isTiming(): boolean {
    return this.#clock !== undefined
  }

  /** The last run's device time by phase; undefined without timestamps. */
  shares(ranges: readonly PhaseRange[]): PhaseShares | undefined {
    if (!this.#clock || !this.#newest.some((ms) => ms > 0)) return undefined
    const sums = { forward: 0, backward: 0, optimizer: 0 }
    for (const { phase, start, end } of ranges) {
      for (let i = start; i < end; i++) sums[phase] += this.#newest[i]
    }
    return sums
  }

  pass(dispatch: number): GPUComputePassDescriptor | undefined {
    return this.#clock?.pass(dispatch)
  }

  /** Waits for a run and logs it; resolves and rejects as the run does. */
  async watch<T>(run: Promise<T>, beganMs: number): Promise<T> {
    const result = await run
    const endedMs = performance.now()
    this.#runs++
    span('steps', `${this.#name} run ${this.#runs}`, beganMs, endedMs)
    if (this.#clock) this.#take(await this.#clock.read(), endedMs)
    else this.#total(endedMs - beganMs, 'host')
    return result
  }

  destroy(): void {
    this.#clock?.destroy()
  }

  /** `times`: begin and end by dispatch in nanoseconds. */
  #take(times: BigUint64Array, endedMs: number): void {
    let lastEnd = 0
    let total = 0
    // A device may round its clock so that an end comes before its begin.
    const msOf = (i: number) => Math.max(0, Number(times[2 * i + 1] - times[2 * i]) / 1e6)
    for (let i = 0; i < this.#sums.length; i++) {
      const ms = msOf(i)
      this.#sums[i] += ms
      this.#newest[i] = ms
      total += ms
      lastEnd = Math.max(lastEnd, Number(times[2 * i + 1]) / 1e6)
    }
    this.#summed++
    this.#hostAhead = Math.min(this.#hostAhead, endedMs - lastEnd)
    if (isTracing()) this.#trace(times, msOf)
    this.#total(total, 'timestamps')
    if (!isPowerOfTwo(this.#runs)) return
    const means = this.#sums.map((sum) => sum / this.#summed)
    log(
      2,
      'kernels',
      () =>
        `${this.#name}, run ${this.#runs}, means of ${this.#summed} runs:\n${formatKernels(this.#rows, means)}`,
    )
    this.#sums.fill(0)
    this.#summed = 0
  }

  #trace(times: BigUint64Array, msOf: (dispatch: number) => number): void {
    for (const { op, variant, dims, flops, bytes, start, end } of this.#rows) {
      for (let i = start; i < end; i++) {
        if (times[2 * i] === 0n) continue
        const at = Number(times[2 * i]) / 1e6 + this.#hostAhead
        span('kernels', op, at, at + msOf(i), { variant, dims, flops: flops ?? '-', bytes })
      }
    }
  }

  #total(ms: number, by: string): void {
    log(
      2,
      'kernels',
      () => `${this.#name}, run ${this.#runs} by ${by}: ${formatTotals(this.#rows, ms)}`,
    )
  }
}
