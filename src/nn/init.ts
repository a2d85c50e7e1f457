import { Parameter } from '../graph/parameter.ts'
import { RandomStream } from '../util/random.ts'
import { countElements, type Shape } from '../util/shape.ts'

let seed = 0
let nextStream = 0

/**
 * Sets the seed of all parameters made from here on, in this page or worker.
 *
 * Each parameter draws from a stream of its own, numbered in order of creation, so the same code gives the same numbers everywhere.
 */
export function manualSeed(value: number): void {
  seed = value
  nextStream = 0
}

/** Where this page's or worker's stream of initial parameters stands; as torch.get_rng_state, but two numbers. */
export interface RngState {
  readonly seed: number
  readonly nextStream: number
}

export const getRngState = (): RngState => ({ seed, nextStream })

/** Goes on where `getRngState` was called. */
export function setRngState(state: RngState): void {
  seed = state.seed
  nextStream = state.nextStream
}

/**
 * A parameter with PyTorch's default distribution for weights and biases of Linear and Conv layers:
 * uniform in ±1/sqrt(fanIn).
 *
 * source: torch.nn.Linear.reset_parameters: kaiming_uniform_ with a = sqrt(5), which has this bound.
 */
export function fanInUniform(shape: Shape, fanIn: number): Parameter {
  const bound = fanIn > 0 ? 1 / Math.sqrt(fanIn) : 0
  const stream = new RandomStream(seed, nextStream++)
  const data = Float32Array.from({ length: countElements(shape) }, () =>
    stream.between(-bound, bound),
  )
  return new Parameter(shape, data)
}

/**
 * Draws a convolution's or linear layer's weight anew: normal around 0 with variance 2 / fanOut, which keeps the size of gradients
 * through ReLU layers.
 *
 * source: torch.nn.init.kaiming_normal_ with mode fan_out; He et al., arXiv 1502.01852.
 */
export function kaimingNormal(weight: Parameter): void {
  const [outputs, , ...kernel] = weight.shape
  const deviation = Math.sqrt(2 / (outputs * countElements(kernel)))
  weight.assign(normalNumbers(weight.count, deviation))
}

/** `count` numbers, normal around 0, from a stream of their own. source: Box and Muller. */
export function normalNumbers(count: number, deviation: number): Float32Array<ArrayBuffer> {
  const stream = new RandomStream(seed, nextStream++)
  return Float32Array.from({ length: count }, () => {
    const radius = Math.sqrt(-2 * Math.log(1 - stream.unit()))
    return deviation * radius * Math.cos(2 * Math.PI * stream.unit())
  })
}
