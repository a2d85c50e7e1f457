import { type RandomSlots, randomHalves } from '../kernels/random/masks.ts'
import { activeTrace, type Trace } from './trace.ts'

/** Names of the step scalars that decide random masks; a run may give each of them. */
export const randomScalarNames = {
  /** 0 to 2^53 - 1; the seed of `manualSeed` unless a run gives one. */
  seed: 'randomSeed',
  /** 0 to 2^32 - 1; counts the program's runs from 0 until a run gives it, and then stays as given. */
  step: 'randomStep',
  /** 0 to 2^32 - 1: the global number of this rank's first sample; 0 unless given. */
  sample: 'sampleOffset',
} as const

let defaultSeed = 0

/** The seed of masks in programs that are compiled from here on. */
export function setRandomSeed(seed: number): void {
  defaultSeed = seed
}

const known = new WeakMap<Trace, { slots: RandomSlots; functionalLayers: number }>()

function stateOf(trace: Trace) {
  let state = known.get(trace)
  if (!state) {
    const { scalars } = trace
    const seed = scalars.integer(randomScalarNames.seed, defaultSeed, randomHalves.seed)
    const step = scalars.integer(randomScalarNames.step, 0, randomHalves.step, true)
    scalars.integer(randomScalarNames.sample, 0, randomHalves.sample)
    let runs = 0
    trace.beforeStep.push(() => {
      if (!scalars.wasSet(randomScalarNames.step)) step.value = runs++
    })
    state = { slots: seed.slot, functionalLayers: 0 }
    known.set(trace, state)
  }
  return state
}

/** The slots of seed, step and first sample in the function being compiled. */
export const randomSlots = (where: string): RandomSlots => stateOf(activeTrace(where)).slots

/** Layers of modules have numbers below this; calls without one take numbers above, in the order of the trace. */
const firstFunctionalLayer = 2 ** 23

/** A layer number of its own for a call that has none, the same in each trace of the same function. */
export const functionalLayer = (where: string): number =>
  firstFunctionalLayer + stateOf(activeTrace(where)).functionalLayers++

let nextLayer = 0

/** The number of the next random layer; the same code gives the same numbers on every rank. */
export const nextRandomLayer = (): number => nextLayer++ % firstFunctionalLayer

/** Numbers random layers from 0 again. */
export function resetRandomLayers(): void {
  nextLayer = 0
}
