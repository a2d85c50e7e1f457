import type { Gpu } from '../../gpu/device.ts'
import type { OnMark } from '../plan/step-program.ts'
import type { Stop } from '../plan/stops.ts'
import { isSameWork, syncPointMark, type Work, workMark } from '../plan/work.ts'
import { type RunExchange, untimed } from './sync-points.ts'

/** Notes when the device did each piece of a watched run, and when its meetings took place. */
export class WorkWatch {
  readonly #gpu: Gpu
  readonly #onMark: OnMark
  #count = 0
  #readyMs = performance.now()

  constructor(gpu: Gpu, onMark: OnMark) {
    this.#gpu = gpu
    this.#onMark = onMark
  }

  /** Notes that the inputs of the next piece are there. */
  ready(): void {
    this.#readyMs = performance.now()
  }

  /** A piece was submitted. */
  submitted(work: Work): void {
    const index = this.#count++
    this.#onMark(workMark(work, index, 'ready'), this.#readyMs)
    const done = () => this.#onMark(workMark(work, index, 'done'), performance.now())
    this.#gpu.queue.onSubmittedWorkDone().then(done, () => undefined)
  }

  /** Runs a stop's exchange and notes it. */
  around(stop: Stop): RunExchange | undefined {
    return stop.kind === 'begin' ? markExchange(stop.syncPoint, this.#onMark) : undefined
  }
}

/** The same where the host computes: pieces end where the work changes, and at sync points. */
export class HostWorkWatch {
  readonly #onMark: OnMark
  #work: Work | undefined
  #count = 0

  constructor(onMark: OnMark) {
    this.#onMark = onMark
  }

  /** Before a node is computed. */
  enter(work: Work): void {
    if (this.#work && isSameWork(this.#work, work)) return
    this.leave()
    this.#work = work
    this.#mark('ready')
  }

  /** Before the host waits for others, and at the end. */
  leave(): void {
    if (!this.#work) return
    this.#mark('done')
    this.#count++
    this.#work = undefined
  }

  #mark(what: 'ready' | 'done'): void {
    this.#onMark(workMark(this.#work!, this.#count, what), performance.now())
  }
}

/** Notes when an exchange was launched, when all ranks had launched it, and when it ended. `around` runs it. */
export const markExchange =
  (
    syncPoint: Parameters<typeof syncPointMark>[0],
    onMark: OnMark | undefined,
    around = untimed,
  ): RunExchange =>
  async (run) => {
    const mark = (what: 'launched' | 'met' | 'ended') =>
      onMark?.(syncPointMark(syncPoint, what), performance.now())
    mark('launched')
    const result = await around((onAllBegun) =>
      run(() => {
        mark('met')
        onAllBegun()
      }),
    )
    mark('ended')
    return result
  }
