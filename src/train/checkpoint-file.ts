import { load, type Saved, type SavedState, save } from '../data/saved-tree.ts'
import { getRngState, setRngState } from '../nn/init.ts'
import { DataError } from '../util/errors.ts'

/** Anything that can say its state and take it over: modules, optimizers, schedulers, samplers, data loaders. */
export interface Stateful {
  stateDict(): unknown
  // A method, so that classes whose state is narrower fit.
  loadStateDict(state: never): unknown
}

export type Parts = Readonly<Record<string, Stateful>>

/** What `loadCheckpoint` returns: where the run stood, and what else was put in. */
export interface Resumed {
  readonly step: number
  readonly extra: SavedState
}

/**
 * Returns one file with the state of all parts, the random state of this page or worker, and the step.
 *
 * `parts` by name: `{ model, optimizer, scheduler, loader }`; a loader's state holds its sampler's. Call it between steps.
 * errors: `data.malformed` for a state that is not made of plain values and arrays.
 */
export async function saveCheckpoint(
  parts: Parts,
  step: number,
  extra: SavedState = {},
): Promise<Uint8Array<ArrayBuffer>> {
  const states: Record<string, Saved> = {}
  for (const [name, part] of Object.entries(parts)) states[name] = (await part.stateDict()) as Saved
  return save({ ...states, run: { step, random: { ...getRngState() }, extra } })
}

/**
 * Puts a file's state into the parts and the random state; what follows is what would have followed in the run that saved it, bit for bit
 * on the same adapter.
 *
 * Make the parts anew, layers with dropout in the same order after manualSeed() or in a new page, and load before the step is compiled.
 * Masks go on where they were: how many runs drew some is part of the random state. Waits for parts whose state takes time to read.
 * errors: `data.malformed` when the file holds other parts; those of the parts.
 */
export async function loadCheckpoint(
  file: Uint8Array<ArrayBuffer>,
  parts: Parts,
): Promise<Resumed> {
  const { run, ...states } = load(file)
  const given = Object.keys(parts).sort().join(', ')
  const found = Object.keys(states).sort().join(', ')
  if (given !== found || !run) {
    throw new DataError(
      'data.malformed',
      `loadCheckpoint: expected the parts ${found || 'of a run'}, got ${given}. Pass the parts that were saved.`,
    )
  }
  for (const [name, part] of Object.entries(parts)) await part.loadStateDict(states[name] as never)
  const { step, random, extra } = run as unknown as Resumed & {
    random: { seed: number; nextStream: number; nextStep?: number }
  }
  // Older files do not tell how many runs drew masks.
  setRngState({ nextStep: 0, ...random })
  return { step, extra }
}
