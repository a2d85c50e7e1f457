import type { StoredData } from '../../graph/memory/pool.ts'
import type { RunOutputs } from '../../graph/plan/step-program.ts'
import type { ModuleBuffer } from '../../graph/trace/module-buffer.ts'
import { Sections } from '../../util/sections.ts'

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
  /** The sum of the ranks' flags. */
  readonly flags: number
}

/** What a virtual worker tells: loss, metric and running statistics as their bits. */
const workerSections = (buffers: number) =>
  new Sections({ count: 1, loss: 1, metric: 1, hasMetric: 1, tookUs: 1, buffers })

/**
 * Words that travel with the sums: each virtual worker has its own, which it alone writes, so that adding whole numbers puts them together.
 *
 * Running statistics are among them: each virtual worker changes those from before the step by its own rows, and the mean of what they come
 * to is what all ranks have after it.
 */
export class Tail {
  readonly buffers: readonly ModuleBuffer[]
  readonly #own: ReturnType<typeof workerSections>
  readonly #all: Sections<'workers' | 'flags'>
  /** The buffers as they are between two steps. */
  #before: StoredData[] | undefined
  #after: StoredData[] = []

  constructor(virtualWorkers: number, buffers: readonly ModuleBuffer[]) {
    this.buffers = buffers
    this.#own = workerSections(buffers.reduce((sum, { count }) => sum + count, 0))
    this.#all = new Sections({ workers: virtualWorkers * this.#own.length, flags: 1 })
  }

  /** What buffer `i` is between two steps; undefined until it is read. */
  hostValues(i: number): StoredData | undefined {
    return this.#before?.[i]
  }

  get length(): number {
    return this.#all.length
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
    const own = this.#workers(tail)[worker]
    this.#own.write(own, {
      count,
      loss: bitsOf(Float32Array.of(loss[0])),
      ...(metric && { metric: bitsOf(Float32Array.of(metric[0])), hasMetric: 1 }),
    })
    const statistics = this.#own.of(own, 'buffers')
    let at = 0
    for (const [i, buffer] of this.buffers.entries()) {
      statistics.set(bitsOf(await buffer.readHome()), at)
      buffer.assign(this.#before![i])
      at += buffer.count
    }
  }

  /** Notes what this rank asks of all. */
  writeFlags(tail: Int32Array<ArrayBuffer>, flags: number): void {
    this.#all.write(tail, { flags })
  }

  /** Notes how long each of `count` virtual workers took. */
  writeTimes(tail: Int32Array<ArrayBuffer>, first: number, count: number, tookMs: number): void {
    const tookUs = wholeUs(tookMs)
    for (const own of this.#workers(tail).slice(first, first + count))
      this.#own.write(own, { tookUs })
  }

  #workers(tail: Int32Array<ArrayBuffer>): Int32Array<ArrayBuffer>[] {
    return this.#own.rows(this.#all.of(tail, 'workers'))
  }

  /** What all told, in the order of the virtual workers. */
  read(tail: Int32Array<ArrayBuffer>): Told {
    const float = (bits: number) => new Float32Array(Int32Array.of(bits).buffer)[0]
    const workers = this.#workers(tail).map((words) => {
      const own = this.#own.read(words)
      return { ...own, words, loss: float(own.loss), metric: float(own.metric) }
    })
    const all = workers.filter(({ count }) => count > 0)
    const sumOf = (term: (own: (typeof all)[number]) => number) =>
      all.reduce((sum, own) => sum + term(own), 0)
    const count = sumOf((own) => own.count)
    const notFinite = workers.flatMap(({ loss }, worker) =>
      Number.isFinite(loss) ? [] : [{ worker, loss }],
    )
    const statistics = all.map(({ words }) => this.#own.of(words, 'buffers'))
    let at = 0
    this.#after = this.buffers.map((buffer) => {
      const words = statistics.map((own) => own.slice(at, at + buffer.count))
      at += buffer.count
      if (buffer.dtype === 'i32') return words[0]
      const floats = words.map(({ buffer: bytes }) => new Float32Array(bytes))
      return Float32Array.from(floats[0], (_, i) => {
        let sum = 0
        for (const own of floats) sum += own[i]
        return sum / floats.length
      })
    })
    return {
      count,
      loss: sumOf((own) => own.count * own.loss) / count,
      metric: sumOf((own) => own.count * own.metric) / count,
      notFinite,
      hasMetric: all.some(({ hasMetric }) => hasMetric === 1),
      tookUs: workers.map(({ tookUs }) => tookUs),
      flags: this.#all.read(tail).flags,
    }
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
