import { fromScalar } from '../kernels/from-scalar/from-scalar.ts'
import { map } from '../kernels/map/map.ts'
import { matmul, plain } from '../kernels/matmul/matmul.ts'
import type { Op } from '../kernels/op.ts'
import { reshape } from '../kernels/reshape/reshape.ts'
import type { ScalarFunctionName } from '../kernels/steps.ts'
import { contiguous, isContiguous } from '../kernels/strided.ts'
import { sum } from '../kernels/sum/sum.ts'
import { regionStrided } from '../kernels/view/region.ts'
import { type ViewAttrs, view } from '../kernels/view/view.ts'
import {
  expanded,
  flipped,
  narrowed,
  permuted,
  selected,
  sliced,
  transposed,
} from '../kernels/view/views.ts'
import { ShapeError, TabringError } from '../util/errors.ts'
import {
  countElements,
  type DType,
  formatShape,
  resolveAxis,
  type Shape,
  sameShape,
} from '../util/shape.ts'
import { add, gradientsOf } from './backward.ts'
import { activeTrace, gradientWeight } from './trace.ts'
import type { GraphValue } from './value.ts'

/**
 * A tensor as user code handles it: a shape and a place in the graph, without contents of its own.
 *
 * Methods add ops to the function being compiled; memory is the planner's, so there is nothing to dispose of.
 */
export abstract class Tensor {
  abstract readonly value: GraphValue

  get shape(): Shape {
    return this.value.type.shape
  }

  get dtype(): DType {
    return this.value.type.dtype
  }

  /** The number of elements. */
  get count(): number {
    return countElements(this.shape)
  }

  /** Elementwise, shapes broadcast by NumPy's rules. */
  add(other: Tensor): Tensor {
    return this.#elementwise('add', other)
  }
  sub(other: Tensor): Tensor {
    return this.#elementwise('sub', other)
  }
  mul(other: Tensor): Tensor {
    return this.#elementwise('mul', other)
  }
  div(other: Tensor): Tensor {
    return this.#elementwise('div', other)
  }
  neg(): Tensor {
    return this.#elementwise('neg')
  }
  relu(): Tensor {
    return this.#elementwise('relu')
  }

  /**
   * The product over the last axis of this and the last but one of `other`; axes before the last two broadcast.
   *
   * A tensor of one axis is a row on the left and a column on the right, and that axis is gone from the result.
   * shape: [.., M, K] x [.., K, N] -> [.., M, N]
   */
  matmul(other: Tensor): Tensor {
    const [a, b] = [this.shape, other.shape]
    if (a.length === 0 || b.length === 0) {
      throw new ShapeError(
        'shape.mismatch',
        `matmul: both tensors must have at least one dimension, got ${formatShape(a)} and ${formatShape(b)}. Multiply by a scalar with mul().`,
      )
    }
    const left = a.length === 1 ? this.reshape([1, a[0]]) : this
    const product =
      b.length === 1
        ? emit(matmul, [left, other.reshape([1, b[0]])], plain('nt'))
        : emit(matmul, [left, other], plain('nn'))
    const { shape } = product
    const kept = shape.filter(
      (_, axis) =>
        !(a.length === 1 && axis === shape.length - 2) &&
        !(b.length === 1 && axis === shape.length - 1),
    )
    return kept.length === shape.length ? product : product.reshape(kept)
  }

  /** The same elements under another shape; one dimension may be -1. errors: `shape.mismatch` for another count. */
  reshape(shape: Shape): Tensor {
    const known = shape.reduce((product, d) => (d === -1 ? product : product * d), 1)
    const resolved = shape.map((d) => (d === -1 ? this.count / known : d))
    if (countElements(resolved) !== this.count || !resolved.every(Number.isInteger)) {
      throw new ShapeError(
        'shape.mismatch',
        `reshape: ${formatShape(shape)} must hold ${this.count} elements, got ${formatShape(this.shape)}. Check the product of dimensions.`,
      )
    }
    return sameShape(resolved, this.shape) ? this : emit(reshape, [this], { shape: resolved })
  }

  /** Dimensions from `start` on become one. */
  flatten(start = 0): Tensor {
    return this.reshape([...this.shape.slice(0, start), -1])
  }

  /** Axes in the order `axes`: axis n of the result is axis `axes[n]` of this. cost: a copy, unless a matmul can read it in place. */
  permute(...axes: (number | readonly number[])[]): Tensor {
    return this.#view(permuted(this.shape, axes.flat()))
  }

  /** Two axes swapped. cost: as permute. */
  transpose(first: number, second: number): Tensor {
    return this.#view(transposed(this.shape, first, second))
  }

  /** Axes of size 1 repeated to `shape`, new ones in front; -1 keeps a size. */
  expand(...shape: (number | readonly number[])[]): Tensor {
    return this.#view(expanded(this.shape, shape.flat()))
  }

  /** Without the axis `dim` where its size is 1; without all such axes unless told. */
  squeeze(dim?: number): Tensor {
    const only = dim === undefined ? undefined : resolveAxis('squeeze', this.shape, dim)
    return this.reshape(
      this.shape.filter((size, axis) => size !== 1 || (only !== undefined && axis !== only)),
    )
  }

  /** With a new axis of size 1 that becomes axis `dim`. */
  unsqueeze(dim: number): Tensor {
    const at = resolveAxis('unsqueeze', [...this.shape, 1], dim)
    return this.reshape([...this.shape.slice(0, at), 1, ...this.shape.slice(at)])
  }

  /** Python's `start:end:step` along one axis: negative ends count from the back. */
  slice(dim: number, start = 0, end = Number.POSITIVE_INFINITY, step = 1): Tensor {
    return this.#view(sliced(this.shape, dim, start, end, step))
  }

  /** `length` elements of one axis from `start` on. */
  narrow(dim: number, start: number, length: number): Tensor {
    return this.#view(narrowed(this.shape, dim, start, length))
  }

  /** The tensor at one index of an axis, which is gone from the result. */
  select(dim: number, index: number): Tensor {
    return this.#view(selected(this.shape, dim, index))
  }

  /** The axes `dims` backwards. */
  flip(...dims: (number | readonly number[])[]): Tensor {
    return this.#view(flipped(this.shape, dims.flat()))
  }

  /** Sum over `axes` (all of them unless told). */
  sum(axes: readonly number[] = this.shape.map((_, axis) => axis), keepDims = false): Tensor {
    const positive = axes.map((axis) => (axis < 0 ? axis + this.shape.length : axis))
    return emit(sum, [this], { axes: positive, keepDims })
  }

  /**
   * Adds this scalar's gradient by every parameter behind it to `parameter.grad`.
   *
   * errors: `shape.mismatch` unless it has one element; `graph.misuse` where an op has no gradient.
   */
  backward(): void {
    const trace = activeTrace('backward')
    if (this.count !== 1) {
      throw new ShapeError(
        'shape.mismatch',
        `backward: the loss must have one element, got ${formatShape(this.shape)}. Take its sum or mean first.`,
      )
    }
    const [unit] = trace.emit(fromScalar, [], { slot: trace.scalars.named(gradientWeight, 1) })
    const seed =
      this.shape.length === 0 ? unit : trace.emit(reshape, [unit], { shape: this.shape })[0]
    for (const [parameter, gradient] of gradientsOf(trace, this.value, seed)) {
      // Ranks sum their gradients, so that each begins with its share: equal ones, unless a run says otherwise.
      if (parameter.exchange) trace.scalars.set(gradientWeight, 1 / parameter.exchange.size)
      const earlier = trace.gradients.get(parameter)
      trace.gradients.set(parameter, earlier ? add(trace, earlier, gradient) : gradient)
    }
  }

  /** A region of this tensor; the same memory where nothing moves. */
  #view(attrs: ViewAttrs): Tensor {
    const read = regionStrided(attrs, attrs.shape, contiguous(this.shape))
    const isAll = isContiguous(read) && countElements(attrs.shape) === this.count
    return isAll ? this.reshape(attrs.shape) : emit(view, [this], attrs)
  }

  #elementwise(fn: ScalarFunctionName, ...others: Tensor[]): Tensor {
    const inputs = [this, ...others]
    return emit(map, inputs, { steps: [{ fn, args: inputs.map((_, input) => ({ input })) }] })
  }
}

/** A tensor that an op computes, or an input of the compiled function. */
export class TracedTensor extends Tensor {
  readonly value: GraphValue
  constructor(value: GraphValue) {
    super()
    this.value = value
  }
}

/** Adds an op to the function being compiled and returns its first output. */
export function emit<A>(op: Op<A>, inputs: readonly Tensor[], attrs: A): Tensor {
  return emitAll(op, inputs, attrs)[0]
}

/** Adds an op to the function being compiled and returns all its outputs. */
export function emitAll<A>(op: Op<A>, inputs: readonly Tensor[], attrs: A): Tensor[] {
  const values = inputs.map((tensor, i) => {
    if (!(tensor instanceof Tensor)) {
      throw new TabringError(
        'graph.misuse',
        `${op.name}: input ${i} must be a Tensor, got ${typeof tensor}. Pass arrays as inputs of the compiled function.`,
      )
    }
    return tensor.value
  })
  return activeTrace(op.name)
    .emit(op, values, attrs)
    .map((value) => new TracedTensor(value))
}
