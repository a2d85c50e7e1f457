import { ShapeError } from '../../util/errors.ts'
import { isRecord, quoted } from '../../util/kind-of.ts'
import { checkArgument, checkList } from '../../util/options.ts'
import { refusePromise } from '../trace/refuse-promise.ts'
import { mustBeTensor, type Tensor } from '../trace/tensor.ts'
import { itemsOf } from '../trace/tensor-arguments.ts'
import { activeTrace } from '../trace/trace.ts'

/**
 * Returns `fn(...inputs)`; backward recomputes its intermediates instead of keeping them.
 *
 * cost: memory only for the inputs and results of `fn` until its backward starts, which runs its forward a second time.
 * Gradients are those of the plain program, dropout included: its masks depend on seed, step and position, not on when they are drawn.
 * Calls may be nested.
 * source: torch.utils.checkpoint; Chen et al., arXiv 1604.06174.
 */
export function checkpoint<Inputs extends readonly unknown[], R extends Tensor | readonly Tensor[]>(
  fn: (...inputs: Inputs) => R,
  ...inputs: Inputs
): R {
  checkArgument('checkpoint', 'fn', fn, typeof fn === 'function', 'a function')
  const trace = activeTrace('checkpoint')
  return trace.inRegion((region) => {
    const result = fn(...inputs)
    refusePromise('checkpoint', result)
    const tensors: readonly Tensor[] = Array.isArray(result) ? result : [result as Tensor]
    mustBeTensor(
      'checkpoint',
      Array.isArray(result) ? itemsOf('fn()', tensors) : { 'fn()': result },
    )
    for (const { value } of tensors) region.returned.add(value)
    return result
  })
}

/** Returns whether layers come by name, as those of a Sequential. */
const isParent = (modules: object): modules is { children(): [string, Layer][] } =>
  isRecord(modules) && typeof modules.children === 'function'

/** A part of a checkpointed sequence. */
export interface Layer {
  forward(x: Tensor): Tensor
}

/**
 * Runs modules in sequence in `segments` pieces of equal length; all but the last are checkpointed.
 *
 * `modules` is a list or a Sequential. About sqrt(n) segments need the least memory.
 * errors: `shape.unsupported` unless there is at least one segment and one module for each.
 * source: torch.utils.checkpoint.checkpoint_sequential, which does not checkpoint the last segment either.
 */
export function checkpointSequential(
  modules: readonly Layer[] | { children(): [string, Layer][] },
  segments: number,
  x: Tensor,
): Tensor {
  mustBeTensor('checkpointSequential', { x })
  const layers = isParent(modules) ? modules.children().map(([, layer]) => layer) : modules
  const isLayer = (layer: Layer) => isRecord(layer) && typeof layer.forward === 'function'
  checkList('checkpointSequential', 'modules', layers, isLayer, 'modules, or a Sequential')
  if (!Number.isInteger(segments) || segments < 1 || segments > layers.length) {
    throw new ShapeError(
      'shape.unsupported',
      `checkpointSequential: segments must be an integer from 1 to ${layers.length}, the number of modules, got ${quoted(segments)}. The square root of that number is a good choice.`,
    )
  }
  const length = Math.floor(layers.length / segments)
  const through = (part: readonly Layer[]) => (input: Tensor) =>
    part.reduce((tensor, layer) => layer.forward(tensor), input)
  let result = x
  for (let segment = 0; segment < segments - 1; segment++) {
    result = checkpoint(through(layers.slice(segment * length, (segment + 1) * length)), result)
  }
  return through(layers.slice((segments - 1) * length))(result)
}
