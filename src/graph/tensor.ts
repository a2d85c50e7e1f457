import { alias } from '../kernels/alias/alias.ts'
import { detach } from '../kernels/detach/detach.ts'
import { fromScalar } from '../kernels/from-scalar/from-scalar.ts'
import {
  type IntegerFunctionName,
  integerFunctions,
  isI32,
  isIntegerExponent,
} from '../kernels/integers/functions.ts'
import { type IntegerArgument, integerMap } from '../kernels/integers/integer-map.ts'
import { map, singleStep } from '../kernels/map/map.ts'
import { type MatmulForm, matmul, plain } from '../kernels/matmul/matmul.ts'
import type { Op, ScalarSlot } from '../kernels/op.ts'
import { amax, amin } from '../kernels/reduce/extreme.ts'
import { reshape } from '../kernels/reshape/reshape.ts'
import { lossTerms } from '../kernels/scalar/losses.ts'
import { topK } from '../kernels/select/select.ts'
import { logSoftmax, softmax } from '../kernels/softmax/softmax.ts'
import type { ScalarFunctionName, StepArgument } from '../kernels/steps.ts'
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
  resolveAxes,
  resolveAxis,
  type Shape,
  sameShape,
} from '../util/shape.ts'
import { addBackward, isFloat, requiresGradient } from './backward.ts'
import { activeTrace } from './trace.ts'
import type { GradientHook, GraphValue } from './value.ts'

/** What elementwise functions take: a tensor, a number that never changes, or one that each run gives anew. */
export type Operand = Tensor | number | ScalarSlot

/** One axis or several; negative ones count from the end. */
export type Axes = number | readonly number[]

/** What registering a hook returns. */
export interface HookHandle {
  /** Takes the hook away from what is traced or differentiated from here on; compiled programs keep what it did. */
  remove(): void
}

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

  /** Dimensions from `start` to `end`, that one included, become one; of a scalar, one element. */
  flatten(start = 0, end = -1): Tensor {
    const { shape } = this
    if (shape.length === 0) return this.reshape([1])
    const [first, last] = [start, end].map((dim) => resolveAxis('flatten', shape, dim))
    if (first > last) {
      throw new ShapeError(
        'shape.mismatch',
        `flatten: the start must not be behind the end, got ${start} and ${end} for ${formatShape(shape)}. Swap them.`,
      )
    }
    const joined = countElements(shape.slice(first, last + 1))
    return this.reshape([...shape.slice(0, first), joined, ...shape.slice(last + 1)])
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
    return dim === undefined ? this.#extreme('max', amax) : this.#first('max', dim, keepDim, true)
  }
  /** The smallest element; or, over one dimension, the smallest ones and where they are, of equal ones the first. */
  min(): Tensor
  min(dim: number, keepDim?: boolean): ValuesAndIndices
  min(dim?: number, keepDim = false): Tensor | ValuesAndIndices {
    return dim === undefined ? this.#extreme('min', amin) : this.#first('min', dim, keepDim, false)
  }
  /** The index (i32) of the largest element along a dimension, or in the flattened tensor; of equal ones the first. */
  argmax(dim?: number, keepDim = false): Tensor {
    return this.#place('argmax', dim, keepDim, true)
  }
  /** The index (i32) of the smallest element along a dimension, or in the flattened tensor; of equal ones the first. */
  argmin(dim?: number, keepDim = false): Tensor {
    return this.#place('argmin', dim, keepDim, false)
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

  /**
   * Calls `hook` with the loss's gradient by this tensor when `backward` has all of it; a tensor that it returns goes on in its place.
   *
   * It runs while the function is traced, once per `backward` and not per step: what it computes becomes part of the program. Hooks run
   * in the order of registering, each on what the one before returned. Those of parameters last over traces.
   * errors: `graph.misuse` where this tensor requires no gradient; `shape.mismatch` for a gradient of another shape.
   */
  registerHook(hook: (gradient: Tensor) => Tensor | undefined): HookHandle {
    const { leaf } = this.value
    const isRequired =
      leaf?.kind === 'parameter'
        ? leaf.parameter.requiresGrad
        : requiresGradient(activeTrace('registerHook'), this.value)
    if (!isRequired) {
      throw new TabringError(
        'graph.misuse',
        'registerHook: expected a tensor that requires a gradient, got one that does not. Register it on a parameter, on what is computed from one, or after requiresGrad_().',
      )
    }
    return hookGradients([this], ([gradient]) => gradient && [hook(gradient)])
  }

  /** A region of this tensor; the same memory where nothing moves. */
  #view(attrs: ViewAttrs): Tensor {
    const read = regionStrided(attrs, attrs.shape, contiguous(this.shape))
    const isAll = isContiguous(read) && countElements(attrs.shape) === this.count
    return isAll ? this.reshape(attrs.shape) : emit(view, [this], attrs)
  }

  #extreme(name: string, op: typeof amax): Tensor {
    mustHaveElements(name, this)
    return emit(op, [this], { axes: this.axes(), keepDims: false })
  }

  #first(name: string, dim: number, keepDim: boolean, largest: boolean): ValuesAndIndices {
    if (this.shape[this.axis(dim)] === 0 || this.dtype === 'u32') mustHaveElements(name, this)
    const { values, indices } = this.topk(1, dim, largest)
    if (flag('keepDim', keepDim)) return { values, indices }
    const shape = this.shape.filter((_, at) => at !== this.axis(dim))
    return { values: values.reshape(shape), indices: indices.reshape(shape) }
  }

  #place(name: string, dim: number | undefined, keepDim: boolean, largest: boolean): Tensor {
    if (dim !== undefined) return this.#first(name, dim, keepDim, largest).indices
    mustHaveElements(name, this)
    const { indices } = this.reshape([this.count]).#first(name, 0, false, largest)
    return flag('keepDim', keepDim) ? indices.reshape(this.shape.map(() => 1)) : indices
  }
}

/** The error for an argument of a wrong kind. */
export const notUnderstood = (name: string, expected: string, got: unknown): ShapeError =>
  new ShapeError(
    'shape.unsupported',
    `${name}: expected ${expected}, got ${typeof got === 'object' ? JSON.stringify(got) : String(got)}. Arguments come in PyTorch's order: (dim, keepDim).`,
  )

/** errors: `shape.unsupported` where there is nothing to take, or what cannot be ordered, naming the function that was called. */
function mustHaveElements(name: string, { dtype, shape, count }: Tensor): void {
  if (count > 0 && dtype !== 'u32') return
  throw new ShapeError(
    'shape.unsupported',
    `${name}: expected an f32 or i32 tensor with at least one element, got ${dtype}${formatShape(shape)}. Convert u32 with float(); leave out empty tensors.`,
  )
}

/** errors: `shape.unsupported` for integers, naming the function that was called. */
export function mustBeFloat(name: string, ...tensors: Tensor[]): void {
  const wrong = tensors.find(({ dtype }) => dtype !== 'f32' && dtype !== 'f16')
  if (!wrong) return
  const { dtype, shape } = wrong
  throw new ShapeError(
    'shape.unsupported',
    `${name}: expected a tensor of floats, got ${dtype}${formatShape(shape)}. Convert it with float().`,
  )
}

/** errors: `shape.unsupported` unless it is true or false. */
export function flag(name: string, value: boolean): boolean {
  if (typeof value !== 'boolean') throw notUnderstood(name, 'true or false', value)
  return value
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

/** The same contents under a value of its own, whose gradient is that of the uses of this one alone. cost: nothing. */
export const aliasOf = (tensor: Tensor): Tensor => emit(alias, [tensor], {})

type Gradients = readonly (Tensor | undefined)[]

/**
 * Calls `hook` in backward with the gradients of tensors that are complete at the same time: one tensor, or aliases made in a row.
 *
 * What it returns replaces the gradients; undefined keeps them all, an undefined entry that one.
 */
export function hookGradients(
  tensors: readonly Tensor[],
  hook: (gradients: Gradients) => Gradients | undefined,
): HookHandle {
  const entry: GradientHook = {
    values: tensors.map(({ value }) => value),
    run(gradients) {
      const given = gradients.map((gradient) => gradient && new TracedTensor(gradient))
      const returned = hook(given) ?? []
      return gradients.map((gradient, i) => {
        const replaced = returned[i]
        return replaced && replaced !== given[i] ? inPlaceOf(gradient, replaced) : gradient
      })
    },
  }
  for (const { value } of tensors) {
    value.hooks ??= new Set()
    value.hooks.add(entry)
  }
  return { remove: () => entry.values.forEach((value) => void value.hooks?.delete(entry)) }
}

/** What a hook returned, in the type of the gradient that it got. */
function inPlaceOf(gradient: GraphValue | undefined, replaced: Tensor): GraphValue {
  if (!gradient || !sameShape(replaced.shape, gradient.type.shape)) {
    throw new ShapeError(
      'shape.mismatch',
      `hook: expected ${gradient ? `a gradient of ${formatShape(gradient.type.shape)}` : 'nothing where there is no gradient'}, got ${formatShape(replaced.shape)}. Return a gradient of the shape that the hook was given.`,
    )
  }
  return (gradient.type.dtype === 'f16' ? replaced.half() : replaced.float()).value
}

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

/** Functions whose results need float32's range or digits even where their arguments are f16, as PyTorch's autocast has them. */
const inFloat: ReadonlySet<ScalarFunctionName> = new Set<ScalarFunctionName>([
  'exp',
  'log',
  'pow',
  'rsqrt',
  'softplus',
  ...(Object.keys(lossTerms) as ScalarFunctionName[]),
])

const isSlot = (operand: Tensor | ScalarSlot): operand is ScalarSlot =>
  !(operand instanceof Tensor) && typeof operand?.slot === 'number'

/**
 * Whether a function is computed on i32: where it is one of integers, its tensors are all i32 and its numbers whole.
 *
 * The condition of `where` may be anything; of its branches one must be a tensor.
 */
function staysInteger(fn: ScalarFunctionName, operands: readonly Operand[]): boolean {
  if (!Object.hasOwn(integerFunctions, fn)) return false
  if (fn === 'pow' && !isIntegerExponent(operands[1])) return false
  const values = fn === 'where' ? operands.slice(1) : operands
  return (
    values.some((value) => value instanceof Tensor) &&
    values.every((value) =>
      typeof value === 'number' ? isI32(value) : value instanceof Tensor && value.dtype === 'i32',
    )
  )
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
  const inputs: Tensor[] = []
  const args = operands.map((operand): StepArgument => {
    if (typeof operand !== 'number') {
      return {
        input: inputs.push(isSlot(operand) ? emit(fromScalar, [], { slot: operand }) : operand) - 1,
      }
    }
    if (Number.isFinite(operand) && !Number.isFinite(Math.fround(operand))) {
      throw new TabringError(
        'graph.misuse',
        `${fn}: a number must be within float32's range, got ${operand}. Give a smaller one, or Infinity where that is meant.`,
      )
    }
    return { constant: operand }
  })
  if (inputs.length === 0) {
    throw new TabringError(
      'graph.misuse',
      `${fn}: expected a tensor among the operands, got numbers alone. Compute it in JavaScript.`,
    )
  }
  if (staysInteger(fn, operands)) {
    const places = args as readonly IntegerArgument[]
    return emit(integerMap, inputs, { fn: fn as IntegerFunctionName, args: places })
  }
  const isHalf = inputs.every(({ dtype }) => dtype === 'f16') && !inFloat.has(fn)
  return emit(map, inputs, { steps: [{ fn, args }], ...(isHalf && { dtype: 'f16' as const }) })
}
