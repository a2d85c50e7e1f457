import { load, type Saved, type SavedState, save } from '../../data/saved-tree.ts'
import { getRngState, type RngState, setRngState } from '../../nn/init.ts'
import { Module } from '../../nn/module.ts'
import { DataError } from '../../util/errors.ts'
import { checkOptions } from '../../util/options.ts'
import {
  type RunConditions,
  readConditions,
  takeConditions,
} from '../data-parallel/run-conditions.ts'

/** Anything that can say its state and take it over: modules, optimizers, schedulers, samplers, data loaders. */
export interface Stateful {
  stateDict(): unknown
  // A method, so that classes whose state is narrower fit.
  loadStateDict(state: never): unknown
}

/** What has a state, by name: `{ model, optimizer, scheduler, loader }`. */
export type Parts = Readonly<Record<string, Stateful>>

/** What a checkpoint is made of, by name: parts that have a state, and plain values as `epoch`, `step`, `bestAccuracy`, `record`. */
export type CheckpointState = Readonly<Record<string, Stateful | Saved | undefined>>

/** Of the file itself: what are parts, the random state, and what else the run's bits depend on. */
const ownKey = 'checkpoint'

const isStateful = (value: CheckpointState[string]): value is Stateful =>
  typeof value === 'object' &&
  value !== null &&
  typeof Reflect.get(value, 'stateDict') === 'function' &&
  typeof Reflect.get(value, 'loadStateDict') === 'function'

/**
 * Reads the states of all parts; what `packState` makes a file of. On several ranks all call it: an optimizer gathers its slices.
 *
 * `randoms`: the random states of all ranks, in their order, where they are known. They are kept where they differ.
 */
export async function readState(
  state: CheckpointState,
  randoms: readonly RngState[] = [],
): Promise<SavedState> {
  if (ownKey in state) {
    throw new DataError(
      'data.malformed',
      `saveCheckpoint: expected names other than "${ownKey}", which the file uses itself, got it. Call it something else.`,
    )
  }
  const states: Record<string, Saved> = {}
  const parts: string[] = []
  await whenReady(state)
  for (const [name, value] of Object.entries(state)) {
    if (isStateful(value)) {
      parts.push(name)
      states[name] = (await value.stateDict()) as Saved
    } else if (value !== undefined) states[name] = value as Saved
  }
  const run = readConditions(state)
  const random = { ...getRngState() }
  const texts = new Set(randoms.map((one) => JSON.stringify(one)))
  const byRank = texts.size > 1 ? { randomByRank: randoms.map((one) => ({ ...one })) } : {}
  return { ...states, [ownKey]: { parts, random, ...byRank, run } }
}

/**
 * Returns one .safetensors file with the states of all parts, the plain values, and the random state of this page or worker.
 *
 * For where the file is to go its own way, as a download; `saveCheckpoint` keeps files in a folder. On several ranks all call it; call it
 * between steps. A part's tensors are named by their path: `model.0.weight`, `optimizer.state.0.exp_avg`.
 * errors: `data.malformed` for a state that is not made of plain values and arrays.
 */
export const packCheckpoint = async (state: CheckpointState): Promise<Uint8Array<ArrayBuffer>> =>
  save(await readState(state))

/** Waits until models that were wrapped just now have rank 0's parameters: ranks do their collectives in one order. */
export async function whenReady(state: CheckpointState): Promise<void> {
  for (const part of Object.values(state)) {
    if (!(part instanceof Module)) continue
    for (const parameter of part.parameters()) await parameter.exchange?.ready
  }
}

export interface UnpackOptions {
  /**
   * Called on each rank where the run will not go on with the bits of the saved one, with what differs: the number of ranks, the size of
   * buckets. Default: rank 0 writes it to the console.
   */
  onDifferences?: (differences: readonly string[]) => void
  /** Whether the file must have no other parts than those given; default true. If not, the random state stays as it is. */
  strict?: boolean
}

/**
 * Puts a file's states into the parts, and the random state; returns the plain values. What follows is what would have followed in the run
 * that saved it, bit for bit on the same adapter and with as many ranks.
 *
 * Make the parts anew, layers with dropout in the same order after manualSeed() or in a new page, and load before the step is compiled.
 * Masks go on where they were: how many runs drew some is part of the random state. A wrapped model takes the saved run's size of buckets
 * over unless it was given its own; what will not be the same is told (`onDifferences`). Waits for parts whose state takes time to read. A model
 * takes keys with `module.` before them and without.
 * errors: `data.malformed` when the file holds other parts; those of the parts.
 */
export const unpackCheckpoint = <Values extends SavedState = SavedState>(
  file: Uint8Array<ArrayBuffer>,
  parts: Parts = {},
  options: UnpackOptions = {},
): Promise<Values> => unpackAt<Values>(file, parts, options, placeIn(parts))

/** A rank among those that load together. */
interface Place {
  readonly rank: number
  readonly size: number
}

/** As `unpackCheckpoint`, by one of several ranks. */
export async function unpackAt<Values extends SavedState>(
  file: Uint8Array<ArrayBuffer>,
  parts: Parts,
  options: UnpackOptions,
  { rank, size }: Place,
): Promise<Values> {
  const { strict = true, onDifferences = warnOf(parts) } = checkOptions('loadCheckpoint', options, {
    strict: true,
    onDifferences: true,
  })
  const { [ownKey]: own, ...states } = load(file)
  const {
    parts: saved,
    random,
    randomByRank,
    run,
  } = (own ?? {}) as {
    parts?: readonly string[]
    random?: Omit<RngState, 'nextStep'> & Partial<RngState>
    randomByRank?: readonly RngState[]
    run?: RunConditions
  }
  if (!saved || !random) {
    throw new DataError(
      'data.malformed',
      'loadCheckpoint: expected a file that saveCheckpoint() wrote, got another saved state. load() reads it.',
    )
  }
  const given = Object.keys(parts)
  const lacksPart = given.some((name) => !saved.includes(name))
  if (lacksPart || (strict && given.length < saved.length)) {
    throw new DataError(
      'data.malformed',
      `loadCheckpoint: expected the parts ${listed(saved)}, got ${listed(given)}. Pass the parts that were saved, or strict: false for some of them.`,
    )
  }
  await whenReady(parts)
  // Older files do not tell.
  const differences = run ? takeConditions(run, parts) : []
  for (const [name, part] of Object.entries(parts)) {
    const state = states[name] as never
    if (part instanceof Module) part.loadStateDict(state, { prefix: 'auto' })
    else await part.loadStateDict(state)
  }
  if (strict) {
    const isAsMany = randomByRank?.length === size
    // Older files do not tell how many runs drew masks.
    setRngState({ nextStep: 0, ...(isAsMany ? randomByRank[rank] : random) })
    if (randomByRank && !isAsMany)
      differences.push(
        `random states of ${randomByRank.length} ranks that were seeded each for itself, now rank 0's on all ${size}`,
      )
  }
  if (differences.length > 0) onDifferences(differences)
  const values = Object.entries(states).filter(([name]) => !saved.includes(name))
  return Object.fromEntries(values) as Values
}

/** This rank among those of a wrapped model; alone where none is. */
function placeIn(parts: Parts): Place {
  const models = Object.values(parts).filter((part) => part instanceof Module)
  const shared = models.flatMap((model) => model.parameters()).find(({ exchange }) => exchange)
  return shared?.exchange ?? { rank: 0, size: 1 }
}

/** Tells of differences on the console, once for all ranks. */
const warnOf = (parts: Parts) => (differences: readonly string[]) => {
  if (placeIn(parts).rank > 0) return
  console.warn(
    `tabring: loadCheckpoint: the run goes on with other bits than the saved one: ${differences.join('; ')}.`,
  )
}

const listed = (names: readonly string[]): string => [...names].sort().join(', ') || 'none'
