import { StagedTensor } from '../../gpu/staging.ts'
import { TabringError } from '../../util/errors.ts'
import { kindOf } from '../../util/kind-of.ts'
import { countElements, type HostDType } from '../../util/shape.ts'
import type { GivenInputs, HostData } from '../memory/host-values.ts'
import type { Prepared } from './prepare.ts'

/** The arrays that hold a tensor's elements on the host. */
export const hostArrays = { f32: Float32Array, i32: Int32Array, u32: Uint32Array }

export type { HostData } from '../memory/host-values.ts'

/** What one input may be given as: elements, elements under a shape, or a tensor in upload memory (for one run). */
export type RunInput = HostData | { readonly data: HostData } | StagedTensor
/** Inputs by name. Fields that the program has no input for, such as a batch's file names, are passed over. */
export type RunInputs = Readonly<Record<string, RunInput | readonly string[]>>
export type RunOutputs = Record<string, HostData>

/**
 * Milliseconds of the run that ended last, by part. They add up to the run: from its call, or from the end of the run before it where
 * that came later, to its results.
 *
 * The host's own work (encoding, submitting, reading back) is shared among the parts that the device works on. Device times are sampled
 * by timestamp queries on the first runs and every eighth, newer samples counting more (browsers' device clocks tick in 100 us); where an
 * adapter has none, `forward` is 0 and `backward` holds forward too, with one rank also the optimizer.
 */
export interface StepTimes {
  readonly forward: number
  /** With several ranks: up to the last bucket's gradients on the host. */
  readonly backward: number
  /** For all ranks to begin an exchange, while nothing else is done; 0 with one rank. */
  readonly wait: number
  /** Exchange that backward does not hide, once all ranks have begun it; 0 with one rank. */
  readonly wire: number
  /** What is between gradients and new parameters, and with several ranks moving both between host and device. */
  readonly optimizer: number
}

/** The times of one run, and between which moments of `performance.now()` it went on; it may have waited for the run before it. */
export interface RunTimes {
  readonly parts: StepTimes
  readonly beganMs: number
  readonly endedMs: number
}

const timesKey = Symbol('times of the run')

/** Keeps a run's times with what it gave, where listing the outputs does not show them. */
export function noteTimes(outputs: RunOutputs, times: RunTimes): void {
  Object.defineProperty(outputs, timesKey, { value: times })
}

/** The times of the run that gave these outputs; `program.times` are those of the newest one, where several are under way. */
export function timesOf(outputs: RunOutputs): RunTimes {
  const times = (outputs as { [timesKey]?: RunTimes })[timesKey]
  if (times) return times
  throw new TabringError(
    'graph.misuse',
    'timesOf: expected what a run of a program resolved with, got another object. Give the outputs as they came.',
  )
}

export const noTimes: StepTimes = { forward: 0, backward: 0, wait: 0, wire: 0, optimizer: 0 }

/** Reports something that happened in a run: a name and `performance.now()`. */
export type OnMark = (name: string, atMs: number) => void

/** Bytes of a program, parameters and pools aside. */
export interface ProgramMemory {
  /** What the plan gives intermediates, and the least that any plan could: the largest sum of sizes alive at once. */
  readonly peakBytes: number
  readonly lowerBoundBytes: number
  /** Sizes of the buffers that the device made for intermediates. */
  readonly deviceBytes: number
  /** Sizes of the buffers for inputs, outputs, scalars and readback. */
  readonly otherBytes: number
}

/** A compiled function: what `compile` returns, on every device. */
export interface StepProgram {
  readonly prepared: Prepared
  readonly times: StepTimes
  /** JavaScript of the last run, up to its submit: inputs written, commands encoded. units: ms. */
  readonly encodeMs: number
  readonly memory: ProgramMemory
  onMark: OnMark | undefined
  /** Dispatches of one run. */
  readonly dispatchCount: number
  /**
   * Runs the program once.
   *
   * The data is copied before this returns, so callers may reuse their arrays at once. With one rank, several runs may be under way;
   * each promise resolves with that run's outputs. A step scalar that is not among `scalars` has its initial value. With several ranks a run resolves when the parameters of all buckets are gathered.
   * errors: `graph.misuse` for wrong inputs; the device's first error; the exchange's errors.
   */
  run(inputs: RunInputs, scalars?: Readonly<Record<string, number>>): Promise<RunOutputs>
  /**
   * Takes part in a step of the other ranks with no samples: exchanges zeros and updates this rank's slices. Nothing for a program without
   * exchange.
   */
  shadow(scalars?: Readonly<Record<string, number>>): Promise<void>
  /** Throws what `run` would reject with for these inputs and scalars, and changes nothing. errors: `graph.misuse`, `device.mismatch`. */
  check(inputs: RunInputs, scalars: Readonly<Record<string, number>>): void
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
    [...names].map((name) => {
      const data = dataOf(inputs[name])
      return [name, ArrayBuffer.isView(data) ? data.slice() : inputs[name]]
    }),
  )

/** A plain array is no tensor by itself: its element type is not known. */
const remedyFor = (input: unknown, array: { readonly name: string }): string =>
  Array.isArray(input) && input.every((value) => typeof value === 'number')
    ? `Give ${array.name}.of(...) or ${array.name}.from(array).`
    : 'Give what the program was compiled for.'

/**
 * The program's inputs out of those that a run was given.
 *
 * errors: `graph.misuse` for a missing input, a wrong type or length, a staged tensor that a run has used.
 */
export function checkInputs(
  prepared: Prepared,
  inputs: RunInputs,
): [name: string, data: HostData | StagedTensor][] {
  return Object.entries(prepared.inputs).map(([name, type]) => {
    const data = dataOf(inputs[name])
    const count = countElements(type.shape)
    const array = hostArrays[type.dtype as HostDType]
    const made = data instanceof StagedTensor ? data.array : data?.constructor
    if (!data || made !== array || data.length !== count) {
      throw new TabringError(
        'graph.misuse',
        `run: input "${name}" must be a ${array.name} of ${count} elements, got ${data instanceof StagedTensor ? `${made?.name} of ${data.length}` : kindOf(data ?? inputs[name])}. ${remedyFor(inputs[name], array)}`,
      )
    }
    if (data instanceof StagedTensor && data.isUsed) {
      throw new TabringError(
        'graph.misuse',
        `run: input "${name}" must be a staged tensor that no run has used, got one that was. Take the next batch from the loader.`,
      )
    }
    return [name, data]
  })
}

/** errors: `graph.misuse` for a whole step inside `noSync`. */
export function refuseNoSync({ trace: { exchange, accumulation }, updates }: Prepared): void {
  if (!exchange || exchange.isSynchronizing || accumulation || updates.length === 0) return
  throw new TabringError(
    'graph.misuse',
    'noSync: expected runs that add up gradients, got a step that updates. Compile it with compileAccumulated().',
  )
}

/** What `fillScalars` would throw; takes and counts nothing. errors: `graph.misuse`. */
export function checkScalars({ trace }: Prepared, scalars: Readonly<Record<string, number>>): void {
  for (const refuse of trace.refusals) refuse()
  trace.scalars.check(scalars)
}

/** Counts the step (unless `isCounted` is false) and writes this run's block of scalars to `values`; `inputs` undefined for a shadow's. */
export function fillScalars(
  { trace }: Prepared,
  scalars: Readonly<Record<string, number>>,
  inputs: GivenInputs | undefined,
  values: Float32Array,
  isCounted = true,
): void {
  for (const refuse of trace.refusals) refuse()
  trace.scalars.begin(scalars)
  trace.weighing?.begin(inputs, isCounted)
  if (isCounted) for (const before of trace.beforeStep) before()
  trace.scalars.fill(values)
  if (isCounted && trace.weighing) trace.alike.note(values)
}
