import { alias } from '../../kernels/alias/alias.ts'
import { detach } from '../../kernels/detach/detach.ts'
import { amax, amin } from '../../kernels/extreme/extreme.ts'
import { map, singleStep } from '../../kernels/map/map.ts'
import { type MatmulForm, matmul, plain } from '../../kernels/matmul/matmul.ts'
import type { Op, ScalarSlot } from '../../kernels/op.ts'
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
import { calledAs } from '../../util/called-as.ts'
import { type DeviceSpec, type PlacedDevice, sameDevice } from '../../util/device.ts'
import { ShapeError, TabringError } from '../../util/errors.ts'
import { checkFlag } from '../../util/options.ts'
import { byName, countArguments, refusePythonNames } from '../../util/plain-callers.ts'
import {
  countElements,
  type DType,
  formatShape,
  resolveAxis,
  type Shape,
  sameShape,
} from '../../util/shape.ts'
import { addBackward, isFloat, requiresGradient } from './backward.ts'
import type { ReshapedAttrs } from './divided-axis.ts'
import { emitElementwise } from './elementwise.ts'
import { extremeOf, extremePlace, firstExtremes } from './extremes.ts'
import { flattened, reshaped, squeezed, unsqueezed } from './new-shapes.ts'
import {
  type Arguments,
  axesOf,
  flag,
  itemsOf,
  mustBeFloat,
  mustBeTensors,
  targetDevice,
} from './tensor-arguments.ts'
import { activeTrace, currentTrace, ofOtherTrace } from './trace.ts'
import type { GraphValue } from './value.ts'

/** Operand of elementwise functions: a tensor, a constant number, or a step scalar that each run can set. */
export type Operand = Tensor | number | ScalarSlot

/** One or more axes; negative ones count from the end. */
export type Axes = number | readonly number[]

/** Selected elements (f32) and their indices along the axis (i32). */
export interface ValuesAndIndices {
  readonly values: Tensor
  readonly indices: Tensor
}

/**
 * A tensor in user code: a shape and a place in the graph, without contents.
 *
 * Methods add ops to the function being compiled; the planner owns the memory, so there is nothing to dispose of.
 */
export abstract class Tensor {
  abstract readonly value: GraphValue

  get shape(): Shape {
    return this.value.type.shape
  }

  get dtype(): DType {
    return this.value.type.dtype
  }

  /** Number of elements; of a parameter that fullyShard has divided, those that this rank has. */
  get count(): number {
    return countElements(this.value.type.shape)
  }

  /** Throws: a tensor has no contents. errors: `graph.misuse`. */
  item(): never {
    throw new TabringError(
      'graph.misuse',
      'Tensor.item: a tensor has no value while a step is traced. Return it from the step, then read (await step.run(batch)).loss[0].',
    )
  }

  /** Throws in JavaScript's operators, which see an object and no numbers: `x * 2`, `loss > 2`. In a text: its shape and type. errors: `graph.misuse`. */
  [Symbol.toPrimitive](hint: 'string' | 'number' | 'default'): string {
    if (hint === 'string') return `a tensor ${formatShape(this.shape)} of ${this.dtype}`
    throw new TabringError(
      'graph.misuse',
      "Tensor: JavaScript's operators do not work on tensors. Write x.mul(2) for x * 2, x.gt(2) for x > 2, and where(condition, a, b) for condition ? a : b. To read a value, return the tensor from the step.",
    )
  }

  /** Throws in loops over a tensor. Outside of a compiled function there is none, so that tests may compare tensors. errors: `graph.misuse`. */
  get [Symbol.iterator](): undefined {
    if (!currentTrace()) return undefined
    throw new TabringError(
      'graph.misuse',
      'Tensor: JavaScript cannot loop over a tensor. Take its rows one by one: x.select(0, i) for each i below x.shape[0].',
    )
  }

  // --- elementwise; shapes broadcast by NumPy's rules ---

  add(other: Operand): Tensor {
    return elementwise('add', { self: this, other })
  }
  sub(other: Operand): Tensor {
    return elementwise('sub', { self: this, other })
  }
  mul(other: Operand): Tensor {
    return elementwise('mul', { self: this, other })
  }
  div(other: Operand): Tensor {
    return elementwise('div', { self: this, other })
  }
  /** Returns this to the power of `exponent`. numerics: NaN for a negative base and a fractional exponent. */
  pow(exponent: Operand): Tensor {
    return exponent === 2 ? this.square() : elementwise('pow', { self: this, exponent })
  }
  neg(): Tensor {
    return elementwise('neg', { self: this })
  }
  exp(): Tensor {
    return elementwise('exp', { self: this })
  }
  log(): Tensor {
    return elementwise('log', { self: this })
  }
  sqrt(): Tensor {
    return elementwise('sqrt', { self: this })
  }
  rsqrt(): Tensor {
    return elementwise('rsqrt', { self: this })
  }
  square(): Tensor {
    return elementwise('square', { self: this })
  }
  abs(): Tensor {
    return elementwise('abs', { self: this })
  }
  sign(): Tensor {
    return elementwise('sign', { self: this })
  }
  floor(): Tensor {
    return elementwise('floor', { self: this })
  }
  erf(): Tensor {
    return elementwise('erf', { self: this })
  }
  /** Clamps the elements to the given bounds. */
  clamp(min?: number, max?: number): Tensor {
    if (min === undefined && max === undefined) return this
    return calledAs('clamp', ['clampMin', 'clampMax'], () => {
      if (min === undefined) return elementwise('clampMax', { self: this, max: max! })
      return max === undefined
        ? elementwise('clampMin', { self: this, min })
        : elementwise('clamp', { self: this, min, max })
    })
  }
  /** Returns the smaller of the two; equal elements share the gradient. */
  minimum(other: Operand): Tensor {
    return elementwise('minimum', { self: this, other })
  }
  /** Returns the larger of the two; equal elements share the gradient. */
  maximum(other: Operand): Tensor {
    return elementwise('maximum', { self: this, other })
  }

  // --- comparisons: f32, 1 where it holds and 0 elsewhere; no gradient ---

  eq(other: Operand): Tensor {
    return elementwise('eq', { self: this, other })
  }
  ne(other: Operand): Tensor {
    return elementwise('ne', { self: this, other })
  }
  lt(other: Operand): Tensor {
    return elementwise('lt', { self: this, other })
  }
  le(other: Operand): Tensor {
    return elementwise('le', { self: this, other })
  }
  gt(other: Operand): Tensor {
    return elementwise('gt', { self: this, other })
  }
  ge(other: Operand): Tensor {
    return elementwise('ge', { self: this, other })
  }

  // --- activations ---

  relu(): Tensor {
    return elementwise('relu', { self: this })
  }
  sigmoid(): Tensor {
    return elementwise('sigmoid', { self: this })
  }
  tanh(): Tensor {
    return elementwise('tanh', { self: this })
  }
  /** Returns exp(x) / sum of exp(x) over an axis. */
  softmax(dim: number): Tensor {
    mustBeFloat('softmax', this)
    return emit(softmax, [this], { axis: resolveAxis('softmax', 'dim', this.shape, dim) })
  }
  /** Returns the logarithm of `softmax`. */
  logSoftmax(dim: number): Tensor {
    mustBeFloat('logSoftmax', this)
    return emit(logSoftmax, [this], { axis: resolveAxis('logSoftmax', 'dim', this.shape, dim) })
  }

  /**
   * Returns the same numbers stored as float16, two per word: rounded to nearest, infinite beyond 65,504.
   *
   * Products and elementwise functions read float16 directly; every other op gets it as f32.
   */
  half(): Tensor {
    return this.dtype === 'f16' ? this : emit(map, [this], { steps: [], dtype: 'f16' }, 'half')
  }

  /** Returns the same numbers as f32; integers are exact up to 2^24. */
  float(): Tensor {
    return this.dtype === 'f32' ? this : emit(map, [this], { steps: [] }, 'float')
  }

  /**
   * Returns the same contents on a device, like torch.Tensor.to; gradients flow back to where this tensor is.
   *
   * An input of the function, and what is made of inputs and constants alone, lies wherever it is read: nothing is copied.
   * cost: a copy out of one device, through the host, to the other. errors: `config.invalid` for an unknown device.
   */
  to(device: DeviceSpec): Tensor {
    const trace = activeTrace('to')
    const target = targetDevice('to', device)
    const moved = trace.transferred(this.value, target)
    const isThere = moved === this.value && this.device && sameDevice(this.device, target)
    return isThere ? this : new TracedTensor(moved, target)
  }

  /**
   * The device on which it lies. What lies wherever it is read, as inputs do, says the device to which it was moved, else that of the
   * program.
   */
  get device(): PlacedDevice | undefined {
    const trace = activeTrace('device')
    return trace.deviceOf(this.value) ?? trace.device
  }

  /** Returns the same contents as a constant: gradients do not flow through it. */
  detach(): Tensor {
    return emit(detach, [this], {})
  }

  /** Returns an axis counted from 0, for one that may be negative. errors: `shape.mismatch` out of range. */
  axis(dim: number): number {
    return resolveAxis('Tensor.axis', 'dim', this.shape, dim)
  }

  /**
   * Returns axes counted from 0; all of them by default, and for an empty list, as in PyTorch.
   *
   * errors: `shape.mismatch` for one out of range or given twice; `shape.unsupported` for anything but a dimension.
   */
  axes(dim?: Axes): number[] {
    return axesOf('Tensor.axes', this.shape, dim)
  }

  /**
   * Returns the product over the last axis of this and the second-to-last of `other`; axes before the last two broadcast.
   *
   * A tensor with one axis is a row on the left or a column on the right, and the result does not have that axis.
   * shape: [.., M, K] x [.., K, N] -> [.., M, N]
   */
  matmul(other: Tensor): Tensor {
    mustBeTensor('matmul', { other })
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

  /** Returns the same elements with another shape; one dimension may be -1. errors: `shape.mismatch` for another number of elements. */
  reshape(shape: Shape): Tensor {
    const resolved = reshaped(this.shape, shape)
    if (sameShape(resolved, this.shape)) return this
    const result = emit(reshape, [this], { shape: resolved })
    if (shape.includes(-1)) {
      const attrs: ReshapedAttrs = { shape: resolved, inferred: shape.indexOf(-1) }
      activeTrace('reshape').divided.followAs(reshape as Op, [this.value], attrs, result.value)
    }
    return result
  }

  /** Joins dimensions from `start` to `end` (inclusive) into one; a scalar becomes one element. */
  flatten(start = 0, end = -1): Tensor {
    return calledAs('flatten', 'reshape', () => this.reshape(flattened(this.shape, start, end)))
  }

  /** Reorders axes: axis n of the result is axis `axes[n]` of this. cost: a copy, unless a matmul can read it in place. */
  permute(...axes: (number | readonly number[])[]): Tensor {
    return this.#view('permute', permuted(this.shape, axes.flat()))
  }

  /** Swaps two axes. cost: as permute. */
  transpose(first: number, second: number): Tensor {
    return this.#view('transpose', transposed(this.shape, first, second))
  }

  /** Repeats axes of size 1 to `shape`, with new leading axes; -1 keeps a size. */
  expand(...shape: (number | readonly number[])[]): Tensor {
    return this.#view('expand', expanded(this.shape, shape.flat()))
  }

  /** Removes the axis `dim` if its size is 1; by default all such axes. */
  squeeze(dim?: number): Tensor {
    return calledAs('squeeze', 'reshape', () => this.reshape(squeezed(this.shape, dim)))
  }

  /** Inserts a new axis of size 1 as axis `dim`. */
  unsqueeze(dim: number): Tensor {
    const shape = unsqueezed(this.shape, dim)
    const added = resolveAxis('unsqueeze', 'dim', shape, dim)
    const axes = shape.map((_, axis) => (axis === added ? -1 : axis - Number(axis > added)))
    return this.#view('unsqueeze', {
      shape,
      axes,
      start: this.shape.map(() => 0),
      step: this.shape.map(() => 1),
    })
  }

  /** Returns Python's `start:end:step` along one axis; negative ends count from the end. */
  slice(dim: number, start = 0, end = Number.POSITIVE_INFINITY, step = 1): Tensor {
    return this.#view('slice', sliced(this.shape, dim, start, end, step))
  }

  /** Returns `length` elements of one axis from `start`. */
  narrow(dim: number, start: number, length: number): Tensor {
    return this.#view('narrow', narrowed(this.shape, dim, start, length))
  }

  /** Returns the tensor at one index of an axis, which the result does not have. */
  select(dim: number, index: number): Tensor {
    return this.#view('select', selected(this.shape, dim, index))
  }

  /** Reverses the axes `dims`. */
  flip(...dims: (number | readonly number[])[]): Tensor {
    return this.#view('flip', flipped(this.shape, dims.flat()))
  }

  // --- reductions over `dim` (default: all dimensions), which stays as size 1 with `keepDim` ---

  sum(dim?: Axes, keepDim = false): Tensor {
    return emit(sum, [this], this.#reduction('sum', dim, keepDim))
  }
  mean(dim?: Axes, keepDim = false): Tensor {
    mustBeFloat('mean', this)
    const attrs = this.#reduction('mean', dim, keepDim)
    const count = attrs.axes.reduce((product, axis) => product * this.shape[axis], 1)
    return emit(sum, [this], attrs, 'mean').div(count)
  }
  /** Returns the largest elements; equal ones share the gradient evenly. */
  amax(dim?: Axes, keepDim = false): Tensor {
    return emit(amax, [this], this.#reduction('amax', dim, keepDim))
  }
  /** Returns the smallest elements; equal ones share the gradient evenly. */
  amin(dim?: Axes, keepDim = false): Tensor {
    return emit(amin, [this], this.#reduction('amin', dim, keepDim))
  }
  /** Returns the largest element; or, along one dimension, the largest elements and their indices (the first of equal ones). */
  max(): Tensor
  max(dim: number, keepDim?: boolean): ValuesAndIndices
  max(dim?: number, keepDim = false): Tensor | ValuesAndIndices {
    activeTrace('max')
    return dim === undefined ? extremeOf(this, 'max') : firstExtremes(this, 'max', dim, keepDim)
  }
  /** Returns the smallest element; or, along one dimension, the smallest elements and their indices (the first of equal ones). */
  min(): Tensor
  min(dim: number, keepDim?: boolean): ValuesAndIndices
  min(dim?: number, keepDim = false): Tensor | ValuesAndIndices {
    activeTrace('min')
    return dim === undefined ? extremeOf(this, 'min') : firstExtremes(this, 'min', dim, keepDim)
  }
  /** Returns the index (i32) of the largest element along a dimension, or in the flattened tensor; the first of equal ones. */
  argmax(dim?: number, keepDim = false): Tensor {
    activeTrace('argmax')
    return extremePlace(this, 'max', dim, keepDim)
  }
  /** Returns the index (i32) of the smallest element along a dimension, or in the flattened tensor; the first of equal ones. */
  argmin(dim?: number, keepDim = false): Tensor {
    activeTrace('argmin')
    return extremePlace(this, 'min', dim, keepDim)
  }
  /** Returns the k largest (or smallest) elements along a dimension in order, and their indices (i32). cost: k passes over it. */
  topk(k: number, dim = -1, largest = true): ValuesAndIndices {
    const axis = resolveAxis('topk', 'dim', this.shape, dim)
    const attrs = { k, axis, isLargest: flag('topk', 'largest', largest) }
    const [values, indices] = emitAll(topK, [this], attrs, 'topk')
    return byName('topk', { values, indices })
  }

  // --- gradients ---

  /**
   * True if `backward` computes a gradient for this tensor, or passes one on to the tensors it depends on. Setting it calls
   * `requiresGrad_`.
   */
  get requiresGrad(): boolean {
    return requiresGradient(activeTrace('requiresGrad'), this.value)
  }
  set requiresGrad(requiresGrad: boolean) {
    this.requiresGrad_(requiresGrad)
  }

  /**
   * Requests a gradient for this tensor (for example an input), which `backward` stores in `grad`; returns this tensor.
   *
   * Like torch.Tensor.requires_grad_. A tensor computed from ones that require a gradient already takes part; `retainGrad` keeps its
   * gradient.
   * errors: `graph.misuse` for integers, and for `false` on a computed tensor: `detach` it.
   */
  requiresGrad_(requiresGrad = true): this {
    const trace = activeTrace('requiresGrad_')
    checkFlag('requiresGrad_', 'requiresGrad', requiresGrad)
    if (!requiresGrad) trace.asked.delete(this.value)
    const isRequired = requiresGradient(trace, this.value)
    if (isRequired && !requiresGrad) {
      throw new TabringError(
        'graph.misuse',
        'requiresGrad_: this tensor is computed from tensors that require a gradient, so it cannot be set to false. Use detach() instead.',
      )
    }
    if (requiresGrad && !isRequired)
      calledAs('requiresGrad_', 'retainGrad', () => this.retainGrad())
    return this
  }

  /** Keeps the gradient of a computed tensor in `grad`, like torch.Tensor.retain_grad. errors: `graph.misuse` for integers. */
  retainGrad(): void {
    if (!isFloat(this.value)) {
      throw new TabringError(
        'graph.misuse',
        `retainGrad: expected a float tensor, got ${this.dtype}. Make it f32; gradients do not flow through integers.`,
      )
    }
    activeTrace('retainGrad').asked.add(this.value)
  }

  /**
   * The gradient computed by `backward` in the function being compiled, f32; undefined before, and if none was requested.
   *
   * Several `backward` calls add up; `x.grad = undefined` resets it. Later backward passes treat it as a constant. Steps with several ranks
   * or accumulation scale their loss; this gradient is that of the unscaled loss.
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
   * Adds this scalar's gradient to the `grad` of every parameter and tensor it depends on that requires one.
   *
   * errors: `shape.mismatch` unless it has one element; `graph.misuse` if an op has no gradient, or if nothing requires one.
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

  #reduction(where: string, dim: Axes | undefined, keepDim: boolean) {
    return { axes: axesOf(where, this.shape, dim), keepDims: flag(where, 'keepDim', keepDim) }
  }

  /** A region of this tensor; the same memory where nothing moves. */
  #view(where: string, attrs: ViewAttrs): Tensor {
    const read = regionStrided(attrs, attrs.shape, contiguous(this.shape))
    const isAll = isContiguous(read) && countElements(attrs.shape) === this.count
    if (!isAll) return emit(view, [this], attrs, where)
    const result = calledAs(where, 'reshape', () => this.reshape(attrs.shape))
    if (result !== this)
      activeTrace('view').divided.followAs(view as Op, [this.value], attrs, result.value)
    return result
  }
}

countArguments(
  Tensor,
  {
    item: Number.POSITIVE_INFINITY,
    clamp: 2,
    flatten: 2,
    permute: Number.POSITIVE_INFINITY,
    expand: Number.POSITIVE_INFINITY,
    slice: 4,
    flip: Number.POSITIVE_INFINITY,
    sum: 2,
    mean: 2,
    amax: 2,
    amin: 2,
    max: 2,
    min: 2,
    argmax: 2,
    argmin: 2,
    topk: 3,
    requiresGrad_: 1,
  },
  {
    add: 'for alpha write x.add(y.mul(alpha))',
    sub: 'for alpha write x.sub(y.mul(alpha))',
    backward: 'for a gradient write x.mul(gradient).sum().backward()',
  },
)
const unchanged = 'x itself: tensors do not change'
const inPlace = 'x = x.add(y) in a step, and parameter.assign(array) outside: tensors do not change'
const onHost = 'return { x } in the step, and read (await step.run(batch)).x, an array'
refusePythonNames(Tensor, {
  size: 'x.shape, or x.shape[0]',
  dim: 'x.shape.length',
  ndim: 'x.shape.length',
  numel: 'x.count',
  T: 'x.transpose(0, 1)',
  mT: 'x.transpose(-2, -1)',
  t: 'x.transpose(0, 1)',
  mm: 'x.matmul(y)',
  var: 'x.variance()',
  numpy: onHost,
  tolist: onHost,
  cpu: onHost,
  clone: unchanged,
  contiguous: unchanged,
  add_: inPlace,
  sub_: inPlace,
  mul_: inPlace,
  div_: inPlace,
  copy_: inPlace,
  fill_: inPlace,
  zero_: inPlace,
  clamp_: inPlace,
  relu_: 'x = x.relu()',
  masked_fill_: 'x = where(mask, value, x)',
  cuda: "x.to('webgpu')",
  double: 'x.float()',
  bfloat16: 'x.half()',
  long: "cast(x, 'i32')",
  int: "cast(x, 'i32')",
  masked_fill: 'where(mask, value, x)',
  bool: 'x.ne(0), which is 1 or 0',
  any: 'x.ne(0).amax()',
  all: 'x.ne(0).amin()',
  isnan: 'x.ne(x)',
  prod: 'x.log().sum().exp(), of numbers above 0: there is no product',
  round: 'x.add(0.5).floor(), which rounds halves up',
  view_as: 'x.reshape(y.shape)',
  expand_as: 'x.expand(y.shape)',
  repeat_interleave: "x.indexSelect(dim, cast(arange(size * n).div(n).floor(), 'i32'))",
})

/** A tensor that an op computes, or an input of the compiled function. */
export class TracedTensor extends Tensor {
  readonly #value: GraphValue
  readonly #trace = currentTrace()
  /** Where it was moved, or what it is made of. */
  readonly movedTo: PlacedDevice | undefined

  constructor(value: GraphValue, movedTo?: PlacedDevice) {
    super()
    this.#value = value
    this.movedTo = movedTo
  }

  /** errors: `graph.misuse` in another function than the one that it was made in. */
  override get value(): GraphValue {
    if (currentTrace() && this.#trace !== currentTrace()) throw ofOtherTrace('this tensor')
    return this.#value
  }

  override get device(): PlacedDevice | undefined {
    return activeTrace('device').deviceOf(this.value) ?? this.movedTo ?? super.device
  }
}

/** The device to which the first of a function's arguments was moved that was moved to one. */
const movedWith = (args: readonly unknown[]): PlacedDevice | undefined =>
  args.find((arg): arg is TracedTensor => arg instanceof TracedTensor && !!arg.movedTo)?.movedTo

/** The value of a gradient that is given to a tensor. errors: `shape.mismatch`. */
export function gradientFor(tensor: Tensor, gradient: Tensor): GraphValue {
  mustBeTensor('grad', { gradient })
  const { shape } = tensor.value.type
  if (!sameShape(shape, gradient.shape)) {
    throw new ShapeError(
      'shape.mismatch',
      `grad: must have the shape of its tensor, ${formatShape(shape)}, got ${formatShape(gradient.shape)}. Reshape it.`,
    )
  }
  return toFloat(gradient).value
}

/**
 * Returns the first of a function's arguments, which are given by name. `optional` ones may be left out.
 *
 * errors: `graph.misuse`, naming the function and the argument, unless all are tensors, and outside of a function that is compiled.
 */
export function mustBeTensor(where: string, args: Arguments, optional: Arguments = {}): Tensor {
  mustBeTensors(where, args, Tensor)
  const given = Object.entries(optional).filter(([, x]) => x !== undefined && x !== null)
  mustBeTensors(where, Object.fromEntries(given), Tensor)
  activeTrace(where)
  return Object.values(args)[0] as Tensor
}

/** Adds an op to the function being compiled and returns its first output. `where`: what was called, for errors. */
export function emit<A>(op: Op<A>, inputs: readonly Tensor[], attrs: A, where?: string): Tensor {
  return emitAll(op, inputs, attrs, where)[0]
}

/** As `emit`, all its outputs. */
export function emitAll<A>(
  op: Op<A>,
  inputs: readonly Tensor[],
  attrs: A,
  where = op.name,
): Tensor[] {
  mustBeTensors(where, itemsOf('inputs', inputs), Tensor)
  const values = inputs.map(({ value }) => value)
  const trace = activeTrace(where)
  trace.divided.refuseOp(op as Op, values, attrs)
  const { count } = attrs as { readonly count?: ScalarSlot | null }
  if (count) trace.scalars.countsAmong(count, values[0].type.shape[0])
  const movedTo = movedWith(inputs)
  const made = calledAs(where, [op.name, 'tensorType'], () => trace.emit(op, values, attrs))
  return made.map((value) => new TracedTensor(value, movedTo))
}

/** The same contents as a separate value, whose gradient is that of the uses of this one alone. cost: nothing. */
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
 * Adds an elementwise function of tensors, numbers and step scalars, given in its order by the names that errors say, to the function being
 * compiled.
 *
 * Tensors that are all f16 give f16, but for functions that need more range. Tensors that are all i32, with whole numbers, give i32
 * where PyTorch gives integers: not for divisions, powers, exponentials and the like. All others are read as f32, integers exact to 2^24.
 * cost: nothing for a number, which is written into the shader; a step scalar is a dispatch of one thread.
 * errors: `graph.misuse` for finite numbers beyond float32's range, or where no operand is a tensor.
 */
export function elementwise(fn: ScalarFunctionName, operands: Arguments<Operand>): Tensor {
  const read = Object.entries(operands).map(
    ([name, operand]) => [name, operand instanceof Tensor ? operand.value : operand] as const,
  )
  const value = emitElementwise(fn, Object.fromEntries(read))
  return new TracedTensor(value, movedWith(Object.values(operands)))
}
