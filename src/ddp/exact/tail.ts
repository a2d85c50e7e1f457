import type { StoredData } from '../../graph/memory/pool.ts'
import type { RunOutputs } from '../../graph/plan/step-program.ts'
import type { ModuleBuffer } from '../../graph/trace/module-buffer.ts'
import { Sections } from '../../util/sections.ts'

/** Report of all virtual workers besides their gradients. */
export interface Report {
  /** By virtual worker. */
  readonly rows: readonly number[]
  /** Weight of all gradients together: the samples. */
  readonly count: number
  /** Means over them, by name. */
  readonly outputs: Readonly<Record<string, number>>
  /** Losses of virtual workers that are not finite. */
  readonly notFinite: readonly { readonly worker: number; readonly loss: number }[]
  /** By virtual worker; 0 for one without rows. units: µs. */
  readonly tookUs: readonly number[]
  /** The sum of the ranks' flags. */
  readonly flags: number
}

/** Words of a virtual worker: outputs and running statistics as their bits. */
const workerSections = (outputs: number, buffers: number) =>
  new Sections({ rows: 1, count: 1, outputs, tookUs: 1, buffers })

/**
 * Words that travel with the sums: each virtual worker has its own, which it alone writes, so that adding whole numbers puts them together.
 *
 * Running statistics are among them: each virtual worker changes those from before the step by its own rows, and the mean of what they come
 * to is what all ranks have after it.
 */
export class Tail {
  readonly buffers: readonly ModuleBuffer[]
  /** Names of the scalar outputs. */
  readonly outputs: readonly string[]
  readonly #own: ReturnType<typeof workerSections>
  readonly #all: Sections<'workers' | 'flags'>
  /** The buffers as they are between two steps. */
  #before: StoredData[] | undefined
  /** Of the buffers, as this has left them. */
  #revisions: readonly number[] = []
  #after: StoredData[] = []

  constructor(
    virtualWorkers: number,
    buffers: readonly ModuleBuffer[],
    outputs: readonly string[],
  ) {
    this.buffers = buffers
    this.outputs = outputs
    const length = buffers.reduce((sum, { count }) => sum + count, 0)
    this.#own = workerSections(outputs.length, length)
    this.#all = new Sections({ workers: virtualWorkers * this.#own.length, flags: 1 })
  }

  /** Returns the contents of buffer `i` between two steps; undefined until it is read. */
  hostValues(i: number): StoredData | undefined {
    return this.#isCurrent ? this.#before![i] : undefined
  }

  get length(): number {
    return this.#all.length
  }

  get hasBuffers(): boolean {
    return this.buffers.length > 0
  }

  /** Reads the contents of the buffers between two steps; they are read before the first. */
  async readBuffers(): Promise<readonly StoredData[]> {
    if (!this.#isCurrent) {
      this.#noteRevisions()
      this.#before = await Promise.all(this.buffers.map((buffer) => buffer.readHome()))
    }
    return this.#before!
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
    outputs: RunOutputs,
  ): Promise<void> {
    const own = this.#worker(tail, worker)
    const means = Float32Array.from(this.outputs, (name) => outputs[name][0])
    this.#own.write(own, { count, outputs: bitsOf(means) })
    const statistics = this.#own.of(own, 'buffers')
    let at = 0
    for (const [i, buffer] of this.buffers.entries()) {
      statistics.set(bitsOf(await buffer.readHome()), at)
      buffer.receive(this.#before![i])
      at += buffer.count
    }
    this.#noteRevisions()
  }

  /** Notes how many samples a virtual worker has. */
  writeRows(tail: Int32Array<ArrayBuffer>, worker: number, rows: number): void {
    this.#own.write(this.#worker(tail, worker), { rows })
  }

  /** Notes what this rank asks of all. */
  writeFlags(tail: Int32Array<ArrayBuffer>, flags: number): void {
    this.#all.write(tail, { flags })
  }

  /** Notes how long each of `count` virtual workers took. */
  writeTimes(tail: Int32Array<ArrayBuffer>, first: number, count: number, tookMs: number): void {
    const tookUs = wholeUs(tookMs)
    for (let i = first; i < first + count; i++) this.#own.write(this.#worker(tail, i), { tookUs })
  }

  /** Returns a copy without what no other rank could compute: times and flags. */
  computed(tail: Int32Array<ArrayBuffer>): Int32Array<ArrayBuffer> {
    const copy = this.#all.write(tail.slice(), { flags: 0 })
    for (const own of this.#workers(copy)) this.#own.write(own, { tookUs: 0 })
    return copy
  }

  #worker(tail: Int32Array<ArrayBuffer>, worker: number): Int32Array<ArrayBuffer> {
    return this.#own.row(this.#all.of(tail, 'workers'), worker)
  }

  #workers(tail: Int32Array<ArrayBuffer>): Int32Array<ArrayBuffer>[] {
    return this.#own.rows(this.#all.of(tail, 'workers'))
  }

  /** Reads what all ranks sent, in the order of the virtual workers. */
  read(tail: Int32Array<ArrayBuffer>): Report {
    const workers = this.#workers(tail).map((words) => {
      const { rows, count, tookUs } = this.#own.read(words)
      const outputs = new Float32Array(this.#own.of(words, 'outputs').slice().buffer)
      return { rows, count, tookUs, words, outputs }
    })
    const all = workers.filter(({ count }) => count > 0)
    const sumOf = (term: (own: (typeof all)[number]) => number) =>
      all.reduce((sum, own) => sum + term(own), 0)
    const count = sumOf((own) => own.count)
    const lossAt = this.outputs.indexOf('loss')
    const notFinite = workers.flatMap(({ outputs: { [lossAt]: loss = 0 } }, worker) =>
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
      rows: workers.map(({ rows }) => rows),
      count,
      outputs: Object.fromEntries(
        this.outputs.map((name, i) => [name, sumOf((own) => own.count * own.outputs[i]) / count]),
      ),
      notFinite,
      tookUs: workers.map(({ tookUs }) => tookUs),
      flags: this.#all.read(tail).flags,
    }
  }

  /** Makes the buffers what `read` found, once the step counts. */
  assignBuffers(): void {
    for (const [i, buffer] of this.buffers.entries()) buffer.receive(this.#after[i] as never)
    this.#before = this.#after
    this.#noteRevisions()
  }

  /** True if nobody else has given the buffers other contents. */
  get #isCurrent(): boolean {
    return (
      this.#before !== undefined &&
      this.buffers.every(({ revision }, i) => revision === this.#revisions[i])
    )
  }

  #noteRevisions(): void {
    this.#revisions = this.buffers.map(({ revision }) => revision)
  }
}

/** The µs that ranks send: at least 1, at most `maxUs`. `tookMs`: in ms. */
export const wholeUs = (tookMs: number): number =>
  Math.max(1, Math.min(maxUs, Math.round(tookMs * 1000)))
export const maxUs = 2 ** 31 - 1

const bitsOf = (data: StoredData): Int32Array<ArrayBuffer> =>
  new Int32Array(data.buffer, data.byteOffset, data.length)
