import * as v from 'valibot'
import { load, type Saved, type SavedState, save } from '../../data/saved-tree.ts'
import { getRngState, type RngState, setRngState } from '../../nn/init.ts'
import { Module } from '../../nn/module.ts'
import { Optimizer } from '../../optim/optimizer.ts'
import { calledAs } from '../../util/called-as.ts'
import { clipped } from '../../util/clipped.ts'
import { DataError, TabringError } from '../../util/errors.ts'
import { hasNames, isRecord } from '../../util/kind-of.ts'
import { checkArgument, checkFlag, checkOptions } from '../../util/options.ts'
import { ownOf } from '../../util/own-of.ts'
import { preparedLoads } from '../../util/prepared-loads.ts'
import { readConditions, takeConditions } from '../data-parallel/run-conditions.ts'

/** Anything with a state that can be saved and loaded: modules, optimizers, schedulers, samplers, data loaders. */
export interface Stateful {
  stateDict(): unknown
  // A method, so that classes whose state is narrower fit.
  loadStateDict(state: never): unknown
}

/** Stateful parts of a checkpoint, by name: `{ model, optimizer, scheduler, loader }`. */
export type Parts = Readonly<Record<string, Stateful>>

/** Contents of a checkpoint, by name: stateful parts, and plain values such as `epoch`, `step`, `bestAccuracy`, `record`. */
export type CheckpointState = Readonly<Record<string, Stateful | Saved | undefined>>

const whole = v.pipe(v.number(), v.safeInteger(), v.minValue(0))
const randomSchema = v.object({
  seed: whole,
  nextStream: whole,
  // Files of earlier versions do not tell how many runs drew masks.
  nextStep: v.optional(whole, 0),
})
/** Tells whether a rank may say that of its random state. */
export const isRngState = (received: unknown): received is RngState => v.is(randomSchema, received)

/** Entries of a file about itself, under `ownKey`. */
const ownSchema = v.object({
  parts: v.array(v.string()),
  random: randomSchema,
  randomByRank: v.optional(v.array(randomSchema)),
  // Files of earlier versions do not tell.
  run: v.optional(
    v.object({
      worldSize: whole,
      models: v.record(
        v.string(),
        v.object({
          bucketCapMb: v.number(),
          firstBucketMb: v.number(),
          hierarchicalMaxBytes: v.number(),
          machines: v.array(whole),
        }),
      ),
    }),
  ),
})

/** Of the file itself: what are parts, the random state, and what else the run's bits depend on. */
const ownKey = 'checkpoint'

const has = (value: unknown, method: keyof Stateful): boolean =>
  isRecord(value) && typeof value[method] === 'function'

const isStateful = (value: CheckpointState[string]): value is Stateful =>
  has(value, 'stateDict') && has(value, 'loadStateDict')

/** Names under which checkpoints have parts and no plain values. */
const partNames = ['model', 'optimizer', 'scheduler', 'loader', 'scaler'] as const

/**
 * Reads the states of all parts; what `packState` makes a file of. On several ranks all call it: an optimizer gathers its slices.
 *
 * `randoms`: the random states of all ranks, in their order, where they are known. They are kept where they differ.
 */
export async function readState(
  state: CheckpointState,
  randoms: readonly RngState[] = [],
  where = 'saveCheckpoint',
): Promise<SavedState> {
  await whenReady(where, 'state', state)
  return readReady(where, state, randoms)
}

/** As `readState`, once `whenReady` has resolved. */
export async function readReady(
  where: string,
  state: CheckpointState,
  randoms: readonly RngState[],
): Promise<SavedState> {
  if (ownKey in state) {
    throw new DataError(
      'data.malformed',
      `${where}: the name "${ownKey}" is reserved for the file itself. Use another name.`,
    )
  }
  const missing = partNames.find((name) => state[name] === null)
  if (missing ?? ('model' in state && state.model === undefined)) {
    const name = missing ?? 'model'
    throw new DataError(
      'config.invalid',
      `${where}: ${name} must be a part with a state, got ${state[name]}. Pass the ${name} itself, or leave ${name} out.`,
    )
  }
  const states = new Map<string, Saved>()
  const parts: string[] = []
  const checkSteps = watchSteps(where, state)
  for (const [name, value] of Object.entries(state)) {
    if (isStateful(value)) {
      parts.push(name)
      states.set(name, (await value.stateDict()) as Saved)
    } else if (value !== undefined) states.set(name, value as Saved)
  }
  checkSteps()
  const run = readConditions(state)
  const random = { ...getRngState() }
  const texts = new Set(randoms.map((one) => JSON.stringify(one)))
  const byRank = texts.size > 1 ? { randomByRank: randoms.map((one) => ({ ...one })) } : {}
  return { ...Object.fromEntries(states), [ownKey]: { parts, random, ...byRank, run } }
}

/**
 * Returns one .safetensors file with the states of all parts, the plain values, and the random state of this page or worker.
 *
 * Use it to handle the file yourself, for example as a download; `saveCheckpoint` keeps files in a folder. All ranks call it, between steps.
 * The tensors of a part are named by their path: `model.0.weight`, `optimizer.state.0.exp_avg`.
 * errors: `data.malformed` for a state that contains anything but plain values and arrays.
 */
export async function packCheckpoint(state: CheckpointState): Promise<Uint8Array<ArrayBuffer>> {
  const states = await readState(state, [], 'packCheckpoint')
  return calledAs('packCheckpoint', 'save', () => save(states))
}

/** errors: `config.invalid` for what is no object with parts by name, such as a bare model, which torch.save takes. */
function checkParts(where: string, name: string, parts: object): void {
  const isNamed = hasNames(parts) && typeof parts['stateDict'] !== 'function'
  checkArgument(where, name, parts, isNamed, 'an object with parts by name, such as { model }')
}

/** Waits until models that were wrapped just now have rank 0's parameters: ranks do their collectives in one order. errors: those of `checkParts`. */
export async function whenReady(
  where: string,
  name: string,
  parts: CheckpointState,
): Promise<void> {
  checkParts(where, name, parts)
  for (const part of Object.values(parts)) {
    if (!(part instanceof Module)) continue
    for (const parameter of part.parameters()) await parameter.exchange?.ready
    for (const buffer of part.buffers()) await buffer.prepareLoad?.()
  }
}

/** Options of `unpackCheckpoint`. */
export interface UnpackOptions {
  /**
   * Called on each rank if the run will not continue bit for bit like the saved one, with the differences, such as the number of ranks or the
   * bucket size. Default: rank 0 logs them to the console. Not called where `strict` is false and only models are loaded.
   */
  onDifferences?: (differences: readonly string[]) => void
  /** True if a file is refused that holds more parts than the given ones. Default true. With false, the random state is not restored. */
  strict?: boolean
}

/**
 * Loads a file's states into the parts, restores the random state, and returns the plain values. On the same adapter and with the same number
 * of ranks, training then continues bit for bit as in the run that saved it.
 *
 * Create the parts again, with dropout layers in the same order after manualSeed() or in a new page, and load before the step is compiled.
 * Dropout masks continue where they were: the number of runs that drew some is part of the random state. A wrapped model adopts the saved
 * run's bucket size unless it was given one; `onDifferences` reports what will differ. It waits for parts whose state loads asynchronously. A
 * model accepts keys with and without the prefix `module.`.
 *
 * All parts load, or none: their states are checked before the first changes. Only parts of your own classes cannot be checked; they load first.
 * errors: `data.malformed` if the file holds other parts; those of the parts.
 */
export const unpackCheckpoint = <Values extends SavedState = SavedState>(
  source: Uint8Array<ArrayBuffer> | ArrayBuffer,
  parts: Parts = {},
  options: UnpackOptions = {},
): Promise<Values> => unpackAt<Values>('unpackCheckpoint', source, parts, options)

/** A rank among those that load together. */
interface Place {
  readonly rank: number
  readonly size: number
}

/** As `unpackCheckpoint`, by one of several ranks. */
export const unpackAt = async <Values extends SavedState>(
  where: string,
  file: Uint8Array<ArrayBuffer> | ArrayBuffer,
  parts: Parts,
  options: UnpackOptions,
  place?: Place,
): Promise<Values> => (await prepareAt<Values>(where, file, parts, options, place))()

/** Makes the checks of `unpackCheckpoint`, on one of several ranks; the function that it returns does the rest. */
export async function prepareAt<Values extends SavedState>(
  where: string,
  file: Uint8Array<ArrayBuffer> | ArrayBuffer,
  parts: Parts,
  options: UnpackOptions,
  place?: Place,
): Promise<() => Promise<Values>> {
  await whenReady(where, 'the parts', parts)
  const { rank, size } = place ?? placeIn(parts)
  const { strict = true, onDifferences = warnOf(where, parts) } = checkOptions(where, options, {
    strict: true,
    onDifferences: true,
  })
  checkFlag(where, 'strict', strict)
  const isHeard = typeof onDifferences === 'function'
  checkArgument(where, 'onDifferences', onDifferences, isHeard, 'a function')
  const { [ownKey]: own, ...states } = load(file, where)
  const checked = v.safeParse(ownSchema, own)
  if (!checked.success) {
    throw new DataError(
      'data.malformed',
      `${where}: saveCheckpoint() did not write this file, which holds another saved state. Read it with load().`,
    )
  }
  const { parts: saved, random, randomByRank, run } = checked.output
  const given = Object.keys(parts)
  const lacksPart = given.some((name) => !saved.includes(name))
  if (lacksPart || (strict && given.length < saved.length)) {
    throw new DataError(
      'data.malformed',
      `${where}: expected the parts ${listed(saved)}, got ${listed(given)}. Pass the parts that were saved, or strict: false to load some of them.`,
    )
  }
  for (const [name, part] of Object.entries(parts))
    checkArgument(where, name, part, has(part, 'loadStateDict'), 'a part with a state')
  const loads = preparedLoads(
    Object.entries(parts).map(([name, part]) => [part, ownOf(states, name)]),
  )
  return async () => {
    const checkSteps = watchSteps(where, parts)
    // Before anything changes, for a step that is under way already.
    checkSteps()
    for (const load of loads) await load()
    checkSteps()
    const differences = run ? takeConditions(run, parts) : []
    if (strict) {
      const isAsMany = randomByRank?.length === size
      setRngState(isAsMany ? randomByRank[rank] : random)
      if (randomByRank && !isAsMany)
        differences.push(
          `random states of ${randomByRank.length} ranks that were seeded separately, now rank 0's on all ${size}`,
        )
    }
    // A load of weights alone continues no run.
    const isContinued = strict || Object.values(parts).some((part) => !(part instanceof Module))
    if (isContinued && differences.length > 0) onDifferences(differences)
    const values = Object.entries(states).filter(([name]) => !saved.includes(name))
    return Object.fromEntries(values) as Values
  }
}

/** This rank among those of a wrapped model; alone where none is. */
function placeIn(parts: Parts): Place {
  const models = Object.values(parts).filter((part) => part instanceof Module)
  const shared = models.flatMap((model) => model.parameters()).find(({ exchange }) => exchange)
  return shared?.exchange ?? { rank: 0, size: 1 }
}

/** Tells of differences on the console, once for all ranks. */
const warnOf = (where: string, parts: Parts) => (differences: readonly string[]) => {
  if (placeIn(parts).rank > 0) return
  console.warn(
    `tabring: ${where}: the run will not continue bit for bit like the saved one: ${differences.join('; ')}.`,
  )
}

const listed = (names: readonly string[]): string => clipped([...names].sort().join(', ')) || 'none'

/**
 * Watches the steps of the parts' parameters. What it returns throws if one ran since, or was under way: then what was read or loaded
 * meanwhile is partly of the state before it, partly of that after it.
 *
 * errors: `graph.misuse`.
 */
function watchSteps(where: string, parts: Readonly<Record<string, unknown>>): () => void {
  const updates = new Set(
    Object.values(parts)
      .flatMap((part) => {
        if (part instanceof Module) return part.parameters()
        return part instanceof Optimizer ? part.paramGroups.flatMap(({ params }) => params) : []
      })
      .map((parameter) => parameter.updates),
  )
  const begun = () => [...updates].reduce((sum, one) => sum + one.begun, 0)
  const before = begun()
  const wasUnderWay = [...updates].some(({ begun, ended }) => begun > ended)
  return () => {
    if (!wasUnderWay && begun() === before) return
    throw new TabringError(
      'graph.misuse',
      `${where}: a step ran at the same time, so parts of the state are of different steps. Await run() before it, and await ${where} before the next run().`,
    )
  }
}
