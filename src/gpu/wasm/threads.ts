import { messageOf } from '../../util/errors.ts'
import { cores, wantedThreads } from '../num-threads.ts'
import type { WasmHeap } from './heap.ts'
import type { WasmPipeline } from './pipeline.ts'
import { startThread, type Thread } from './start-thread.ts'
import { controlLayout as at } from './thread.ts'

/** A thread that has not begun by then, nor this much later, will not. units: ms. */
const [beginMs, secondMs] = [5_000, 500]
/** units: ms. */
const warnMs = 50
/** How often, and for how long each time, the caller waits for a thread before it counts as dead; between the times its event loop has a turn. units: ms. */
const [maxWaits, waitMs] = [20, 1_000]
/** A dispatch that takes less is not worth waking a thread for. units: ms. */
const minSharedMs = 0.03
/** Pieces of a dispatch for each thread: one that is slow takes fewer. */
const piecesPerThread = 8
/** A worker with more unused kernels is replaced: some 2 MB. */
const maxUnused = 200
/** Tasks are numbered from 1 to this, and again: what `open` holds is a positive number of 31 bits. */
const maxTask = 2 ** 23 - 1
const controlWords = at.bells + 2 * at.maxThreads * at.lineWords

/** A dispatch, or one of several that run piece by piece (gpu/together-pass.ts). */
export interface StageTask {
  readonly pipeline: WasmPipeline
  readonly groups: readonly [number, number, number]
  readonly groupsAPiece: number
  readonly addresses: readonly number[]
  /** By address: from one run to the next. */
  readonly strides: readonly number[]
}

/** A worker, and what it has. */
interface Helper {
  readonly bell: number
  readonly index: number
  readonly kernels: WeakSet<WasmPipeline>
  /** Kernels that it may have and nothing uses any more. */
  unused: number
  /** A kernel that it was given, and where the code is. */
  loading?: { readonly pipeline: WasmPipeline; readonly address: number }
  readonly thread: Thread
}

/**
 * The threads that run a device's dispatches: the one that calls, and workers on the device's memory.
 *
 * Workgroups need nothing of each other, so that no result depends on who takes which. Tasks are given in a control block of the device's
 * memory, and no message is sent: a worker never returns to its event loop, and sees the next task within microseconds.
 */
export class Threads {
  readonly #heap: WasmHeap
  /** The control block; none where the caller is alone. */
  #words = new Int32Array()
  #canSleep = false
  /** Number of the newest task. */
  #task = 0
  /** True from when a task is given until it is over. */
  #isOpen = false
  /** How often the caller has waited for this task. */
  #waits = 0
  /** What the caller's own part of it has thrown. */
  #thrown: { readonly error: unknown } | undefined
  /** Which thread ended while it was at the task, and why. */
  #died: string | undefined
  /** Scratch memory that was replaced during the task. */
  readonly #replaced: number[] = []
  readonly #helpers: Helper[] = []
  /** By index of a thread: which of its two lines its worker has. */
  readonly #lines: number[] = []
  readonly #collected = new FinalizationRegistry<undefined>(() => {
    for (const helper of this.#helpers) helper.unused++
  })
  /** Those that have begun, as far as was asked. */
  #begun: readonly Helper[] = []
  /** Scratch memory: bytes of one thread, of how many, and where it begins. */
  #scratchBytes = 0
  #scratches = 0
  #scratch = 0
  /** Why this device has fewer threads than were asked for. */
  problem: string | undefined
  #isWarning = false

  constructor(heap: WasmHeap) {
    this.#heap = heap
  }

  /** Threads that work, the caller included. */
  get count(): number {
    return 1 + this.#ready.length
  }

  /** Those, and threads that are about to begin. */
  get expected(): number {
    return 1 + Math.min(this.#helpers.length, this.#wanted - 1)
  }

  /** Threads and cores, where there are more threads. */
  get excess(): string | undefined {
    const count = cores()
    if (this.expected <= count) return undefined
    return `${this.expected} threads on ${count} core${count === 1 ? '' : 's'}, which is slower`
  }

  /** Starts those that were asked for and are not there. They take part once they have begun. */
  start(): void {
    if (this.#wanted <= 1 + this.#helpers.length) return
    this.problem = undefined
    if (this.#heap.isShared) this.#startHelpers()
    else
      this.problem = 'the page is not isolated from other origins, so that workers share no memory'
    if (this.problem) this.#warn()
    else if (this.excess) console.warn(`tabring: the device cpu computes on ${this.excess}.`)
  }

  #startHelpers(): void {
    const { memory } = this.#heap
    try {
      if (this.#words.length === 0) {
        const address = this.#heap.allocate('threads', controlWords * Int32Array.BYTES_PER_ELEMENT)
        this.#words = new Int32Array(memory.buffer, address, controlWords)
        this.#canSleep = canSleep(this.#words)
      }
      this.needScratch(this.#scratchBytes, this.#wanted)
    } catch (error) {
      this.problem = messageOf(error)
      return
    }
    for (let index = 1; index < this.#wanted; index++) {
      const isThere = this.#helpers.some((helper) => helper.index === index)
      if (!isThere && !this.#startHelper(index)) return
    }
  }

  /** Returns whether it could. */
  #startHelper(index: number): boolean {
    const { memory } = this.#heap
    // One that is being stopped may still look at the other line.
    const line = 1 - (this.#lines[index] ?? 1)
    this.#lines[index] = line
    const bell = at.bells + (2 * index + line) * at.lineWords
    this.#words.fill(0, bell, bell + at.lineWords)
    const start = { memory, address: this.#words.byteOffset, index, bell, layout: at }
    try {
      const thread = startThread(start, (why) => this.#ended(helper, why))
      const helper: Helper = { bell, index, kernels: new WeakSet(), unused: 0, thread }
      this.#helpers.push(helper)
    } catch (error) {
      this.problem = `a worker could not be started (${messageOf(error)})`
      return false
    }
    // The second time comes after what a long task of this thread has held up.
    later(beginMs, () => later(secondMs, () => this.#dropLate()))
    return true
  }

  /** Ends a worker and starts another: one that never returns to its event loop collects no kernels. */
  #replace(helper: Helper): void {
    const index = this.#helpers.indexOf(helper)
    if (index < 0) return
    helper.thread.stop()
    this.#helpers.splice(index, 1)
    this.#begun = []
    this.#startHelper(helper.index)
  }

  #dropLate(): void {
    const late = this.#helpers.filter((helper) => !this.#hasBegun(helper))
    for (const { thread } of late) thread.stop()
    for (const helper of late) this.#ended(helper, `it did not begin within ${beginMs} ms`)
  }

  #hasBegun({ bell }: Helper): boolean {
    return Atomics.load(this.#words, bell + at.begun) !== 0
  }

  get #wanted(): number {
    return Math.min(wantedThreads(), at.maxThreads)
  }

  /** Workers that take part. */
  get #ready(): readonly Helper[] {
    if (this.#begun.length < this.#helpers.length)
      this.#begun = this.#helpers.filter((helper) => this.#hasBegun(helper))
    const wanted = this.#wanted - 1
    return this.#begun.length <= wanted ? this.#begun : this.#begun.slice(0, wanted)
  }

  #ended(helper: Helper, why: string): void {
    const index = this.#helpers.indexOf(helper)
    if (index < 0) return
    this.#helpers.splice(index, 1)
    this.#begun = []
    if (helper.loading) this.#heap.free(helper.loading.address)
    if (this.#isOpen && this.#words[helper.bell + at.works] === 1)
      this.#died = `thread ${helper.index} ended while it computed (${why})`
    // One warning for all that end at about the same time.
    if (!this.#isWarning) later(warnMs, () => this.#warn())
    this.#isWarning = true
    this.problem = `a worker ended (${why})`
  }

  #warn(): void {
    this.#isWarning = false
    console.warn(
      `tabring: the device cpu computes on ${this.expected} of ${this.#wanted} threads: ${this.problem}.`,
    )
  }

  /** Gives each of `count` threads so much scratch memory. errors: `gpu.limit`. */
  needScratch(bytes: number, count = this.#helpers.length + 1): void {
    const needsNone = Math.max(bytes, this.#scratchBytes) === 0
    if (needsNone || (bytes <= this.#scratchBytes && count <= this.#scratches)) return
    const each = Math.max(bytes, this.#scratchBytes)
    const threads = Math.max(count, this.#scratches)
    // Before the old memory is freed: where there is no more, that stays.
    const scratch = this.#heap.allocate('scratch memory', each * threads)
    if (this.#isOpen) this.#replaced.push(this.#scratch)
    else this.#heap.free(this.#scratch)
    this.#scratch = scratch
    this.#scratchBytes = each
    this.#scratches = threads
  }

  /** True while threads are at a task for which the caller has given up waiting: `finish` waits again. */
  get isOpen(): boolean {
    return this.#isOpen
  }

  /**
   * Runs `count` pieces of each stage from `first` on, each piece for one of `runs` runs after the other. Returns as `finish`; errors:
   * its own.
   */
  run(stages: readonly StageTask[], first: number, count: number, runs: number): boolean {
    const [{ pipeline, groupsAPiece }] = stages
    const groups = groupsAPiece * runs
    const isShared = count > 1 && pipeline.groupMs * groups * count >= minSharedMs
    // Not asked for the next kernel once one is missing: that may have replaced the helper.
    const hasAll = (helper: Helper) => stages.every(({ pipeline }) => this.#has(helper, pipeline))
    const helpers = isShared ? this.#ready.filter(hasAll) : []
    if (helpers.length > 0) {
      this.#share(helpers, stages, first, count, runs)
      return this.finish()
    }
    const beganMs = performance.now()
    // What a stage makes for one run is read before the next run makes its own.
    const atOnce = stages.length > 1 ? 1 : count
    for (let piece = first; piece < first + count; piece += atOnce)
      this.#compute(stages, piece, atOnce, runs)
    pipeline.measured(groups * count, performance.now() - beganMs)
    return true
  }

  #compute(stages: readonly StageTask[], piece: number, taken: number, runs: number): void {
    for (let run = 0; run < runs; run++)
      for (const { pipeline, groups, groupsAPiece, addresses, strides } of stages) {
        const [x, y, z] = groups
        const first = piece * groupsAPiece
        const count = Math.min(taken * groupsAPiece, x * y * z - first)
        if (count <= 0) continue
        const own = run === 0 ? addresses : addresses.map((at, i) => at + run * strides[i])
        pipeline.run(first, count, x, y, this.#scratch, ...own)
      }
  }

  #share(
    helpers: readonly Helper[],
    stages: readonly StageTask[],
    first: number,
    count: number,
    runs: number,
  ): void {
    const words = this.#words
    const end = first + count
    const pieces = piecesPerThread * (helpers.length + 1)
    const chunk = stages.length > 1 ? 1 : Math.ceil(count / pieces)
    Atomics.store(words, at.next, first)
    words[at.end] = end
    words[at.chunk] = chunk
    words[at.runs] = runs
    words[at.scratch] = this.#scratch
    words[at.scratchBytes] = this.#scratchBytes
    this.#give(stages, helpers)
    const beganMs = performance.now()
    const [{ pipeline, groupsAPiece }] = stages
    let own = 0
    try {
      for (;;) {
        const piece = Atomics.add(words, at.next, chunk)
        if (piece >= end) break
        const taken = Math.min(chunk, end - piece)
        this.#compute(stages, piece, taken, runs)
        own += taken
      }
      if (own > 0) pipeline.measured(own * groupsAPiece * runs, performance.now() - beganMs)
    } catch (error) {
      this.#thrown = { error }
    }
  }

  /** Loads a kernel in all threads that load no other; no dispatch waits for that. */
  load(pipeline: WasmPipeline): void {
    if (this.#helpers.length > 0) this.#collected.register(pipeline, undefined)
    for (const helper of this.#helpers) this.#has(helper, pipeline)
  }

  /** Tells whether a thread has this kernel, and has it load it if not. */
  #has(helper: Helper, pipeline: WasmPipeline): boolean {
    const { bell, kernels, loading } = helper
    if (kernels.has(pipeline)) return true
    const words = this.#words
    const slot = bell + at.load
    if (loading) {
      if (Atomics.load(words, slot) > 0) return false
      this.#heap.free(loading.address)
      helper.loading = undefined
      kernels.add(loading.pipeline)
      if (loading.pipeline === pipeline) return true
    }
    if (helper.unused > maxUnused && !this.#isOpen) {
      this.#replace(helper)
      return false
    }
    const { code, id, label } = pipeline
    let address: number
    try {
      address = this.#heap.allocate(label, code.length)
    } catch {
      // Without room for its code the caller computes alone.
      return false
    }
    helper.loading = { pipeline, address }
    this.#heap.bytes.set(code, address)
    words.set([id, address], slot + 1)
    Atomics.store(words, slot, code.length)
    this.#wake(helper)
    return false
  }

  #give(stages: readonly StageTask[], helpers: readonly Helper[]): void {
    const words = this.#words
    words[at.stages] = stages.length
    for (const [i, { pipeline, groups, groupsAPiece, addresses, strides }] of stages.entries()) {
      const [x, y, z] = groups
      const stage = at.firstStage + i * at.stageWords
      words.set([pipeline.id, groupsAPiece, x * y * z, x, y, addresses.length], stage)
      words.set(addresses, stage + at.addresses)
      words.set(strides, stage + at.strides)
    }
    Atomics.store(words, at.failed, 0)
    this.#isOpen = true
    this.#task = (this.#task % maxTask) + 1
    Atomics.store(words, at.open, this.#task * at.perTask)
    for (const helper of helpers) this.#wake(helper)
  }

  #wake({ bell }: Helper): void {
    Atomics.add(this.#words, bell, 1)
    // Once: one that is about to wake up still says that it sleeps.
    const sleeps = Atomics.exchange(this.#words, bell + at.sleeps, 0)
    if (sleeps === 1) Atomics.notify(this.#words, bell)
  }

  /**
   * Waits for those that are at the task; who has not begun it does not any more. Returns whether it is over: if not, the caller is to give way to
   * its event loop, which alone hears that a thread has ended, and to call again.
   *
   * errors: what a kernel throws, in whichever thread; a thread that died.
   */
  finish(): boolean {
    const words = this.#words
    const isOver = this.#wait()
    const silent =
      ++this.#waits < maxWaits
        ? undefined
        : `a thread has not answered for ${(maxWaits * waitMs) / 1000} s`
    const lost = isOver ? undefined : (this.#died ?? silent)
    if (!isOver && !lost) return false
    const thrown = this.#thrown
    this.#isOpen = false
    this.#waits = 0
    this.#died = this.#thrown = undefined
    for (const address of this.#replaced.splice(0)) this.#heap.free(address)
    if (lost) {
      this.stop()
      throw new Error(lost)
    }
    if (thrown) throw thrown.error
    const length = words[at.failed]
    if (length > 0)
      throw new Error(String.fromCharCode(...words.subarray(at.text, at.text + length)))
    return true
  }

  /** Waits up to a second, and not for a thread that has ended; returns whether the task is over. */
  #wait(): boolean {
    const words = this.#words
    const nobody = this.#task * at.perTask
    const isOver = () =>
      Atomics.load(words, at.open) === nobody &&
      Atomics.compareExchange(words, at.open, nobody, 0) === nobody
    for (let i = 0; i < at.spins; i++) if (isOver()) return true
    if (this.#died) return false
    const lateMs = performance.now() + waitMs
    for (;;) {
      const value = Atomics.load(words, at.open)
      if (isOver()) return true
      const isLate = this.#canSleep
        ? this.#sleep(value) === 'timed-out'
        : performance.now() > lateMs
      if (isLate) return false
    }
  }

  #sleep(value: number): ReturnType<typeof Atomics.wait> {
    const words = this.#words
    Atomics.store(words, at.callerSleeps, 1)
    const end = Atomics.wait(words, at.open, value, waitMs)
    Atomics.store(words, at.callerSleeps, 0)
    return end
  }

  /** Ends all workers. */
  stop(): void {
    this.#begun = []
    for (const { thread } of this.#helpers.splice(0)) thread.stop()
  }
}

/** In Node a process may end before. */
function later(ms: number, run: () => void): void {
  const timer = setTimeout(run, ms)
  if (typeof timer === 'object') timer.unref()
}

/** Returns whether the caller may sleep: a page's own thread may not. */
function canSleep(words: Int32Array): boolean {
  try {
    Atomics.wait(words, at.open, 1, 0)
    return true
  } catch {
    return false
  }
}
