import { StagedTensor } from '../../gpu/staging.ts'
import { clipped } from '../../util/clipped.ts'
import { ShapeError, TabringError } from '../../util/errors.ts'
import { isOf, isTexts, kindOf } from '../../util/kind-of.ts'
import { checkRecord } from '../../util/options.ts'
import { ownOf } from '../../util/own-of.ts'
import {
  countElements,
  formatShape,
  type HostDType,
  type Shape,
  sameShape,
  type TensorType,
} from '../../util/shape.ts'
import { withArticle } from '../../util/with-article.ts'
import type { GivenInputs, HostData } from '../memory/host-values.ts'
import { checkIndices } from '../trace/index-bounds.ts'
import type { InputTypes, Outputs, Prepared } from './prepare.ts'

/** The arrays that hold a tensor's elements on the host. */
export const hostArrays = { f32: Float32Array, i32: Int32Array, u32: Uint32Array }

/** Forms of an input: elements, elements with a shape, or a tensor in upload memory (for one run). */
export type RunInput = HostData | { readonly shape?: Shape; readonly data: HostData } | StagedTensor
/** Inputs by name. Lists of texts, such as a batch's file names, are passed over. */
export type RunInputs = Readonly<Record<string, RunInput | readonly string[]>>
/** Outputs by name. */
export type RunOutputs<Out extends Outputs = Outputs> = { -readonly [Name in keyof Out]: HostData }

/**
 * Milliseconds of the last finished run, by part. They add up to the whole run: from its call (or the end of the previous run, if later) to
 * its results.
 *
 * Host work (encoding, submitting, reading back) is divided among the parts that the device works on. Device times are sampled with
 * timestamp queries on the first runs and on every eighth, newer samples weighing more (browsers' device clocks tick in 100 us). On an
 * adapter without them, `forward` is 0 and `backward` includes forward and, with one rank, the optimizer.
 */
export interface StepTimes {
  readonly forward: number
  /** With several ranks: until the last bucket's gradients are on the host. */
  readonly backward: number
  /** Idle time until all ranks have started an exchange; 0 with one rank. */
  readonly wait: number
  /** Exchange not hidden by backward, after all ranks have started it; 0 with one rank. */
  readonly wire: number
  /** Time from gradients to new parameters, with several ranks including their transfer between host and device. */
  readonly optimizer: number
  /** Computing another rank's gradients again, and comparing them: in some steps of an `exact` run on the device `cpu`. */
  readonly audit: number
}

/** Times of one run, and its start and end on the `performance.now()` clock; the run may have waited for the one before it. */
export interface RunTimes {
  readonly parts: StepTimes
  readonly beganMs: number
  readonly endedMs: number
  /** Of the parameters and all else that the run's bits depend on, before it; where the program knows it. */
  readonly stateHash?: string
}

const timesKey = Symbol('times of the run')

/** Keeps a run's times with what it gave, where listing the outputs does not show them. */
export function noteTimes(outputs: RunOutputs, times: RunTimes): void {
  Object.defineProperty(outputs, timesKey, { value: times })
}

/** Returns the times of the run that produced these outputs; `program.times` has those of the newest run, if several are in flight. */
export function runTimesOf(outputs: RunOutputs): RunTimes {
  checkRecord('runTimesOf', 'outputs', outputs)
  const times = (outputs as { [timesKey]?: RunTimes })[timesKey]
  if (times) return times
  throw new TabringError(
    'graph.misuse',
    'runTimesOf: this object is not the result of a program run. Pass the outputs of run() unchanged.',
  )
}

export const noTimes: StepTimes = {
  forward: 0,
  backward: 0,
  wait: 0,
  wire: 0,
  optimizer: 0,
  audit: 0,
}

/** Reports something that happened in a run: a name and `performance.now()`. */
export type OnMark = (name: string, atMs: number) => void

/** Memory of a program in bytes, without parameters and pools. */
export interface ProgramMemory {
  /** Planned memory for intermediates, and the lower bound of any plan: the largest total size alive at once. */
  readonly peakBytes: number
  readonly lowerBoundBytes: number
  /** Total size of the buffers that the device allocated for intermediates. */
  readonly deviceBytes: number
  /** Total size of the buffers for inputs, outputs, scalars and readback. */
  readonly ioBytes: number
  /** Of a step over several devices: the same for each that this rank has, and what it sends per step. */
  readonly byDevice?: readonly DeviceMemory[]
}

/** Memory of a step on one of its devices. */
export interface DeviceMemory extends Pick<ProgramMemory, 'peakBytes' | 'deviceBytes' | 'ioBytes'> {
  /** As in `webgpu:0`. */
  readonly device: string
  readonly sentBytes: number
}

/** Parts of a prepared step that a program keeps, on however many devices. */
export type PreparedStep = Pick<
  Prepared,
  'trace' | 'inputs' | 'outputs' | 'nodes' | 'updates' | 'syncPoints' | 'chosen'
>

/** A compiled function: the result of `compile`, on any device. */
export interface StepProgram<Out extends Outputs = Outputs> {
  readonly prepared: PreparedStep
  readonly times: StepTimes
  /** JavaScript time of the last run up to its submit: writing inputs, encoding commands. units: ms. */
  readonly encodeMs: number
  readonly memory: ProgramMemory
  onMark: OnMark | undefined
  /** Those that steps carry in place of the trace's exchange. */
  readonly flags?: { own: number; sum: number }
  /** Number of dispatches per run. */
  readonly dispatchCount: number
  /**
   * Runs the program once.
   *
   * The data is copied before this returns, so callers may reuse their arrays at once. With one rank several runs may be in flight; each
   * promise resolves with the outputs of its run. Step scalars missing from `scalars` have their initial value. With several ranks a run
   * resolves when the parameters of all buckets are gathered.
   * errors: `graph.misuse` for wrong inputs, and after `destroy`; the device's first error; the exchange's errors. What fails on one rank of
   * several ends their group: the others, which wait for it, reject with `peer.aborted` and the reason.
   */
  run(inputs: RunInputs, scalars?: Readonly<Record<string, number>>): Promise<RunOutputs<Out>>
  /**
   * Takes part in a step of the other ranks without samples: exchanges zeros and updates this rank's slices. Does nothing for a program
   * without exchange.
   */
  shadow(scalars?: Readonly<Record<string, number>>): Promise<void>
  /**
   * Throws the error with which `run` would reject for these inputs and scalars; changes nothing. errors: `graph.misuse`,
   * `device.mismatch`.
   */
  check(inputs: RunInputs, scalars: Readonly<Record<string, number>>): void
  /** Frees the program's memory; a second call does nothing. */
  destroy(): void
}

const dataOf = (input: RunInputs[string] | undefined): HostData | StagedTensor | undefined => {
  if (typeof input !== 'object' || input === null || Array.isArray(input)) return undefined
  const own = input as RunInput
  return 'data' in own ? own.data : own
}

/** The inputs of these names, with elements copied; staged ones belong to the run already, and what is no input stays for `checkInputs`. */
export const copyInputs = (inputs: RunInputs, names: Iterable<string>): RunInputs =>
  Object.fromEntries(
    [...names].map((name): [string, RunInputs[string]] => {
      const given = ownOf(inputs, name) as RunInputs[string]
      const data = dataOf(given)
      if (!ArrayBuffer.isView(data)) return [name, given]
      return [name, data === given ? data.slice() : { ...given, data: data.slice() }]
    }),
  )

/** Returns what to do. A plain array is no tensor: its element type is not known. */
function remedyFor(
  input: unknown,
  array: (typeof hostArrays)[HostDType],
  { shape }: TensorType,
): string {
  if (Array.isArray(input) && input.every((value) => typeof value === 'number')) {
    return `Pass ${array.name}.of(...) or ${array.name}.from(array).`
  }
  const data = dataOf(input as RunInput)
  const [rows = 1] = shape
  const given = isOf(data, array) ? data.length / (countElements(shape) / rows) : 0
  // The last batch of a data set.
  return given > 0 && given < rows && Number.isInteger(given)
    ? `These are ${given} of ${rows} rows: give DataLoader dropLast: true, or run padBatch(batch, ${rows}) with count: batchSizeOf(batch).`
    : 'Pass what the program was compiled for.'
}

/** The inputs of a run by name: elements, or tensors in upload memory. */
export type CheckedInputs = readonly [name: string, data: HostData | StagedTensor][]

/** errors: `graph.misuse` for numbers whose name is not in `types`: nothing would read them. */
export function refuseSurplus(types: InputTypes, inputs: RunInputs, scalars: object = {}): void {
  checkRecord('run', 'inputs', inputs)
  checkRecord('run', 'scalars', scalars)
  const surplus = Object.keys(inputs).find((name) => {
    const given: unknown = inputs[name]
    return !Object.hasOwn(types, name) && given !== undefined && !isTexts(given)
  })
  if (surplus === undefined) return
  const names = clipped(Object.keys(types).join(', ')) || 'none'
  throw new TabringError(
    'graph.misuse',
    `run: "${clipped(surplus)}" is none of the inputs that the program was compiled with: ${names}. Declare it when compiling, or leave it out of the run.`,
  )
}

/**
 * The program's inputs out of those that a run was given.
 *
 * errors: `graph.misuse` for a missing input, a wrong type or length, a staged tensor that a run has used; `shape.mismatch` for elements under
 * another shape.
 */
export function checkInputs(prepared: Pick<Prepared, 'inputs'>, inputs: RunInputs): CheckedInputs {
  checkRecord('run', 'inputs', inputs)
  return Object.entries(prepared.inputs).map(([name, type]) => {
    const given = ownOf(inputs, name)
    const data = dataOf(given)
    const count = countElements(type.shape)
    const array = hostArrays[type.dtype as HostDType]
    const staged = data instanceof StagedTensor && data.array.name
    const isOne = staged ? staged === array.name : isOf(data, array)
    if (!data || !isOne || data.length !== count) {
      throw new TabringError(
        'graph.misuse',
        `run: input "${clipped(name)}" must be ${withArticle(array.name)} of ${count} elements, got ${staged ? `${staged} of ${data.length}` : kindOf(data ?? given)}. ${remedyFor(given, array, type)}`,
      )
    }
    const { shape } = inputs[name] as { readonly shape?: Shape }
    if (Array.isArray(shape) && !sameShape(shape, type.shape)) {
      throw new ShapeError(
        'shape.mismatch',
        `run: input "${clipped(name)}" must be ${formatShape(type.shape)}, got ${formatShape(shape)}. Declare tensorType(${formatShape(shape)}) and reshape it in the function, or pass the elements alone: ${clipped(name)}.data.`,
      )
    }
    if (data instanceof StagedTensor && data.isUsed) {
      throw new TabringError(
        'graph.misuse',
        `run: input "${clipped(name)}" is a staged tensor that an earlier run has used. Take the next batch from the loader.`,
      )
    }
    return [name, data]
  })
}

/** The inputs of a run whose elements the host may look at. */
export const onHost = (inputs: CheckedInputs): GivenInputs =>
  new Map(inputs.map(([name, data]) => [name, ArrayBuffer.isView(data) ? data : data.elements]))

/** errors: `graph.misuse` for a whole step inside `noSync`. */
export function refuseNoSync({
  trace: { exchange, accumulation },
  updates,
}: Pick<Prepared, 'trace' | 'updates'>): void {
  if (!exchange || exchange.isSynchronizing || accumulation || updates.length === 0) return
  exchange.refuseUnclear()
  throw new TabringError(
    'graph.misuse',
    'noSync: this step updates parameters. Compile it with compileAccumulated().',
  )
}

/** Counts the update of a run that has begun. `ended`: the run's end, if reads before it miss the update. */
export function countUpdate({ updates }: PreparedStep, ended?: Promise<unknown>): void {
  const count = (key: 'begun' | 'ended') => {
    for (const { update } of updates)
      for (const parameter of update.bucket.parameters) parameter.updates[key]++
  }
  const end = () => count('ended')
  count('begun')
  if (ended) ended.then(end, end)
  else end()
}

/** The inputs of a run that could be made; takes and counts nothing. errors: those of `checkInputs` and `fillScalars`. */
export function checkRun(
  prepared: Pick<Prepared, 'trace' | 'inputs'>,
  inputs: RunInputs,
  scalars: Readonly<Record<string, number>>,
): CheckedInputs {
  const given = checkInputs(prepared, inputs)
  const { trace } = prepared
  for (const refuse of trace.refusals) refuse()
  trace.scalars.check(scalars)
  checkUses(trace, scalars)
  checkIndices(trace.bounds, onHost(given), (slot) => trace.scalars.valueFor(slot, scalars))
  return given
}

/** errors: those of `ScalarBlock.checkUses`. Where each rank has its own function, one may pass what only others read. */
function checkUses(
  { scalars, updates, sendsByHand }: Prepared['trace'],
  given: Readonly<Record<string, number>>,
): void {
  if (updates.length > 0 && !sendsByHand) scalars.checkUses(given)
}

/** Counts the step (unless `isCounted` is false) and writes this run's block of scalars to `values`; `inputs` undefined for a shadow's. */
export function fillScalars(
  { trace }: Pick<Prepared, 'trace'>,
  scalars: Readonly<Record<string, number>>,
  inputs: GivenInputs | undefined,
  values: Float32Array,
  isCounted = true,
): void {
  for (const refuse of trace.refusals) refuse()
  if (inputs) checkUses(trace, scalars)
  trace.scalars.begin(scalars)
  if (inputs) checkIndices(trace.bounds, inputs, (slot) => trace.scalars.value(slot))
  trace.weighing?.begin(inputs, isCounted)
  if (isCounted) for (const before of trace.beforeStep) before()
  trace.scalars.fill(values)
  if (isCounted && (trace.weighing || trace.groups)) trace.consistency.note(values)
  trace.given = trace.groups && inputs
}
