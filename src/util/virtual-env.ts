import type { Env } from './env.ts'
import { nextTask } from './next-task.ts'

interface Timer {
  atMs: number
  order: number
  /** Undefined once it has run or was cancelled. */
  run: (() => void) | undefined
}

/**
 * An `Env` whose clock moves only when a test advances it: hours of waiting cost nothing, and one seed replays a run.
 *
 * order: timers run by time, then in the order they were set; between two of them all pending promises settle.
 */
export class VirtualEnv implements Env {
  private clockMs = 0
  private order = 0
  private waiting = 0
  /** A binary heap, earliest first. */
  private readonly heap: Timer[] = []
  private readonly draw: () => number

  constructor(seed = 1) {
    this.draw = seededRandom(seed)
  }

  now(): number {
    return this.clockMs
  }

  after(delayMs: number, callback: () => void): () => void {
    const atMs = this.clockMs + Math.max(0, delayMs)
    const timer: Timer = { atMs, order: this.order++, run: callback }
    this.push(timer)
    this.waiting += 1
    return () => {
      if (timer.run) this.waiting -= 1
      timer.run = undefined
    }
  }

  /** Timers that will run. */
  get timers(): number {
    return this.waiting
  }

  random(length: number): Uint8Array {
    return Uint8Array.from({ length }, () => Math.floor(this.draw() * 256))
  }

  /** A number from 0 to 1, from the seed. */
  chance(): number {
    return this.draw()
  }

  /** Runs the world for `durationMs`. */
  async advance(durationMs: number): Promise<void> {
    const untilMs = this.clockMs + durationMs
    await settlePromises()
    while (this.nextMs <= untilMs) await this.step()
    this.clockMs = untilMs
  }

  /** Runs the world until `promise` settles and returns or throws its outcome; at most `limitMs` of virtual time. */
  async until<T>(promise: Promise<T>, limitMs = 600_000): Promise<T> {
    const untilMs = this.clockMs + limitMs
    let isSettled = false
    const settle = () => {
      isSettled = true
    }
    promise.then(settle, settle)
    await settlePromises()
    while (!isSettled) {
      if (this.nextMs > untilMs)
        throw new Error(`virtual env: nothing settled within ${limitMs} ms`)
      await this.step()
    }
    return promise
  }

  /** Runs all timers of the next moment. Returns whether there was one. */
  async step(): Promise<boolean> {
    const { nextMs } = this
    if (nextMs === Number.POSITIVE_INFINITY) return false
    this.clockMs = nextMs
    while (this.heap.length > 0 && this.heap[0]!.atMs <= this.clockMs) {
      const timer = this.pop()
      const { run } = timer
      if (!run) continue
      timer.run = undefined
      this.waiting -= 1
      run()
    }
    await settlePromises()
    return true
  }

  /** When the next timer runs; infinity for none. */
  private get nextMs(): number {
    while (this.heap.length > 0 && !this.heap[0]!.run) this.pop()
    return this.heap[0]?.atMs ?? Number.POSITIVE_INFINITY
  }

  private push(timer: Timer): void {
    const { heap } = this
    let index = heap.push(timer) - 1
    while (index > 0) {
      const parent = (index - 1) >> 1
      if (isBefore(heap[parent]!, timer)) break
      heap[index] = heap[parent]!
      index = parent
    }
    heap[index] = timer
  }

  private pop(): Timer {
    const { heap } = this
    const top = heap[0]!
    const last = heap.pop()!
    if (heap.length > 0) {
      let index = 0
      for (;;) {
        let child = 2 * index + 1
        if (child >= heap.length) break
        if (child + 1 < heap.length && isBefore(heap[child + 1]!, heap[child]!)) child += 1
        if (isBefore(last, heap[child]!)) break
        heap[index] = heap[child]!
        index = child
      }
      heap[index] = last
    }
    return top
  }
}

function isBefore(a: Timer, b: Timer): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order)
}

/** A separate task comes after every pending promise job. Node's setImmediate is the fastest one. */
function settlePromises(): Promise<void> {
  if (typeof setImmediate !== 'function') return nextTask()
  return new Promise((resolve) => setImmediate(resolve))
}

/** Returns numbers from 0 to 1 that depend on `seed` alone (a 32-bit linear congruence, mixed; not for numbers that are trained on). */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    let mixed = state ^ (state >>> 16)
    mixed = Math.imul(mixed, 0x45d9f3b)
    mixed ^= mixed >>> 15
    return (mixed >>> 0) / 4294967296
  }
}
