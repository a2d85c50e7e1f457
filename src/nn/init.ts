import { Parameter } from '../graph/trace/parameter.ts'
import {
  nextRandomStep,
  resetRandomLayers,
  setNextRandomStep,
  setRandomSeed,
} from '../graph/trace/random.ts'
import { checkNumber, checkOptions } from '../util/options.ts'
import { RandomStream, uniform as uniformNumbers } from '../util/random.ts'
import { checkCount, checkShape, countElements, type Shape } from '../util/shape.ts'

let parameterSeed = 0
let nextStream = 0

/**
 * Sets the seed for all parameters created and all random masks compiled from now on, in this page or worker.
 *
 * Mask numbers restart at 0. Each parameter draws from its own stream, numbered in order of creation, so the same code gives the same
 * numbers everywhere.
 * errors: `config.invalid` unless the seed is a whole number from 0 to 2^53 - 1 (PyTorch also accepts negative ones).
 */
export function manualSeed(seed: number): void {
  checkSeed('manualSeed', seed)
  parameterSeed = seed
  nextStream = 0
  setRandomSeed(seed)
  setNextRandomStep(0)
  resetRandomLayers()
}

function checkSeed(where: string, seed: number): void {
  const isSeed = (value: number) => Number.isSafeInteger(value) && value >= 0
  checkNumber(where, 'seed', seed, isSeed, 'a whole number from 0 to 2^53 - 1', true)
}

/** State of this page's or worker's random numbers, like torch.get_rng_state, but three numbers. */
export interface RngState {
  readonly seed: number
  /** The stream of the next parameter to be created. */
  readonly nextStream: number
  /** The `randomStep` of the next run that draws masks. */
  readonly nextStep: number
}

export const getRngState = (): RngState => ({
  seed: parameterSeed,
  nextStream,
  nextStep: nextRandomStep(),
})

/**
 * Restores a state from `getRngState`; programs compiled from now on use masks of its seed.
 *
 * errors: `config.invalid` for a number that is missing or cannot be; then nothing changes.
 */
export function setRngState(state: RngState): void {
  checkOptions('setRngState', state, { seed: true, nextStream: true, nextStep: true }, 'state')
  checkSeed('setRngState', state.seed)
  for (const name of ['nextStream', 'nextStep'] as const) {
    const isNumber = (value: number) => Number.isInteger(value) && value >= 0 && value < 2 ** 32
    checkNumber('setRngState', name, state[name], isNumber, wholeOf32Bits, true)
  }
  parameterSeed = state.seed
  setRandomSeed(parameterSeed)
  nextStream = state.nextStream
  setNextRandomStep(state.nextStep)
}

const wholeOf32Bits = 'a whole number from 0 to 2^32 - 1'

/** How many numbers a parameter has. errors: those of `checkShape`. */
function elementsOf(shape: Shape): number {
  checkShape('Parameter', shape)
  return countElements(shape)
}

/**
 * A parameter with PyTorch's default distribution for weights and biases of Linear and Conv layers:
 * uniform in ±1/sqrt(fanIn).
 *
 * source: torch.nn.Linear.reset_parameters: kaiming_uniform_ with a = sqrt(5), which has this bound.
 */
export function fanInUniform(shape: Shape, fanIn: number): Parameter {
  return uniform(shape, fanIn > 0 ? 1 / Math.sqrt(fanIn) : 0)
}

/** A parameter whose elements all begin as `value`: ones for the weights of normalisation layers, zeros for their biases. */
export const filled = (shape: Shape, value: number): Parameter =>
  new Parameter(shape, new Float32Array(elementsOf(shape)).fill(value))

/** A parameter of numbers evenly distributed in ±bound. */
export function uniform(shape: Shape, bound: number): Parameter {
  const [seed, stream, count] = [parameterSeed, nextStream++, elementsOf(shape)]
  return new Parameter(shape, () => uniformNumbers(seed, stream, count, -bound, bound))
}

/** `count` normal numbers with mean 0, from a new stream. source: Box and Muller. */
export const normalNumbers = (count: number, deviation: number): Float32Array<ArrayBuffer> =>
  drawNormal(count, deviation)()

/** Takes a new stream, from which the function that is returned draws as `normalNumbers`. */
export function drawNormal(count: number, deviation: number): () => Float32Array<ArrayBuffer> {
  checkCount('Parameter', [count])
  const [seed, stream] = [parameterSeed, nextStream++]
  return () => normalOf(new RandomStream(seed, stream), count, deviation)
}

function normalOf(
  stream: RandomStream,
  count: number,
  deviation: number,
): Float32Array<ArrayBuffer> {
  const numbers = new Float32Array(count)
  for (let i = 0; i < count; i++) {
    const radius = Math.sqrt(-2 * Math.log(1 - stream.unit()))
    numbers[i] = deviation * radius * Math.cos(2 * Math.PI * stream.unit())
  }
  return numbers
}

/** A parameter of normal numbers with mean 0. */
export const normal = (shape: Shape, deviation: number): Parameter =>
  new Parameter(shape, drawNormal(elementsOf(shape), deviation))

/**
 * Draws new values for a convolution's or linear layer's weight: normal around 0 with variance 2 / fanOut, which keeps the size of gradients
 * through ReLU layers.
 *
 * source: torch.nn.init.kaiming_normal_ with mode fan_out; He et al., arXiv 1502.01852.
 */
export function kaimingNormal(weight: Parameter): void {
  const [outputs, , ...kernel] = weight.shape
  weight.assign(normalNumbers(weight.count, Math.sqrt(2 / (outputs * countElements(kernel)))))
}
