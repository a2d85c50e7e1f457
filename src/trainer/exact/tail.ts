import type { StoredData } from '../../graph/memory/pool.ts'
import type { RunOutputs } from '../../graph/plan/step-program.ts'
import type { ModuleBuffer } from '../../graph/trace/module-buffer.ts'

/** What all virtual workers tell besides their gradients. */
export interface Told {
  /** Samples of all. */
  readonly count: number
  /** Means over them. */
  readonly loss: number
  /** Losses of virtual workers that are not finite. */
  readonly notFinite: readonly { readonly worker: number; readonly loss: number }[]
  readonly metric: number
  readonly hasMetric: boolean
  /** By virtual worker; 0 for one without rows. units: µs. */
  readonly tookUs: readonly number[]
  /** The sum of the ranks' words. */
  readonly word: number
}

/** Samples, the bits of loss and metric, whether there is a metric, how many µs it took. */
const numbers = 5

/**
 * Words that travel with the sums: each virtual worker has its own, which it alone writes, so that adding whole numbers puts them together.
 *
 * Running statistics are among them: each virtual worker changes those from before the step by its own rows, and the mean of what they come
 * to is what all ranks have after it.
 */
export class Tail {
  readonly #virtualWorkers: number
  readonly buffers: readonly ModuleBuffer[]
  readonly #words: number
  /** The buffers as they are between two steps. */
  #before: StoredData[] | undefined
  #after: StoredData[] = []

  constructor(virtualWorkers: number, buffers: readonly ModuleBuffer[]) {
    this.#virtualWorkers = virtualWorkers
    this.buffers = buffers
    this.#words = numbers + buffers.reduce((sum, { count }) => sum + count, 0)
  }

  /** What buffer `i` is between two steps; undefined until it is read. */
  hostValues(i: number): StoredData | undefined {
    return this.#before?.[i]
  }

  /** The last element is the ranks' word. */
  get length(): number {
    return this.#virtualWorkers * this.#words + 1
  }

  get hasBuffers(): boolean {
    return this.buffers.length > 0
  }

  /** What the buffers are between two steps; they are read before the first. */
  async readBuffers(): Promise<readonly StoredData[]> {
    this.#before ??= await Promise.all(this.buffers.map((buffer) => buffer.read()))
    return this.#before
  }

  /** The buffers get other contents. */
  forget(): void {
    this.#before = undefined
  }

  /** Takes what one virtual worker's replay gave, and makes the buffers what they were before it. */
  async write(
    tail: Int32Array<ArrayBuffer>,
    worker: number,
    count: number,
    { loss, metric }: RunOutputs,
  ): Promise<void> {
    const own = tail.subarray(worker * this.#words, (worker + 1) * this.#words)
    own[0] = count
    own[1] = bitsOf(Float32Array.of(loss[0]))[0]
    if (metric) own[2] = bitsOf(Float32Array.of(metric[0]))[0]
    own[3] = metric ? 1 : 0
    let at = numbers
    for (const [i, buffer] of this.buffers.entries()) {
      own.set(bitsOf(await buffer.readHome()), at)
      buffer.assign(this.#before![i])
      at += buffer.count
    }
  }

  /** Notes how long each of `count` virtual workers took. */
  writeTimes(tail: Int32Array, first: number, count: number, tookMs: number): void {
    const us = wholeUs(tookMs)
    for (let worker = first; worker < first + count; worker++) tail[worker * this.#words + 4] = us
  }

  /** What all told, in the order of the virtual workers. */
  read(tail: Int32Array<ArrayBuffer>): Told {
    const workers = Array.from({ length: this.#virtualWorkers }, (_, worker) =>
      tail.subarray(worker * this.#words, (worker + 1) * this.#words),
    )
    const all = workers.filter(([count]) => count > 0)
    const float = (word: number) => new Float32Array(Int32Array.of(word).buffer)[0]
    let samples = 0
    let loss = 0
    let metric = 0
    for (const [count, lossBits, metricBits] of all) {
      samples += count
      loss += count * float(lossBits)
      metric += count * float(metricBits)
    }
    const notFinite = workers.flatMap(([, lossBits], worker) => {
      const own = float(lossBits)
      return Number.isFinite(own) ? [] : [{ worker, loss: own }]
    })
    let at = numbers
    this.#after = this.buffers.map((buffer) => {
      const words = all.map((own) => own.slice(at, at + buffer.count))
      at += buffer.count
      if (buffer.dtype === 'i32') return words[0]
      const floats = words.map(({ buffer: bytes }) => new Float32Array(bytes))
      return Float32Array.from(floats[0], (_, i) => {
        let sum = 0
        for (const own of floats) sum += own[i]
        return sum / floats.length
      })
    })
    const hasMetric = all.some(([, , , has]) => has === 1)
    const word = tail[tail.length - 1]
    const tookUs = workers.map((own) => own[4])
    const means = { loss: loss / samples, metric: metric / samples }
    return { count: samples, ...means, notFinite, hasMetric, tookUs, word }
  }

  /** Makes the buffers what `read` found, once the step counts. */
  assignBuffers(): void {
    for (const [i, buffer] of this.buffers.entries()) buffer.assign(this.#after[i] as never)
    this.#before = this.#after
  }
}

/** The µs that ranks send: at least 1, at most `mostUs`. `tookMs`: in ms. */
export const wholeUs = (tookMs: number): number =>
  Math.max(1, Math.min(mostUs, Math.round(tookMs * 1000)))
export const mostUs = 2 ** 31 - 1

const bitsOf = (data: StoredData): Int32Array<ArrayBuffer> =>
  new Int32Array(data.buffer, data.byteOffset, data.length)
