import { spectrallyNormalized } from '../graph/functions/spectral-norm.ts'
import { ModuleBuffer } from '../graph/trace/module-buffer.ts'
import { Parameter } from '../graph/trace/parameter.ts'
import type { Tensor } from '../graph/trace/tensor.ts'
import { activeTrace, type Trace } from '../graph/trace/trace.ts'
import { clipped } from '../util/clipped.ts'
import { ShapeError, TabringError } from '../util/errors.ts'
import { checkEps, checkOptions } from '../util/options.ts'
import { formatShape, resolveAxis } from '../util/shape.ts'
import { ConvTranspose2d } from './convolution.ts'
import { normalNumbers } from './init.ts'
import { checkModule, type Module } from './module.ts'

export interface SpectralNormOptions {
  /** Name of the property that holds the weight; default 'weight'. */
  name?: string
  /** Number of power iterations per training call; default 1. */
  nPowerIterations?: number
  /** Lower bound for the norm that a vector is divided by; default 1e-12. */
  eps?: number
  /** The output dimension of the weight; default 0, and 1 for a ConvTranspose2d. */
  dim?: number
}

/** A vector of length 1 in a random direction. */
function randomDirection(count: number, eps: number): ModuleBuffer {
  const numbers = normalNumbers(count, 1)
  const length = Math.max(Math.sqrt(numbers.reduce((sum, x) => sum + x * x, 0)), eps)
  return new ModuleBuffer(
    [count],
    numbers.map((x) => x / length),
  )
}

/**
 * Divides a module's weight by its largest singular value before each call of `forward`, and returns the module.
 *
 * Like torch.nn.utils.spectral_norm: the trained weight is `weight_orig`; the buffers `weight_u` and `weight_v` are the vectors that
 * estimate the singular value. Each training call updates them by power iteration, inside the compiled step; gradients treat them as
 * constants. Evaluation does not change them. `weight` itself can only be read during a call. Each rank updates its own copies, starting
 * from rank 0's.
 * cost: with one iteration, four dispatches to update the vectors and about three for the weight.
 * errors: `graph.misuse` if the property is not a parameter or already normalized; `shape.unsupported` for a number of iterations below 1,
 * a dimension that does not exist, or a weight without elements.
 * source: Miyato et al., arXiv 1802.05957.
 */
export function spectralNorm<M extends Module>(module: M, options: SpectralNormOptions = {}): M {
  const known = { name: 'text', nPowerIterations: 'number', eps: true, dim: true } as const
  checkOptions('spectralNorm', options, known)
  checkEps('spectralNorm', options.eps)
  const { nPowerIterations = 1, eps = 1e-12 } = options
  const name = options.name ?? 'weight'
  checkModule('spectralNorm', module)
  const where = `spectralNorm of ${module.constructor.name}`
  if (`${name}_orig` in module) {
    throw new TabringError(
      'graph.misuse',
      `${where}: "${clipped(name)}" is already normalized. Call spectralNorm once.`,
    )
  }
  const weight: unknown = Reflect.get(module, name)
  if (!(weight instanceof Parameter)) {
    throw new TabringError(
      'graph.misuse',
      `${where}: expected a parameter in the property "${clipped(name)}", got ${weight === undefined ? 'none' : typeof weight}. Check the name.`,
    )
  }
  if (!Number.isInteger(nPowerIterations) || nPowerIterations < 1 || weight.count === 0) {
    throw new ShapeError(
      'shape.unsupported',
      `${where}: expected at least 1 power iteration on at least 1 element, got ${nPowerIterations} on ${formatShape(weight.shape)}. Correct nPowerIterations or the layer's sizes.`,
    )
  }
  const { dim: given = module instanceof ConvTranspose2d ? 1 : 0 } = options
  const dim = resolveAxis(where, 'dim', weight.shape, given)
  const height = weight.shape[dim]
  const u = module.registerBuffer(`${name}_u`, randomDirection(height, eps))
  const v = module.registerBuffer(`${name}_v`, randomDirection(weight.count / height, eps))
  Reflect.deleteProperty(module, name)
  Object.assign(module, { [`${name}_orig`]: weight, [`${name}_u`]: u, [`${name}_v`]: v })

  /** The call under way; the weight is normalized where forward first reads it, once ranks have gathered it. */
  let call: { readonly trace: Trace; normalized?: Tensor } | undefined
  Object.defineProperty(module, name, {
    configurable: true,
    set() {
      throw new TabringError(
        'graph.misuse',
        `${module.constructor.name}.${name}: spectralNorm computes it from "${name}_orig" in each call of forward. Set "${name}_orig", and compile again.`,
      )
    },
    get(): Tensor {
      const trace = activeTrace(`${module.constructor.name}.${name}`)
      if (call?.trace !== trace) {
        throw new TabringError(
          'graph.misuse',
          `${module.constructor.name}.${name}: the normalized weight exists only during a call of forward. Call forward, or read "${name}_orig".`,
        )
      }
      call.normalized ??= spectrallyNormalized(
        Reflect.get(module, `${name}_orig`) as Tensor,
        { u, v },
        { dim, iterations: module.training ? nPowerIterations : 0, eps },
      )
      return call.normalized
    },
  })
  module.registerForwardPreHook(() => {
    call = { trace: activeTrace(where) }
    return undefined
  })
  return module
}
