import { alias } from '../../kernels/alias/alias.ts'
import { detach } from '../../kernels/detach/detach.ts'
import { map, singleStep } from '../../kernels/map/map.ts'
import { type MatmulForm, matmul, plain } from '../../kernels/matmul/matmul.ts'
import type { Op, ScalarSlot } from '../../kernels/op.ts'
import { amax, amin } from '../../kernels/reduce/extreme.ts'
import { reshape } from '../../kernels/reshape/reshape.ts'
import { topK } from '../../kernels/select/select.ts'
import { logSoftmax, softmax } from '../../kernels/softmax/softmax.ts'
import type { ScalarFunctionName } from '../../kernels/steps.ts'
import { contiguous, isContiguous } from '../../kernels/strided.ts'
import { sum } from '../../kernels/sum/sum.ts'
import { regionStrided } from '../../kernels/view/region.ts'
import { type ViewAttrs, view } from '../../kernels/view/view.ts'
import {
  expanded,
  flipped,
  narrowed,
  permuted,
  selected,
  sliced,
  transposed,
} from '../../kernels/view/views.ts'
import { ShapeError, TabringError } from '../../util/errors.ts'
import {
  countElements,
  type DType,
  formatShape,
  resolveAxes,
  resolveAxis,
  type Shape,
  sameShape,
} from '../../util/shape.ts'
import { addBackward, isFloat, requiresGradient } from './backward.ts'
import { emitElementwise } from './elementwise.ts'
import { extremeOf, extremePlace, firstExtremes } from './extremes.ts'
import { flattened, reshaped, squeezed, unsqueezed } from './new-shapes.ts'
import { flag, mustBeFloat, mustBeTensors, notUnderstood } from './tensor-arguments.ts'
import { activeTrace } from './trace.ts'
import type { GraphValue } from './value.ts'

/** What elementwise functions take: a tensor, a number that never changes, or one that each run gives anew. */
export type Operand = Tensor | number | ScalarSlot

/** One axis or several; negative ones count from the end. */
export type Axes = number | readonly number[]

/** Elements that were chosen (f32), and where they were along the axis (i32). */
export interface ValuesAndIndices {
  readonly values: Tensor
  readonly indices: Tensor
}

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

  // --- elementwise; shapes broadcast by NumPy's rules ---

  add(other: Operand): Tensor {
    return elementwise('add', this, other)
  }
  sub(other: Operand): Tensor {
    return elementwise('sub', this, other)
  }
  mul(other: Operand): Tensor {
    return elementwise('mul', this, other)
  }
  div(other: Operand): Tensor {
    return elementwise('div', this, other)
  }
  /** This to the power of `exponent`. numerics: NaN for a negative base and a broken exponent. */
  pow(exponent: Operand): Tensor {
    return exponent === 2 ? this.square() : elementwise('pow', this, exponent)
  }
  neg(): Tensor {
    return elementwise('neg', this)
  }
  exp(): Tensor {
    return elementwise('exp', this)
  }
  log(): Tensor {
    return elementwise('log', this)
  }
  sqrt(): Tensor {
    return elementwise('sqrt', this)
  }
  rsqrt(): Tensor {
    return elementwise('rsqrt', this)
  }
  square(): Tensor {
    return elementwise('square', this)
  }
  abs(): Tensor {
    return elementwise('abs', this)
  }
  sign(): Tensor {
    return elementwise('sign', this)
  }
  floor(): Tensor {
    return elementwise('floor', this)
  }
  erf(): Tensor {
    return elementwise('erf', this)
  }
  /** Held within the bounds that are given. */
  clamp(min?: number, max?: number): Tensor {
    if (min === undefined) return max === undefined ? this : elementwise('clampMax', this, max)
    return max === undefined
      ? elementwise('clampMin', this, min)
      : elementwise('clamp', this, min, max)
  }
  /** The smaller of the two; equal elements share the gradient. */
  minimum(other: Operand): Tensor {
    return elementwise('minimum', this, other)
  }
  /** The larger of the two; equal elements share the gradient. */
  maximum(other: Operand): Tensor {
    return elementwise('maximum', this, other)
  }

  // --- comparisons: f32, 1 where it holds and 0 elsewhere; no gradient ---

  eq(other: Operand): Tensor {
    return elementwise('eq', this, other)
  }
  ne(other: Operand): Tensor {
    return elementwise('ne', this, other)
  }
  lt(other: Operand): Tensor {
    return elementwise('lt', this, other)
  }
  le(other: Operand): Tensor {
    return elementwise('le', this, other)
  }
  gt(other: Operand): Tensor {
    return elementwise('gt', this, other)
  }
  ge(other: Operand): Tensor {
    return elementwise('ge', this, other)
  }

  // --- activations ---

  relu(): Tensor {
    return elementwise('relu', this)
  }
  sigmoid(): Tensor {
    return elementwise('sigmoid', this)
  }
  tanh(): Tensor {
    return elementwise('tanh', this)
  }
  /** exp(x) / sum of exp(x) over an axis. */
  softmax(axis: number): Tensor {
    mustBeFloat('softmax', this)
    return emit(softmax, [this], { axis: this.axis(axis) })
  }
  /** The logarithm of `softmax`. */
  logSoftmax(axis: number): Tensor {
    mustBeFloat('logSoftmax', this)
    return emit(logSoftmax, [this], { axis: this.axis(axis) })
  }

  /**
   * The same numbers stored as float16, two to a word: rounded to nearest, beyond 65,504 infinite.
   *
   * Products of two such tensors read them as they are, elementwise functions too; every other op gets them as f32.
   */
  half(): Tensor {
    return this.dtype === 'f16' ? this : emit(map, [this], { steps: [], dtype: 'f16' })
  }

  /** The same numbers as f32; integers are exact to 2^24. */
  float(): Tensor {
    return this.dtype === 'f32' ? this : emit(map, [this], { steps: [] })
  }

  /** The same contents as a constant: no gradient passes. */
  detach(): Tensor {
    return emit(detach, [this], {})
  }

  /** An axis counted from 0, of one that may count from the end. errors: `shape.mismatch` outside. */
  axis(dim: number): number {
    return resolveAxis('dim', this.shape, dim)
  }

  /**
   * Axes counted from 0; all of them unless told, and for none, as in PyTorch.
   *
   * errors: `shape.mismatch` outside or twice; `shape.unsupported` for what is no dimension.
   */
  axes(dim: Axes = []): number[] {
    const axes = typeof dim === 'number' ? [dim] : dim
    if (!Array.isArray(axes)) throw notUnderstood('dim', 'a dimension or an array of them', dim)
    if (axes.length === 0) return this.shape.map((_, axis) => axis)
    return resolveAxes('dim', this.shape, axes)
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
    mustBeFloat('matmul', this, other)
    const left = a.length === 1 ? this.reshape([1, a[0]]) : this
    const c =
      b.length === 1 ? product(left, other.reshape([1, b[0]]), 'nt') : product(left, other, 'nn')
    const { shape } = c
    const kept = shape.filter(
      (_, axis) =>
        !(a.length === 1 && axis === shape.length - 2) &&
        !(b.length === 1 && axis === shape.length - 1),
    )
    return kept.length === shape.length ? c : c.reshape(kept)
  }

  /** The same elements under another shape; one dimension may be -1. errors: `shape.mismatch` for another count. */
  reshape(shape: Shape): Tensor {
    const resolved = reshaped(this.shape, shape)
    return sameShape(resolved, this.shape) ? this : emit(reshape, [this], { shape: resolved })
  }

  /** Dimensions from `start` to `end`, that one included, become one; of a scalar, one element. */
  flatten(start = 0, end = -1): Tensor {
    return this.reshape(flattened(this.shape, start, end))
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
    return this.reshape(squeezed(this.shape, dim))
  }

  /** With a new axis of size 1 that becomes axis `dim`. */
  unsqueeze(dim: number): Tensor {
    return this.reshape(unsqueezed(this.shape, dim))
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

  // --- reductions over `dim` (all dimensions unless told), which stays as size 1 with `keepDim` ---

  sum(dim?: Axes, keepDim = false): Tensor {
    return emit(sum, [this], { axes: this.axes(dim), keepDims: flag('keepDim', keepDim) })
  }
  mean(dim?: Axes, keepDim = false): Tensor {
    mustBeFloat('mean', this)
    const reduced = this.axes(dim)
    const count = reduced.reduce((product, axis) => product * this.shape[axis], 1)
    return this.sum(dim, keepDim).div(count)
  }
  /** The largest elements; equal ones share the gradient evenly. */
  amax(dim?: Axes, keepDim = false): Tensor {
    return emit(amax, [this], { axes: this.axes(dim), keepDims: flag('keepDim', keepDim) })
  }
  /** The smallest elements; equal ones share the gradient evenly. */
  amin(dim?: Axes, keepDim = false): Tensor {
    return emit(amin, [this], { axes: this.axes(dim), keepDims: flag('keepDim', keepDim) })
  }
  /** The largest element; or, over one dimension, the largest ones and where they are, of equal ones the first. */
  max(): Tensor
  max(dim: number, keepDim?: boolean): ValuesAndIndices
  max(dim?: number, keepDim = false): Tensor | ValuesAndIndices {
    return dim === undefined ? extremeOf(this, 'max') : firstExtremes(this, 'max', dim, keepDim)
  }
  /** The smallest element; or, over one dimension, the smallest ones and where they are, of equal ones the first. */
  min(): Tensor
  min(dim: number, keepDim?: boolean): ValuesAndIndices
  min(dim?: number, keepDim = false): Tensor | ValuesAndIndices {
    return dim === undefined ? extremeOf(this, 'min') : firstExtremes(this, 'min', dim, keepDim)
  }
  /** The index (i32) of the largest element along a dimension, or in the flattened tensor; of equal ones the first. */
  argmax(dim?: number, keepDim = false): Tensor {
    return extremePlace(this, 'max', dim, keepDim)
  }
  /** The index (i32) of the smallest element along a dimension, or in the flattened tensor; of equal ones the first. */
  argmin(dim?: number, keepDim = false): Tensor {
    return extremePlace(this, 'min', dim, keepDim)
  }
  /** The k largest (or smallest) elements along a dimension in order, and their indices (i32). cost: k passes over it. */
  topk(k: number, dim = -1, largest = true): ValuesAndIndices {
    const attrs = { k, axis: this.axis(dim), isLargest: flag('largest', largest) }
    const [values, indices] = emitAll(topK, [this], attrs)
    return { values, indices }
  }

  // --- gradients ---

  /** Whether `backward` gives this tensor a gradient, or passes one on to what stands behind it. Setting it is `requiresGrad_`. */
  get requiresGrad(): boolean {
    return requiresGradient(activeTrace('requiresGrad'), this.value)
  }
  set requiresGrad(requiresGrad: boolean) {
    this.requiresGrad_(requiresGrad)
  }

  /**
   * Asks for a gradient by this tensor (an input of the function, say), which `backward` then leaves in `grad`; returns this tensor.
   *
   * As torch.Tensor.requires_grad_. A result of tensors that require one takes part anyway; `retainGrad` keeps its gradient.
   * errors: `graph.misuse` for integers, and for `false` on such a result: `detach` it.
   */
  requiresGrad_(requiresGrad = true): this {
    const trace = activeTrace('requiresGrad_')
    if (!requiresGrad) trace.asked.delete(this.value)
    const isRequired = requiresGradient(trace, this.value)
    if (isRequired && !requiresGrad) {
      throw new TabringError(
        'graph.misuse',
        'requiresGrad_: expected a tensor that no op computed from others that require a gradient, got such a result. Use detach() to cut it off.',
      )
    }
    if (requiresGrad && !isRequired) this.retainGrad()
    return this
  }

  /** Keeps the gradient of a computed tensor in `grad`, as torch.Tensor.retain_grad. errors: `graph.misuse` for integers. */
  retainGrad(): void {
    if (!isFloat(this.value)) {
      throw new TabringError(
        'graph.misuse',
        `requiresGrad_: expected a tensor of floats, got ${this.dtype}. Make it f32; nothing flows back through integers.`,
      )
    }
    activeTrace('retainGrad').asked.add(this.value)
  }

  /**
   * The gradient that `backward` gave this tensor in the function being compiled, f32; undefined before, and where none was asked for.
   *
   * Several `backward` add up; `x.grad = undefined` begins anew. It counts as a constant for later ones. Steps of several ranks and of
   * an accumulation weigh their loss; this gradient is that of the loss as it stands.
   */
  get grad(): Tensor | undefined {
    const gradient = activeTrace('grad').tensorGradients.get(this.value)
    return gradient && new TracedTensor(gradient)
  }
  set grad(gradient: Tensor | undefined) {
    const { tensorGradients } = activeTrace('grad')
    if (gradient) tensorGradients.set(this.value, gradientFor(this, gradient))
    else tensorGradients.delete(this.value)
  }

  /**
   * Adds this scalar's gradient by every parameter and tensor behind it that requires one to its `grad`.
   *
   * errors: `shape.mismatch` unless it has one element; `graph.misuse` where an op has no gradient, or where nothing requires one.
   */
  backward(): void {
    const trace = activeTrace('backward')
    if (this.count !== 1) {
      throw new ShapeError(
        'shape.mismatch',
        `backward: the loss must have one element, got ${formatShape(this.shape)}. Take its sum or mean first.`,
      )
    }
    addBackward(trace, this.value)
  }

  /** A region of this tensor; the same memory where nothing moves. */
  #view(attrs: ViewAttrs): Tensor {
    const read = regionStrided(attrs, attrs.shape, contiguous(this.shape))
    const isAll = isContiguous(read) && countElements(attrs.shape) === this.count
    return isAll ? this.reshape(attrs.shape) : emit(view, [this], attrs)
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

/** The value of a gradient that is given to a tensor. errors: `shape.mismatch`. */
export function gradientFor(tensor: Tensor, gradient: Tensor): GraphValue {
  if (!sameShape(tensor.shape, gradient.shape)) {
    throw new ShapeError(
      'shape.mismatch',
      `grad: expected ${formatShape(tensor.shape)}, the shape of its tensor, got ${formatShape(gradient.shape)}. Reshape it.`,
    )
  }
  return toFloat(gradient).value
}

/** Adds an op to the function being compiled and returns its first output. */
export function emit<A>(op: Op<A>, inputs: readonly Tensor[], attrs: A): Tensor {
  return emitAll(op, inputs, attrs)[0]
}

/** Adds an op to the function being compiled and returns all its outputs. */
export function emitAll<A>(op: Op<A>, inputs: readonly Tensor[], attrs: A): Tensor[] {
  mustBeTensors(op.name, inputs, Tensor)
  const values = inputs.map(({ value }) => value)
  return activeTrace(op.name)
    .emit(op, values, attrs)
    .map((value) => new TracedTensor(value))
}

/** The same contents under a value of its own, whose gradient is that of the uses of this one alone. cost: nothing. */
export const aliasOf = (tensor: Tensor): Tensor => emit(alias, [tensor], {})

/** The tensor as f32 where it is f16, else itself. */
export const toFloat = (x: Tensor): Tensor => (x.dtype === 'f16' ? x.float() : x)

/**
 * a b in one of matmul's forms, plus a bias: in f16 under autocast, and where both are f16 already.
 *
 * numerics: f16 operands, f32 sums and bias, the result rounded to f16 once.
 */
export function product(a: Tensor, b: Tensor, form: MatmulForm, bias?: Tensor): Tensor {
  const isHalf = activeTrace('matmul').isAutocast || (a.dtype === 'f16' && b.dtype === 'f16')
  const [left, right] = [a, b].map((x) => (isHalf ? x.half() : toFloat(x)))
  const c = emit(matmul, [left, right], plain(form))
  if (!isHalf) return bias ? c.add(bias) : c
  return bias ? emit(map, [c, bias], { steps: singleStep('add', 2), dtype: 'f16' }) : c.half()
}

/**
 * Adds an elementwise function of tensors, numbers and step scalars to the function being compiled.
 *
 * Tensors that are all f16 give f16, but for functions that need more range. Tensors that are all i32, with whole numbers, give i32
 * where PyTorch gives integers: not for divisions, powers, exponentials and the like. All others are read as f32, integers exact to 2^24.
 * cost: nothing for a number, which is written into the shader; a step scalar is a dispatch of one thread.
 * errors: `graph.misuse` for finite numbers beyond float32's range, or where no operand is a tensor.
 */
export function elementwise(fn: ScalarFunctionName, ...operands: Operand[]): Tensor {
  const read = operands.map((operand) => (operand instanceof Tensor ? operand.value : operand))
  return new TracedTensor(emitElementwise(fn, read))
}
