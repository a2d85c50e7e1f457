import { type Gpu, rejected } from '../../gpu/device.ts'
import type { CompiledPipeline } from '../../gpu/pipeline.ts'
import { loadPart } from '../../util/load-part.ts'
import { log } from '../../util/log.ts'
import { isTracing } from '../../util/spans.ts'
import { switchValue } from '../../util/switches.ts'
import type { Profile } from '../inside/profile.ts'
import type { ValueCheck } from '../inside/value-check.ts'
import type { Runtime } from '../memory/runtime.ts'
import { backwardParts } from '../plan/backward-parts.ts'
import { computeRanges } from '../plan/phases.ts'
import type { Prepared } from '../plan/prepare.ts'
import {
  type CheckedInputs,
  checkRun,
  copyInputs,
  countUpdate,
  noTimes,
  noteTimes,
  type OnMark,
  type ProgramMemory,
  type RunInputs,
  type RunOutputs,
  refuseNoSync,
  type StepProgram,
  type StepTimes,
} from '../plan/step-program.ts'
import type { Stop } from '../plan/stops.ts'
import { Crossings, type Wires } from './crossings.ts'
import { GpuPort } from './gpu-port.ts'
import { outOfMemory } from './out-of-memory.ts'
import { OutputReadback } from './output-readback.ts'
import { PhaseTimer, sharesOfOnePhase, splitTime } from './phase-timer.ts'
import { ProgramBuffers, type StagedInputs } from './program-buffers.ts'
import { RecordedDispatches } from './recorded-dispatches.ts'
import { StepExchange } from './step-exchange.ts'
import { submitCuts } from './submit-cuts.ts'
import { type RunExchange, SyncPoints } from './sync-points.ts'
import { WorkWatch } from './work-watch.ts'

type Instruments = typeof import('../inside/instruments.ts')

/** Returns the instruments for programs, where a switch asks for them. */
async function instruments(): Promise<Instruments | undefined> {
  if (switchValue('debug') < 2 && !isTracing()) return undefined
  return loadPart('the switch debug or trace', () => import('../inside/instruments.ts'))
}

/** A step with other ranks. */
interface SharedStep {
  readonly port: GpuPort
  readonly exchange: StepExchange
}

/** Runs that are computed together once the call that began the first one has ended. */
interface Batch {
  readonly beganMs: number
  runs: number
  readonly staged: StagedInputs[number][]
  readonly outputs: Promise<readonly RunOutputs[]>
  readonly begin: (outputs: Promise<readonly RunOutputs[]>) => void
}

/**
 * Maximum for the inputs, intermediates and outputs of several runs that are computed together: more is no faster.
 * While they are allocated, those for half as many runs still exist, and take half as much again. units: bytes.
 */
const togetherBytes = 2 ** 26

/** How many runs may be under way before the next one waits for the oldest. */
const runsInFlight = 3

/**
 * A step program on the device: pipelines compiled, bind groups made, ready to be replayed.
 *
 * A run writes the inputs and one small block of scalars, and encodes the recorded dispatches; it creates no buffer, bind group or pipeline.
 * With one rank a run is one submit; one that takes the device more than about 100 ms is cut into several, once a run has been timed, so on
 * devices with timestamps alone. With several ranks it is one submit per bucket for forward and backward, and one per bucket for the update; one more for numbers that
 * ranks agree on between the two, and one for what reads all new parameters (a running average).
 */
export class GpuProgram implements StepProgram {
  readonly prepared: Prepared
  times: StepTimes = noTimes
  encodeMs = 0
  onMark: OnMark | undefined
  readonly #gpu: Gpu
  readonly #buffers: ProgramBuffers
  readonly #dispatches: RecordedDispatches
  readonly #readbacks: readonly OutputReadback[]
  readonly #shared: SharedStep | undefined
  readonly #syncPoints: SyncPoints | undefined
  readonly #crossings: Crossings | undefined
  /** Instruments of the switches; both undefined as a rule. */
  readonly #profile: Profile | undefined
  readonly #check: ValueCheck | undefined
  readonly #timer: PhaseTimer | undefined
  /** The newest run under way. */
  #latest: Promise<unknown> | undefined
  /** With one rank: where a run is cut into submits. */
  #cuts: readonly number[] = []
  /** True if it changes nothing but sums, so that several runs may be computed together, dispatch by dispatch. On a GPU none are. */
  readonly #isSum: boolean
  /** Runs that wait for others. */
  #batch: Batch | undefined
  /** False once there was no memory for more runs at a time. */
  #canMakeRoom = true
  #runs = 0
  /** Of the run under way: idle, until others have what it needs. */
  #waitedMs = 0
  #lastEndedMs = 0
  #isDestroyed = false

  private constructor(
    runtime: Runtime,
    prepared: Prepared,
    compiled: readonly CompiledPipeline[],
    inside: Instruments | undefined,
  ) {
    const { gpu } = runtime
    this.#gpu = gpu
    this.prepared = prepared
    this.#buffers = new ProgramBuffers(gpu, prepared)
    this.#dispatches = new RecordedDispatches(gpu, prepared, this.#buffers, compiled)
    this.#readbacks = Array.from(
      { length: runsInFlight },
      (_, i) => new OutputReadback(gpu, prepared, `readback of outputs ${i}`),
    )
    this.#profile = inside?.Profile.of(gpu, prepared)
    this.#check = inside?.ValueCheck.of(gpu, prepared, this.#buffers)
    const { exchange, accumulation } = prepared.trace
    const exchanges = prepared.updates.length > 0 && accumulation?.part !== 'add'
    if (exchange?.exchangesGradients && exchanges) {
      const port = new GpuPort(gpu, exchange, prepared, this.#buffers, (encoder, from, to) =>
        this.#encode(encoder, from, to),
      )
      this.#shared = { port, exchange: new StepExchange(exchange, prepared, port, port.clock) }
    }
    this.#syncPoints = SyncPoints.of(gpu, prepared, this.#buffers)
    if (prepared.crossings.length > 0) this.#crossings = new Crossings(gpu, prepared, this.#buffers)
    if (!this.#profile && !this.#check) {
      this.#timer = PhaseTimer.of(gpu, this.#shared ? computeRanges(prepared) : prepared.phases)
    }
    for (const { update } of prepared.updates) update.bucket.addProgram()
    this.#isSum =
      gpu.id.type === 'cpu' &&
      prepared.plan.together !== undefined &&
      prepared.nodes.every(({ op }) => op.addsUp || !op.updates) &&
      !(this.#shared ?? this.#syncPoints ?? this.#crossings ?? this.#profile ?? this.#check)
  }

  /** Compiles all pipelines in parallel and makes the program's buffers. errors: `gpu.compile`, `gpu.limit`, `gpu.validation`. */
  static async create(runtime: Runtime, prepared: Prepared): Promise<GpuProgram> {
    const { gpu, pipelines } = runtime
    const [inside, ...compiled] = await Promise.all([
      instruments(),
      ...prepared.plan.dispatches.map(({ dispatch }) => pipelines.get(dispatch)),
    ])
    // A buffer without memory makes its bind groups invalid too, which must not count as a second error.
    gpu.device.pushErrorScope('validation')
    gpu.device.pushErrorScope('out-of-memory')
    const errorOf = () => gpu.device.popErrorScope().catch(() => null)
    let program: GpuProgram
    try {
      program = gpu.orDestroy(() => new GpuProgram(runtime, prepared, compiled, inside))
      program.#bindOrDestroy()
    } catch (error) {
      await Promise.all([errorOf(), errorOf()])
      throw error
    }
    const [tooMuch, invalid] = await Promise.all([errorOf(), errorOf()])
    gpu.check()
    if (invalid && !tooMuch) throw rejected(invalid.message)
    if (!tooMuch) {
      if (inside) log(3, 'plan', () => inside.describePlan(prepared, program.memory, runtime))
      return program
    }
    const { deviceBytes, ioBytes } = program.memory
    program.destroy()
    throw outOfMemory(deviceBytes + ioBytes)
  }

  #bindOrDestroy(): void {
    try {
      this.#dispatches.bind()
    } catch (error) {
      this.destroy()
      throw error
    }
  }

  get memory(): ProgramMemory {
    const { peakBytes, lowerBoundBytes } = this.prepared.plan
    const { intermediateBytes, ioBytes } = this.#buffers
    const readback = this.#readbacks.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0)
    const exchanged = (this.#crossings?.sizeBytes ?? 0) + (this.#syncPoints?.sizeBytes ?? 0)
    return {
      peakBytes,
      lowerBoundBytes,
      deviceBytes: intermediateBytes,
      ioBytes: ioBytes + readback + exchanged,
    }
  }

  get dispatchCount(): number {
    return this.#dispatches.count
  }

  async run(
    inputs: RunInputs,
    scalars: Readonly<Record<string, number>> = {},
  ): Promise<RunOutputs> {
    return this.#isSum ? this.#join(inputs, scalars) : this.#begin(inputs, scalars)
  }

  /** Has a run computed together with those that are begun in the same task. */
  async #join(inputs: RunInputs, scalars: Readonly<Record<string, number>>): Promise<RunOutputs> {
    const gpu = this.#gpu
    gpu.check()
    if (this.#batch?.runs === this.#buffers.copies) {
      this.#beginBatch(this.#batch)
      this.#makeRoom()
    }
    const beganMs = performance.now()
    const at = this.#batch?.runs ?? 0
    const staged = this.#buffers.write(gpu, this.prepared, inputs, scalars, true, at)
    const batch = this.#batch ?? this.#newBatch(beganMs)
    batch.staged.push(...staged)
    batch.runs++
    const outputs = batch.outputs.then((all) => this.#timed(all[at], batch.beganMs))
    gpu.begin(outputs)
    return outputs
  }

  #newBatch(beganMs: number): Batch {
    let begin: Batch['begin'] = () => undefined
    const outputs = new Promise<readonly RunOutputs[]>((resolve) => {
      begin = resolve
    })
    const batch: Batch = { beganMs, runs: 0, staged: [], outputs, begin }
    this.#batch = batch
    queueMicrotask(() => this.#beginBatch(batch))
    return batch
  }

  #beginBatch(batch: Batch): void {
    if (this.#batch !== batch) return
    this.#batch = undefined
    batch.begin(this.#runBatch(batch))
  }

  async #runBatch({ runs, staged, beganMs }: Batch): Promise<RunOutputs[]> {
    this.#dispatches.bind()
    const readback = new OutputReadback(this.#gpu, this.prepared, 'readback of outputs', runs)
    this.#timer?.begin()
    try {
      return await this.#runAlone(staged, readback, beganMs, runs)
    } finally {
      readback.destroy()
    }
  }

  /** Doubles how many runs are computed together, where there is memory. */
  #makeRoom(): void {
    const { copies, ioBytes, intermediateBytes } = this.#buffers
    if (!this.#canMakeRoom || 2 * (ioBytes + intermediateBytes) > togetherBytes) return
    try {
      this.#buffers.resize(2 * copies)
      this.#dispatches.forget()
    } catch {
      // Fewer are computed together. Each further attempt would allocate some of the buffers in vain.
      this.#canMakeRoom = false
    }
  }

  async shadow(scalars: Readonly<Record<string, number>> = {}): Promise<void> {
    if (this.#shared) await this.#begin(undefined, scalars)
  }

  /** `inputs` undefined: a shadow's run. */
  async #begin(
    inputs: RunInputs | undefined,
    scalars: Readonly<Record<string, number>>,
  ): Promise<RunOutputs> {
    const gpu = this.#gpu
    gpu.check()
    refuseNoSync(this.prepared)
    const readback = this.#readbacks[this.#runs++ % runsInFlight]
    // Buckets, like the switches' instruments, exist once: then one run goes after the other.
    const isSerial = this.#shared ?? this.#syncPoints ?? this.#profile ?? this.#check
    if (inputs && (readback.heldBy || (isSerial && this.#latest))) {
      inputs = copyInputs(inputs, this.#buffers.inputs.keys())
      scalars = { ...scalars }
    }
    const waitsFor = () => (isSerial ? this.#latest : readback.heldBy)
    for (let busy = waitsFor(); busy; busy = waitsFor()) await busy.catch(() => undefined)
    this.#dispatches.bind()
    const began = performance.now()
    this.#timer?.begin()
    const staged = this.#buffers.write(gpu, this.prepared, inputs, scalars)
    if (this.#shared) this.prepared.trace.exchange!.beginStep()
    else if (this.#syncPoints) this.prepared.trace.syncPoints!.beginStep()
    const running = this.#shared
      ? this.#runSynchronized(this.#shared, staged, readback, began, !inputs)
      : this.#runAlone(staged, readback, began).then(([outputs]) => outputs)
    const watched = this.#profile ? this.#profile.watch(running, began) : running
    const outputs = watched.then((values) => this.#timed(values, began))
    const ended = outputs.finally(() => {
      readback.heldBy = undefined
      if (this.#latest === ended) this.#latest = undefined
    })
    ended.catch(() => undefined)
    countUpdate(this.prepared, isSerial && outputs)
    readback.heldBy = ended
    this.#latest = ended
    gpu.begin(outputs)
    return outputs
  }

  async runPart(
    inputs: CheckedInputs,
    scalars: Float32Array<ArrayBuffer>,
    wires: Wires,
  ): Promise<RunOutputs> {
    const gpu = this.#gpu
    gpu.check()
    this.#dispatches.bind()
    const began = performance.now()
    this.#timer?.begin()
    const staged = this.#buffers.writeInputs(gpu, inputs)
    gpu.write(this.#buffers.scalars, scalars)
    this.#crossings?.begin(wires)
    const running = this.#runAlone(staged, this.#readbacks[0], began)
    gpu.begin(running)
    const [outputs] = await running
    await this.#crossings?.ended()
    return this.#timed(outputs, began)
  }

  check(inputs: RunInputs, scalars: Readonly<Record<string, number>>): void {
    checkRun(this.prepared, inputs, scalars)
  }

  destroy(): void {
    if (this.#isDestroyed) return
    this.#isDestroyed = true
    for (const { update } of this.prepared.updates) update.bucket.removeProgram()
    this.#buffers.destroy()
    this.#shared?.port.destroy()
    this.#syncPoints?.destroy()
    this.#crossings?.destroy()
    this.#profile?.destroy()
    this.#timer?.destroy()
    for (const readback of this.#readbacks) readback.destroy()
  }

  /** `runs`: computed together. Returns the outputs of each. */
  async #runAlone(
    staged: StagedInputs,
    readback: OutputReadback,
    began: number,
    runs = 1,
  ): Promise<RunOutputs[]> {
    let encoder = this.#gpu.device.createCommandEncoder()
    for (const input of staged) input.staged.record(encoder, input.buffer, input.offset)
    const { stops } = this.prepared
    this.#waitedMs = 0
    const watch =
      this.onMark && stops.length > 0 ? new WorkWatch(this.#gpu, this.onMark) : undefined
    if (stops.length > 0) {
      let start = 0
      for (const stop of stops) {
        if (stop.kind === 'watch' && !watch) continue
        if (stop.end > start) this.#encode(encoder, start, stop.end, runs)
        const held = this.#hold(stop, encoder, false, watch?.around(stop))
        // A sync point may wait for its staging buffer before it submits; all other stops submit at once.
        if (stop.kind === 'begin') await held
        if (stop.end > start) watch?.submitted(stop.work)
        if (waitsForOthers(stop)) this.#waitedMs += await idleDuring(held, this.#gpu)
        encoder = await held
        watch?.ready()
        start = stop.end
      }
      this.#encode(encoder, start, this.#dispatches.count, runs)
    } else if (this.#check) {
      this.#gpu.submit(encoder)
      await this.#check.run((own, from, to) => this.#encode(own, from, to))
      encoder = this.#gpu.device.createCommandEncoder()
    } else {
      let start = 0
      for (const cut of this.#cuts) {
        this.#encode(encoder, start, cut)
        this.#gpu.submit(encoder)
        encoder = this.#gpu.device.createCommandEncoder()
        start = cut
      }
      this.#encode(encoder, start, this.#dispatches.count, runs)
    }
    readback.copy(encoder, this.#buffers, runs)
    this.#timer?.resolve(encoder)
    this.#gpu.submit(encoder)
    watch?.submitted({ phase: this.prepared.phases.at(-1)?.phase ?? 'forward', task: undefined })
    for (const input of staged) input.staged.release()
    this.encodeMs = performance.now() - began
    const [outputs, deviceMs] = await Promise.all([readback.read(runs), this.#timer?.read()])
    // The cpu gives way within a submit.
    if (deviceMs && this.#gpu.id.type !== 'cpu')
      this.#cuts = submitCuts(this.prepared.phases, deviceMs)
    return outputs
  }

  /** Exchanges what is to be exchanged behind what is recorded; returns the encoder of what comes next. */
  async #hold(
    stop: Stop,
    encoder: GPUCommandEncoder,
    isShadow?: boolean,
    around?: RunExchange,
  ): Promise<GPUCommandEncoder> {
    if (stop.kind === 'watch') this.#gpu.submit(encoder)
    else if (stop.kind === 'cross') await this.#crossings!.hold(stop.crossing, encoder)
    else if (stop.kind === 'begin')
      await this.#syncPoints!.begin(stop.syncPoint, encoder, isShadow, around)
    else {
      this.#gpu.submit(encoder)
      await this.#syncPoints!.end(stop.syncPoint, isShadow)
    }
    return this.#gpu.device.createCommandEncoder()
  }

  async #runSynchronized(
    { port, exchange }: SharedStep,
    staged: StagedInputs,
    readback: OutputReadback,
    began: number,
    isShadow: boolean,
  ): Promise<RunOutputs> {
    const { joint, stops, afterStart } = this.prepared
    const gpu = this.#gpu
    const mark = this.onMark
    port.begin(began, (encoder) => readback.copy(encoder, this.#buffers))
    exchange.begin(mark)
    let waitedMs = 0
    let next = 0
    const parts = backwardParts(this.prepared)
    for (const [bucket, part] of parts.entries()) {
      const isLast = bucket === parts.length - 1
      const { end } = part
      let { start } = part
      const room = port.room()
      if (room) {
        const fullMs = performance.now()
        await room
        waitedMs += performance.now() - fullMs
      }
      let encoder = gpu.device.createCommandEncoder()
      if (bucket === 0) for (const input of staged) input.staged.record(encoder, input.buffer)
      for (; next < stops.length && stops[next].end <= end; next++) {
        const stop = stops[next]
        if (stop.end > start && !isShadow) this.#encode(encoder, start, stop.end)
        encoder = await this.#hold(stop, encoder, isShadow, (run) => port.aside(run))
        start = stop.end
      }
      if (end > start && !isShadow) this.#encode(encoder, start, end)
      if (isLast && joint.length === 0) readback.copy(encoder, this.#buffers)
      port.copy(encoder, bucket, isShadow)
      if (isLast) this.#timer?.resolve(encoder)
      gpu.submit(encoder)
      if (bucket === 0) for (const input of staged) input.staged.release()
      if (mark) {
        const ended = () => mark(`part ${bucket} done`, performance.now())
        gpu.queue.onSubmittedWorkDone().then(ended)
      }
      port.submitted(bucket)
      exchange.take(bucket)
    }
    this.encodeMs = performance.now() - began - waitedMs
    mark?.('backward submitted', performance.now())
    const updated = exchange.end().then(() => {
      const { count } = this.#dispatches
      if (afterStart === count) return
      const encoder = gpu.device.createCommandEncoder()
      this.#encode(encoder, afterStart, count)
      gpu.submit(encoder)
    })
    // With joint nodes, outputs are copied behind them: mapping the staging buffer earlier would be an error.
    if (joint.length > 0) await updated
    const [[outputs]] = await Promise.all([readback.read(), updated, this.#timer?.read()])
    return exchange.averageOutputs(outputs)
  }

  /** Notes the times of a run that began at `beganMs` and has ended now. */
  #timed(outputs: RunOutputs, beganMs: number): RunOutputs {
    const { phases } = this.prepared
    const shares = this.#timer?.shares ?? this.#profile?.shares(phases) ?? sharesOfOnePhase(phases)
    const endedMs = performance.now()
    if (this.#shared) {
      const times = this.#shared.port.clock.read(endedMs)
      const { forward, backward } = splitTime(times.backward, shares && { ...shares, optimizer: 0 })
      this.times = { ...times, forward, backward }
    } else {
      const wait = this.#waitedMs
      const ms = endedMs - Math.max(beganMs, this.#lastEndedMs) - wait
      this.times = { ...noTimes, ...splitTime(ms, shares), wait }
    }
    this.#lastEndedMs = endedMs
    noteTimes(outputs, { parts: this.times, beganMs, endedMs })
    return outputs
  }

  #encode(encoder: GPUCommandEncoder, start: number, end: number, runs = 1): void {
    if (this.#profile?.isTiming) {
      for (let i = start; i < end; i++)
        this.#dispatches.encode(encoder, i, i + 1, this.#profile.pass(i))
      return
    }
    const timed = this.#timer?.passes(start, end) ?? []
    for (const { start, end, descriptor } of timed)
      this.#dispatches.encode(encoder, start, end, descriptor, runs)
    if (timed.length === 0) this.#dispatches.encode(encoder, start, end, undefined, runs)
  }
}

const waitsForOthers = (stop: Stop): boolean =>
  stop.kind === 'end' || (stop.kind === 'cross' && stop.crossing.kind === 'receive')

/** Milliseconds for which the device has nothing to do while a stop is held. */
async function idleDuring(held: Promise<unknown>, { queue }: Gpu): Promise<number> {
  let idleFromMs = Number.POSITIVE_INFINITY
  const done = () => {
    idleFromMs = performance.now()
  }
  queue.onSubmittedWorkDone().then(done, () => undefined)
  await held
  return Math.max(0, performance.now() - idleFromMs)
}
