import { maxLayers, type RandomSlots, randomHalves } from '../../kernels/random/masks.ts'
import { activeTrace, type NamedScalar, type Trace } from './trace.ts'

/** Names of the step scalars that decide random masks; a run may set each of them. */
export const randomScalarNames = {
  /** 0 to 2^53 - 1; default: the seed of `manualSeed`. */
  seed: 'randomSeed',
  /** 0 to 2^32 - 1; default: the next number of the counter that all programs of this page or worker share. */
  step: 'randomStep',
  /**
   * 0 to 2^32 - 1: the global number of this rank's first sample. Default: shares of equal size. In a model of DistributedDataParallel,
   * fullyShard or replicate that is rank times the samples of the layer, otherwise 0.
   */
  sample: 'sampleOffset',
} as const

let defaultSeed = 0

/** The seed of masks in programs that are compiled from here on. */
export function setRandomSeed(seed: number): void {
  defaultSeed = seed
}

let nextStep = 0

/** The number that the next run with random masks takes, of whatever program. */
export const nextRandomStep = (): number => nextStep

export function setNextRandomStep(step: number): void {
  nextStep = step
}

interface RandomState {
  readonly seed: NamedScalar
  readonly step: NamedScalar
  readonly sample: NamedScalar
  /** Slots of layers by their number of samples, which decides the first one of a share. */
  readonly slots: Map<number, RandomSlots>
  functionalLayers: number
  /** Layers of modules that have drawn in this trace. */
  readonly drawn: Set<number>
  repeats: number
}

const known = new WeakMap<Trace, RandomState>()

function stateOf(trace: Trace): RandomState {
  let state = known.get(trace)
  if (!state) {
    const { scalars } = trace
    const { seed: seedName, step: stepName, sample: sampleName } = randomScalarNames
    const seed = scalars.integer(seedName, defaultSeed, randomHalves.seed)
    const step = scalars.integer(stepName, 0, randomHalves.step)
    const sample = scalars.integer(sampleName, 0, randomHalves.sample)
    trace.beforeStep.push(() => {
      if (scalars.wasSet(stepName)) return
      step.value = nextStep
      nextStep = (nextStep + 1) % 2 ** 32
    })
    state = {
      seed,
      step,
      sample,
      slots: new Map(),
      functionalLayers: 0,
      drawn: new Set(),
      repeats: 0,
    }
    known.set(trace, state)
  }
  return state
}

/** The slots of seed, step and first sample in the function being compiled, for a layer of `samples` samples. */
export function randomSlots(where: string, samples: number): RandomSlots {
  const trace = activeTrace(where)
  const { scalars } = trace
  const { seed, step, sample, slots } = stateOf(trace)
  const made = slots.get(samples)
  if (made) return made
  // A layer may draw before the first one that is shared.
  const own = () =>
    scalars.wasSet(randomScalarNames.sample) ? sample.value : (trace.rank ?? 0) * samples
  const first = scalars.addInteger(() => seed.value, randomHalves.seed)
  scalars.addInteger(() => step.value, randomHalves.step)
  scalars.addInteger(own, randomHalves.sample)
  slots.set(samples, first)
  return first
}

/**
 * Layers of modules have numbers below this. Calls without one take numbers from here up, in the order of the trace; repeated calls of a
 * module numbers from the last one down.
 */
const firstFunctionalLayer = 2 ** 23

/** A separate layer number for a call that has none, the same in each trace of the same function. */
export const functionalLayer = (where: string): number =>
  firstFunctionalLayer + stateOf(activeTrace(where)).functionalLayers++

/**
 * The number with which a module's layer draws in this call: its own in the first call of a trace, a new one in each further call, the
 * same in each trace of the same function. What is recomputed for backward keeps the number of the call that it repeats.
 */
export function layerOfCall(where: string, layer: number): number {
  const state = stateOf(activeTrace(where))
  if (state.drawn.has(layer)) return maxLayers - 1 - state.repeats++
  state.drawn.add(layer)
  return layer
}

let nextLayer = 0

/** The number of the next random layer; the same code gives the same numbers on every rank. */
export const nextRandomLayer = (): number => nextLayer++ % firstFunctionalLayer

/** How many random layers have a number. */
export const randomLayers = (): number => nextLayer

/** Numbers random layers from `first` again. */
export function resetRandomLayers(first = 0): void {
  nextLayer = first
}
