import { ShapeError } from '../../util/errors.ts'
import { refusePromise } from '../trace/refuse-promise.ts'
import { Tensor } from '../trace/tensor.ts'
import { activeTrace } from '../trace/trace.ts'

/**
 * Returns `fn(...inputs)`; backward computes what happened inside again instead of keeping it from forward on.
 *
 * cost: memory for the inputs and the results of `fn` alone until its backward begins; its forward runs a second time then.
 * The gradients are those of the plain program, dropout included: its masks depend on seed, step and position, not on when they are drawn.
 * Calls may nest.
 * source: torch.utils.checkpoint; Chen et al., arXiv 1604.06174.
 */
export function checkpoint<Inputs extends readonly unknown[], R extends Tensor | readonly Tensor[]>(
  fn: (...inputs: Inputs) => R,
  ...inputs: Inputs
): R {
  const trace = activeTrace('checkpoint')
  return trace.inRegion((region) => {
    const result = fn(...inputs)
    refusePromise('checkpoint', result)
    const tensors: readonly Tensor[] = result instanceof Tensor ? [result] : result
    for (const { value } of tensors) region.returned.add(value)
    return result
  })
}

/** What can run as a part of a checkpointed sequence. */
export interface Layer {
  forward(x: Tensor): Tensor
}

/**
 * Runs modules one after the other in `segments` pieces of equal length; all but the last are checkpointed.
 *
 * `modules` is a list or a Sequential. About sqrt(n) segments keep the least.
 * errors: `shape.unsupported` unless there is a segment and a module for each.
 * source: torch.utils.checkpoint.checkpoint_sequential, which does not checkpoint the last segment either.
 */
export function checkpointSequential(
  modules: readonly Layer[] | { children(): [string, Layer][] },
  segments: number,
  x: Tensor,
): Tensor {
  const layers = 'children' in modules ? modules.children().map(([, layer]) => layer) : modules
  if (!Number.isInteger(segments) || segments < 1 || segments > layers.length) {
    throw new ShapeError(
      'shape.unsupported',
      `checkpointSequential: segments must be an integer from 1 to the ${layers.length} modules, got ${segments}. Choose about the square root of their number.`,
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
