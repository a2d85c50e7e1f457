import { compile } from '../../graph/compile/compile.ts'
import { memoryOf } from '../../graph/memory/memory-of.ts'
import type { Pool, StoredData } from '../../graph/memory/pool.ts'
import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import { noteOnAllRanks } from '../../graph/plan/agreement.ts'
import type { InputTypes, TracedFunction } from '../../graph/plan/prepare.ts'
import {
  copyInputs,
  noTimes,
  noteTimes,
  type OnMark,
  type ProgramMemory,
  type RunInputs,
  type RunOutputs,
  type StepProgram,
  type StepTimes,
} from '../../graph/plan/step-program.ts'
import type { ModuleBuffer } from '../../graph/trace/module-buffer.ts'
import { encode } from '../../kernels/encode/encode.ts'
import { formatHash } from '../../kernels/hash/hash-words.ts'
import type { ExactOptimizer } from '../../optim/exact/exact-optimizer.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { TabringError } from '../../util/errors.ts'
import { log } from '../../util/log.ts'
import { oneAtATime } from '../../util/next-task.ts'
import { AuditDraw, type Audits, audit, type Digest, digestOf } from './audit.ts'
import { mustBeExact } from './check-supported.ts'
import { clipDivisor } from './clip-divisor.ts'
import { isNotFinite, isUnfit, judge, startExponent } from './exponents.ts'
import {
  addGradients,
  blockCount,
  exponentsOf,
  type Layout,
  layOut,
  marksIn,
  type Place,
} from './layout.ts'
import type { LossScale } from './loss-scale.ts'
import { type ExactRanks, Replays } from './replays.ts'
import { stateFingerprint } from './state-fingerprint.ts'
import { compareStates, hashOf } from './state-hashes.ts'
import { type Report, Tail, wholeUs } from './tail.ts'

const usualBucketElements = 2 ** 18
/** From the smallest exponent to the largest it takes fewer. */
const maxAttempts = 20

/** By which ranks know whether they compute the same bits: hashes of what the first virtual worker of an exact run's first step gets, and of what comes out. */
export interface BitProof {
  readonly samples: string
  readonly parameters: string
  readonly results: string
}

export interface ExactStepOptions extends ExactRanks {
  readonly optimizer: ExactOptimizer
  /** Of all ranks. */
  readonly virtualWorkers: number
  /** Sums that travel in one collective. Default 2^18. */
  readonly bucketElements?: number
  /** The most that the norm of all gradients may be; undefined: anything. */
  readonly clipNorm?: number
  /** In float16. */
  readonly lossScale?: LossScale
  /** Weight of the gradients of a virtual worker: default its samples. 0: it is not computed. */
  readonly weightOf?: (inputs: RunInputs, samples: number) => number
}

/** A program to make. */
export interface ForwardOptions {
  readonly runtime: AnyRuntime
  /** Gives the mean `loss` over one virtual worker's rows, and perhaps a `metric`; traced once. */
  readonly forward: TracedFunction
  /** Of its rows. */
  readonly types: InputTypes
}

/**
 * A training step whose result is the same bits on any number of ranks.
 *
 *     replay v0 ─ encode ┐                      ┌ update all parameters, on the host
 *     replay v1 ─ encode ┼ sums ── all-reduce ──┤
 *     replay v2 ─ encode ┘ of i32               └ loss, metric, running statistics
 *
 * A virtual worker is one replay of one compiled program, so its bits do not depend on the rank that runs it; its gradients become whole
 * numbers (kernels/encode), whose sum does not depend on an order; and all ranks update all parameters from that sum in specified arithmetic.
 * The label of the all-reduce has the hash of the parameters, exponents and running statistics before the step: ranks that differ are found
 * before they add anything. `compare` has moments too.
 * Each rank sends how long it took, so that all assign the virtual workers of the next step by speed.
 * A step whose sums may not fit is done again with other exponents, by all ranks. In float16 a step whose gradients are not finite updates no
 * parameter, and all halve the loss scale.
 * bytes: each rank sends 2 (N-1)/N of 4 bytes a parameter, and of a block's mark per 256 of them.
 */
export class ExactStep implements StepProgram {
  readonly #options: ExactStepOptions
  #ranks: ExactRanks
  readonly #program: StepProgram
  readonly #sums: Pool
  readonly #places: readonly Place[]
  readonly #layout: Layout
  readonly #tail: Tail
  /** Of the attempt under way: sums, marks and tail. */
  readonly #words: Int32Array<ArrayBuffer>
  readonly #replays: Replays
  /** Of the run. */
  #stepsDone: number
  /** On this rank's device. */
  #steps = 0
  /** How many times steps were done again. */
  repeats = 0
  readonly flags = { own: 0, sum: 0 }
  #audits: Audits | undefined
  #draw = new AuditDraw()
  /** What this rank gave beside its gradients, which its device still has when an audit asks for them. */
  readonly #givenTail: Int32Array<ArrayBuffer>
  /** Of audits; as long as `#words` from the first one on. */
  #audited = new Int32Array(0)
  times: StepTimes = noTimes
  /** Time of the virtual worker that was computed as the proof of bits; undefined before that. units: µs. */
  proofUs: number | undefined
  readonly #inTurn = oneAtATime()

  /** `program`: of a virtual worker, which adds its gradients to the sums of `layout`. Its outputs are means over its samples. */
  constructor(options: ExactStepOptions, program: StepProgram, layout: Layout) {
    const { sums, places } = layout
    this.#layout = layout
    this.#options = options
    this.#ranks = options
    this.#program = program
    this.#sums = sums
    this.#places = places
    this.#stepsDone = options.stepsDone ?? 0
    const outputs = program.prepared.outputs.map(({ name }) => name)
    this.#tail = new Tail(options.virtualWorkers, trackedIn(program), outputs)
    this.#words = new Int32Array(sums.elements + this.#tail.length)
    this.#givenTail = new Int32Array(this.#tail.length)
    const { lossScale, weightOf } = options
    this.#replays = new Replays({ program, layout, lossScale, weightOf, ranks: () => this.#ranks })
    for (const holder of this.#holders)
      for (const [i, tensor] of holder.tensors.entries())
        tensor.mirror = () => holder.of.hostValues(i)
  }

  /** Holders of the state on the host between two steps, and their tensors. */
  get #holders() {
    const { optimizer } = this.#options
    return [
      { of: optimizer, tensors: optimizer.parameters },
      { of: this.#tail, tensors: this.#tail.buffers },
    ]
  }

  /** Compiles the program of a virtual worker. errors: `config.invalid` for a device whose bits differ between processors; those of `compile`. */
  static async create(options: ExactStepOptions & ForwardOptions): Promise<ExactStep> {
    const { runtime, optimizer, forward, types } = options
    const memory = memoryOf(runtime)
    mustBeExact(memory)
    const layout = layOut(optimizer.parameters)
    const traced: TracedFunction = (inputs) => {
      const outputs = forward(inputs)
      outputs.loss.backward()
      addGradients(layout)
      return outputs
    }
    try {
      layout.allocate(memory)
      return new ExactStep(options, await compile(traced, types, { runtime }), layout)
    } catch (error) {
      layout.destroy()
      throw error
    }
  }

  /**
   * Trains with other ranks from now on, in the state that is put into the parameters, their buffers and the optimizer next. Compiles nothing.
   * Call it between two steps.
   */
  enter(ranks: ExactRanks): void {
    this.#ranks = ranks
    this.#stepsDone = ranks.stepsDone ?? 0
    this.#tail.forget()
    Object.assign(this.flags, { own: 0, sum: 0 })
    this.#audits = undefined
  }

  /** Ranks check each other's gradients from now on. All ranks of the group call it, before the next step. memory: that of the sums. */
  auditBy(audits: Audits): void {
    this.#audits = audits
    this.#draw = new AuditDraw()
  }

  get prepared() {
    return this.#program.prepared
  }
  get #types(): InputTypes {
    return this.#program.prepared.inputs
  }
  get encodeMs(): number {
    return this.#program.encodeMs
  }
  get memory(): ProgramMemory {
    return this.#program.memory
  }
  get dispatchCount(): number {
    return this.#program.dispatchCount
  }
  get onMark(): OnMark | undefined {
    return this.#program.onMark
  }
  set onMark(onMark: OnMark | undefined) {
    this.#program.onMark = onMark
  }

  check(): void {
    // The program checks each replay.
  }

  async shadow(): Promise<void> {
    await this.run({}, { count: 0 })
  }

  destroy(): void {
    log(1, 'exact', () => `${this.#steps} steps, ${this.repeats} of their attempts repeated`)
    for (const { tensors } of this.#holders) for (const tensor of tensors) tensor.mirror = undefined
    this.#program.destroy()
    this.#layout.destroy()
  }

  /**
   * `inputs`: the rows of all virtual workers of this rank, in order. `count`: how many of them are samples, the first ones.
   *
   * errors: `train.nan` for a loss or a gradient that is not finite, the same on all ranks; those of the program and the group.
   */
  run(inputs: RunInputs, scalars: Readonly<Record<string, number>> = {}): Promise<RunOutputs> {
    const own = copyInputs(inputs, Object.keys(this.#types))
    return this.#inTurn(() => this.#run(own, { ...scalars }))
  }

  async #run(inputs: RunInputs, scalars: Record<string, number>): Promise<RunOutputs> {
    const beganMs = performance.now()
    const { optimizer, lossScale } = this.#options
    const { group, workers, onAssigned } = this.#ranks
    const flags = this.flags.own
    const values = await optimizer.read()
    const statistics = await this.#tail.readBuffers()
    const places = this.#places
    const blocks = blockCount(places)
    let isMeasuring = optimizer.exponents === undefined
    const unscaled = optimizer.exponents ?? new Int32Array(blocks).fill(startExponent)
    const scale = lossScale?.exponent ?? 0
    let exponents = unscaled.map((exponent) => exponent + scale)
    const { assignment } = workers
    const hash = (words: Uint32Array) => optimizer.hash(words)
    const hashed = [...values, unscaled, ...statistics, ...this.#scaleState]
    const stateHash = formatHash(hashOf(hashed, hash))
    const assigned = formatHash(hashOf([Int32Array.from(assignment.counts)])).slice(0, 8)
    const label = stateFingerprint(stateHash, assigned)
    const times = { ...noTimes }
    for (let attempt = 1; ; attempt++) {
      const { first, count } = workers
      const words = this.#words
      await this.#replays.compute(inputs, scalars, exponents, times, {
        first,
        count,
        tail: this.#tail,
        words,
      })
      const tail = words.subarray(this.#sums.elements)
      this.#tail.writeFlags(tail, flags)
      this.#givenTail.set(tail)
      const sentMs = performance.now()
      await this.#sum(words, group, label)
      times.wire += performance.now() - sentMs
      const sums = words.subarray(0, this.#sums.elements)
      const received = this.#tail.read(tail)
      this.flags.sum = received.flags
      this.#checkRows(received)
      if (received.notFinite.length > 0) {
        await this.#audit(exponents, { isForced: true })
        const found = received.notFinite.map(
          ({ worker, loss }) =>
            `${loss} from virtual worker ${worker} (rank ${assignment.rankOf(worker)})`,
        )
        throw this.#nan(`expected finite losses, got ${found.join(', ')}`)
      }
      const marks = marksIn(sums, places)
      // Gradients that have grown so much since the last step are measured, like those of the first.
      isMeasuring ||= attempt > 1 && marks.some(isUnfit)
      const judged = judge(marks, exponents, isMeasuring)
      const { areFinite } = judged
      const isLast = !areFinite || (judged.isSaturated && attempt >= maxAttempts)
      const isLeftOut = isLast && Boolean(lossScale?.shrink())
      if (isLeftOut || (!judged.isSaturated && !isMeasuring)) {
        times.audit = await this.#audit(exponents)
        const updateMs = performance.now()
        if (!isLeftOut) {
          optimizer.exponents = judged.exponents.map((exponent) => exponent - scale)
          this.#update(sums, exponents, received.count * 2 ** scale)
          lossScale?.keep()
        }
        this.#tail.assignBuffers()
        times.optimizer += performance.now() - updateMs
        if (assignment.take(received.tookUs)) onAssigned?.(this.#stepsDone + 1)
        this.times = times
        this.#stepsDone++
        this.#steps++
        const outputs: RunOutputs = Object.fromEntries(
          Object.entries(received.outputs).map(([name, mean]) => [name, Float32Array.of(mean)]),
        )
        noteTimes(outputs, { parts: times, beganMs, endedMs: performance.now(), stateHash })
        return outputs
      }
      if (isLast) {
        await this.#audit(exponents, { isForced: true })
        const place = places.find(({ block, marks: { count } }) =>
          marks.subarray(block, block + count).some(areFinite ? isUnfit : isNotFinite),
        )!
        const found = await this.#unfitWorkers(inputs, scalars, place)
        const whose = found.map(
          (worker) => `virtual worker ${worker} (rank ${assignment.rankOf(worker)})`,
        )
        const from = whose.length > 0 ? ` from ${whose.join(', ')}` : ''
        throw this.#nan(
          `the gradient of "${place.parameter.name}"${from} is ${areFinite ? 'too large' : 'not finite'}, with a loss of ${received.outputs['loss']}`,
        )
      }
      this.repeats++
      isMeasuring &&= judged.isSaturated
      exponents = judged.exponents
    }
  }

  /**
   * Computes a virtual worker as a step does, with what the parameters are now, and changes nothing: what ranks compare to know that they compute
   * the same bits.
   *
   * `inputs`, `scalars`: as those of `run`, of one virtual worker.
   */
  async prove(inputs: RunInputs, scalars: Readonly<Record<string, number>>): Promise<BitProof> {
    const { optimizer, lossScale } = this.#options
    const places = this.#places
    const tail = new Tail(1, this.#tail.buffers, this.#tail.outputs)
    await tail.readBuffers()
    const words = new Int32Array(this.#sums.elements + tail.length)
    const sums = words.subarray(0, this.#sums.elements)
    const first = startExponent + (lossScale?.exponent ?? 0)
    let exponents = new Int32Array(blockCount(places)).fill(first)
    let isMeasuring = true
    for (let attempt = 1; attempt <= maxAttempts; attempt++) {
      const work = { first: 0, count: 1, tail, words }
      // The newest counts: the first one has warmed up what it uses.
      this.proofUs = wholeUs(
        await this.#replays.compute(inputs, scalars, exponents, { ...noTimes }, work),
      )
      const judged = judge(marksIn(sums, places), exponents, isMeasuring)
      if ((!judged.isSaturated && !isMeasuring) || !judged.areFinite) break
      isMeasuring &&= judged.isSaturated
      exponents = judged.exponents
    }
    // How long it took is no result.
    tail.writeTimes(words.subarray(sums.length), 0, 1, 0)
    const samples = Object.keys(this.#types).map((name) => inputs[name] as StoredData)
    // Not by the optimizer, which reads them once: what it has may still be restored.
    const parameters = await Promise.all(optimizer.parameters.map((one) => one.read()))
    return {
      samples: formatHash(hashOf(samples)),
      parameters: formatHash(hashOf(parameters)),
      results: formatHash(hashOf([words])),
    }
  }

  /**
   * Computes another rank's virtual workers again where the draw says so, before the update. `isForced`: in any case, since gradients of one rank
   * end the run of all. Returns how long it took. units: ms. errors: those of `audit`.
   */
  async #audit(exponents: Int32Array<ArrayBuffer>, { isForced = false } = {}): Promise<number> {
    const audits = this.#audits
    if (!audits) return 0
    const { group, workers } = this.#ranks
    const { assignment } = workers
    const sums = this.#sums.elements
    const drawn = hashOf([this.#words.subarray(sums)])
    const seed = this.#draw.take(drawn) ?? (isForced ? drawn[1] : undefined)
    if (seed === undefined) return 0
    const beganMs = performance.now()
    const digest = (words: Int32Array<ArrayBuffer>): Digest => {
      const computed = this.#tail.computed(words.subarray(sums))
      const [a, b] = digestOf(words.subarray(0, sums), seed)
      const [c, d] = digestOf(computed, ~seed)
      return [(a + c) >>> 0, (b + d) >>> 0]
    }
    if (this.#audited.length === 0) this.#audited = new Int32Array(this.#words.length)
    const words = this.#audited
    await this.#replays.readInto(words.subarray(0, sums))
    words.set(this.#givenTail, sums)
    await audit({
      group,
      step: this.#stepsDone + 1,
      seed,
      own: digest(words),
      sum: digest(this.#words),
      again: async (rank) => {
        const first = assignment.firstOf(rank)
        const count = assignment.counts[rank]
        const { inputs, scalars } = audits.batchOf(this.#stepsDone, first, count)
        const work = { first, count, tail: this.#tail, words }
        await this.#replays.compute(inputs, scalars, exponents, { ...noTimes }, work)
        return digest(words)
      },
      audits,
    })
    return performance.now() - beganMs
  }

  /** Updates all parameters. `count`: the samples in the sums, times their scale. */
  #update(sums: Int32Array<ArrayBuffer>, exponents: Int32Array<ArrayBuffer>, count: number): void {
    const { optimizer, clipNorm } = this.#options
    optimizer.begin()
    for (const { parameter } of this.#places) {
      parameter.updates.begun++
      parameter.updates.ended++
    }
    const gradients = this.#places.flatMap((place, i) => {
      const { start, parameter, isUsed } = place
      const own = sums.subarray(start, start + parameter.count)
      return isUsed ? [{ i, sums: own, exponents: exponentsOf(place, exponents) }] : []
    })
    const divisor = clipNorm === undefined ? count : clipDivisor(gradients, count, clipNorm)
    for (const own of gradients) optimizer.update(own.i, own.sums, own.exponents, divisor)
  }

  get #scaleState(): Float32Array<ArrayBuffer>[] {
    const { lossScale } = this.#options
    return lossScale ? [lossScale.state] : []
  }

  /** Compares what the ranks have between two steps, as `ReplicaCheck` does. errors: `train.diverged`; the group's. */
  async compare(group: CollectiveGroup, step: number): Promise<void> {
    if (group.size === 1) return
    const { optimizer } = this.#options
    const { moments, exponents = new Int32Array(0) } = optimizer
    const parts = {
      'model (parameters and running statistics)': [
        ...(await optimizer.read()),
        ...(await this.#tail.readBuffers()),
      ],
      'optimizer state (moments, exponents and loss scale)': [
        ...moments,
        exponents,
        ...this.#scaleState,
      ],
    }
    await compareStates(group, step, parts, (words) => optimizer.hash(words))
  }

  #nan(problem: string): TabringError {
    return onAllRanks(
      'train.nan',
      `step ${this.#stepsDone + 1}: ${problem}. Lower the learning rate, or check the data for values that are not numbers.`,
    )
  }

  /** errors: `graph.misuse` where others than the last virtual workers lack rows, since which lack some would depend on the ranks, and where nothing counts. */
  #checkRows({ rows, count }: Report): void {
    const { workers } = this.#ranks
    const last = rows.findLastIndex((own) => own > 0)
    const short = rows.findIndex((own, worker) => worker < last && own < workers.rows)
    const misuse = (problem: string) =>
      onAllRanks(
        'graph.misuse',
        `run: ${problem}. Give each rank its rows of the batch: those of ddp.exactShare(batchSize, samples).`,
      )
    if (short >= 0)
      throw misuse(
        `virtual worker ${short} (rank ${workers.assignment.rankOf(short)}) got ${rows[short]} of ${workers.rows} rows, and only the last rows of a batch may be missing`,
      )
    if (count === 0) throw misuse('no rank got a sample that counts')
  }

  /** The virtual workers of all ranks whose gradient of a parameter does not fit, each computed alone; none where only their sum is too large. */
  async #unfitWorkers(
    inputs: RunInputs,
    scalars: Readonly<Record<string, number>>,
    { marks, marksStart }: Place,
  ): Promise<number[]> {
    const { virtualWorkers } = this.#options
    const { workers, group } = this.#ranks
    const unfit = new Uint32Array(virtualWorkers)
    for (let i = 0; i < workers.count; i++) {
      const begun = this.#replays.begin(inputs, scalars, i, true)
      if (!begun) continue
      await begun.running
      const own = (await this.#sums.read(marksStart, marks.count, 'i32')) as Int32Array
      if (own.some(isUnfit)) unfit[workers.first + i] = 1
    }
    const all = await group.allGatherU32(unfit, { label: 'gradients that do not fit' })
    return [...unfit.keys()].filter((worker) =>
      all.some((one, i) => one === 1 && i % virtualWorkers === worker),
    )
  }

  async #sum(words: Int32Array<ArrayBuffer>, group: CollectiveGroup, label: string): Promise<void> {
    if (group.size === 1) return
    const { bucketElements = usualBucketElements } = this.#options
    const buckets: Promise<void>[] = []
    for (let begin = 0; begin < words.length; begin += bucketElements)
      buckets.push(group.allReduce(words.subarray(begin, begin + bucketElements), { label }))
    await Promise.all(buckets)
  }
}

/** An error that all ranks have, since they have read the same. */
const onAllRanks = (code: 'train.nan' | 'graph.misuse', message: string): TabringError =>
  noteOnAllRanks(new TabringError(code, message))

/** The module's buffers that a program changes, such as running statistics. */
function trackedIn({ prepared }: StepProgram): ModuleBuffer[] {
  const found = new Set<ModuleBuffer>()
  for (const { op, inputs } of prepared.nodes) {
    if (op === encode) continue
    for (const at of op.updates ?? []) {
      const { leaf } = inputs[at]
      if (leaf?.kind === 'buffer') found.add(leaf.buffer as ModuleBuffer)
    }
  }
  return [...found]
}
