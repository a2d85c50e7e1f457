import type { TabringError } from '../../../src/util/errors.ts'
import type { Failure, Order, Part, Report } from './messages.ts'

/** What to do next: run these ranks, or leave. */
export type Task =
  | {
      type: 'run'
      part: Part
      /** Aborts when the tabs must be closed before they have ended. */
      stop: AbortSignal
    }
  | { type: 'leave'; failure: Failure | null }

/** A launcher's side of the talk with the leader: orders come in, tasks come out one at a time. */
export class Follower {
  readonly #tasks: Task[] = []
  #wake: () => void = () => undefined
  #stop = new AbortController()
  #lost: TabringError | null = null

  constructor(private readonly report: (report: Report) => void) {}

  /** Takes an order of the leader. */
  receive(order: Order): void {
    if (order.type === 'stop') {
      this.#stop.abort()
      return
    }
    this.#stop.abort()
    if (order.type === 'start') {
      this.#stop = new AbortController()
      this.#tasks.push({ type: 'run', part: order.part, stop: this.#stop.signal })
    } else this.#tasks.push({ type: 'leave', failure: order.failure })
    this.#wake()
  }

  /** The leader is gone. */
  lost(error: TabringError): void {
    this.#lost = error
    this.#stop.abort()
    this.#wake()
  }

  /** The next task, once there is one. errors: that the leader is gone, when it left no task. */
  async next(): Promise<Task> {
    for (;;) {
      const task = this.#tasks.shift()
      if (task) return task
      if (this.#lost) throw this.#lost
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
  }

  /** Tells the leader of a rank that failed. */
  failed({ attempt }: Part, failure: Failure): void {
    this.report({ type: 'failed', attempt, failure })
  }

  /** Tells the leader that no tab of this start is open any more. */
  ended({ attempt }: Part): void {
    this.report({ type: 'ended', attempt })
  }
}
