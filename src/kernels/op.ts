import { type Shape, type TensorType, tensorType } from '../util/shape.ts'

/**
 * What an op is: its shapes, its kernels, its gradient, its reference and its cases, all in one descriptor.
 *
 * Nothing here touches a GPU. `graph` traces ops into programs, `gpu` runs the dispatches that `lower` returns.
 */

/** A tensor in a graph, as ops see it. */
export interface Value {
  readonly type: TensorType
}

/** A number that changes from step to step: an index into the step's scalars buffer (`array<f32>`), not a constant. */
export interface ScalarSlot {
  readonly slot: number
}

/** Which tensor a binding is: the call's n-th input or output, a scratch tensor of this lowering, or the step scalars. */
export type Operand = { in: number } | { out: number } | { scratch: number } | 'scalars'

export interface Binding {
  /** The WGSL variable. */
  readonly name: string
  /** `update`: read and written in place; the operand is then an input that the op lists in `updates`. */
  readonly access: 'read' | 'write' | 'update'
  readonly operand: Operand
}

/** One compute dispatch: a complete shader with entry point `main`, its bindings in `@binding` order of group 0. */
export interface Dispatch {
  readonly label: string
  readonly wgsl: string
  readonly bindings: readonly Binding[]
  readonly groups: readonly [number, number, number]
  /** Every `groups` workgroups, counted along x first, write or read these many elements of `operand` and no others, one piece after the other. */
  readonly pieces?: {
    readonly operand: Operand
    readonly groups: number
    readonly elements: number
  }
}

/** What a call becomes on the device. Dispatches run in order; no dispatches means that there is nothing to compute. */
export interface Lowering {
  readonly dispatches: readonly Dispatch[]
  /** Tensors that live for this call alone. */
  readonly scratch?: readonly TensorType[]
}

/** One use of an op with all shapes known. */
export interface OpCall<Attrs = unknown> {
  readonly inputs: readonly TensorType[]
  readonly outputs: readonly TensorType[]
  readonly attrs: Attrs
}

/** Adapter limits that decide which variants can run. */
export interface KernelLimits {
  readonly maxInvocations: number
  readonly workgroupMemoryBytes: number
  readonly maxGroupsPerDimension: number
  /** Number of storage buffers that a dispatch may bind, and the largest binding; absent if unlimited. */
  readonly maxBindings?: number
  readonly maxBufferBytes?: number
  /** True if the adapter computes on the CPU, where other tile sizes are faster; absent if unknown. */
  readonly isSoftware?: boolean
  /** True if shaders are compiled to WebAssembly for one thread, so that the invocations of a workgroup take turns. */
  readonly isWasm?: boolean
  /** Lanes per subgroup, if shaders may use subgroups. */
  readonly subgroupSizes?: { readonly smallest: number; readonly largest: number }
}

/** Attrs of an op whose first output can be f16. */
export interface HalfAttrs {
  /** True if output 0 is stored as f16; default f32. */
  readonly half?: boolean
}

/** One way to compute an op. The first variant of every op is `naive`: plain, always possible, always tested. */
export interface Variant<Attrs = unknown> {
  readonly name: string
  /** Returns whether this variant can run the call; absent means always. */
  when?(call: OpCall<Attrs>, limits: KernelLimits): boolean
  lower(call: OpCall<Attrs>): Lowering
}

/** How a gradient rule builds the ops of the backward pass. */
export interface GradientContext<Attrs = unknown> {
  readonly inputs: readonly Value[]
  readonly outputs: readonly Value[]
  /** The gradient of the loss by each output; undefined where nothing depends on that output. */
  readonly outputGradients: readonly (Value | undefined)[]
  readonly attrs: Attrs
  /** Returns whether the gradient by the n-th input is wanted. */
  needs(input: number): boolean
  /** Adds an op to the graph and returns its outputs. */
  emit<A>(op: Op<A>, inputs: readonly Value[], attrs: A): Value[]
}

export type HostArray = Float64Array | Int32Array | Uint32Array

/** A sample call for tests. `inputs` gives types; contents are drawn by `fill` from `seed`. */
export interface Case<Attrs = unknown> {
  readonly name: string
  readonly inputs: readonly TensorType[]
  readonly attrs: Attrs
  /**
   * `normal`: standard normal. `positive`: its magnitude, at least 0.1. `huge`: magnitudes to 1e4 with both signs.
   * `ties`: small integers, so that equal values occur. `zeros`: all zero.
   */
  readonly fill?: 'normal' | 'positive' | 'huge' | 'ties' | 'zeros'
  /** Exclusive upper bound of each integer input (class labels), by input index. */
  readonly integerBelow?: Readonly<Record<number, number>>
  /** Float inputs, by index, that are never negative: of what is drawn, the absolute value. */
  readonly nonNegative?: readonly number[]
  /** Contents of the scalars buffer, where the op reads it. */
  readonly scalars?: readonly number[]
}

/** The largest allowed |got - expected| is `absolute + relative * |expected|`. */
export interface Tolerance {
  readonly absolute: number
  readonly relative: number
  readonly because: string
}

/** From which input on an epilogue's operands come, and how many bindings the storing dispatch has without them. */
export interface EpilogueRoom {
  readonly operandsFrom: number
  readonly bindings: number
}

export interface Op<Attrs = unknown> {
  readonly name: string
  /** Output types for these inputs. errors: ShapeError for inputs that do not fit. */
  infer(inputs: readonly TensorType[], attrs: Attrs): TensorType[]
  /** Inputs that the op changes in place. Such an op has side effects and keeps its place in the program. */
  readonly updates?: readonly number[]
  /** True if it adds to the inputs that it updates, each workgroup to other elements: then several runs may be computed together. */
  readonly addsUp?: boolean
  /** True if the one output is the one input's memory under another shape; such an op has no dispatches. */
  readonly isView?: boolean
  /** True if the one output is the memory of input 0, which `updates` lists. Nothing else may read that input. */
  readonly isInPlace?: boolean
  /** True if it reads inputs and gradients stored as f16; the graph converts them to f32 for every other op. */
  readonly takesHalf?: boolean
  /**
   * An elementwise chain may be linked into the store of output 0: attrs then have `epilogue: Step[]`, inputs 0 and 1 are
   * the op's own, inputs 2.. are the chain's inputs 1.., and chain input 0 is the value about to be stored.
   * An op that has not two inputs says where the chain's begin, by its attrs where it depends on them.
   */
  readonly takesEpilogue?:
    | boolean
    | EpilogueRoom
    // A method, so that an op of any attrs is an Op.
    | { of(attrs: Attrs): EpilogueRoom }
  /** True if attrs have `rowSums`: output 1 is then the sum of input 0 over all axes but 1, which a bias gradient is. */
  readonly takesRowSums?: boolean
  /**
   * Returns whether output 0 of this call can be stored as f16: attrs then have `half: true`. Rewrites link conversions to f16 in where it can.
   * Absent: never.
   */
  givesHalf?(call: OpCall<Attrs>): boolean
  readonly variants: readonly [Variant<Attrs>, ...Variant<Attrs>[]]
  /** The variant of the fixed table, used unless a run is tuned. */
  preferred?(call: OpCall<Attrs>, limits: KernelLimits): string
  /** Gradients by input; undefined entries where there is none. Absent: the op has no gradient. */
  gradient?(context: GradientContext<Attrs>): (Value | undefined)[]
  /**
   * The definition: plain loops accumulating in f64. Reads `inputs`, returns the outputs;
   * an op with `updates` changes those inputs in place.
   */
  reference(
    inputs: readonly HostArray[],
    call: OpCall<Attrs>,
    scalars: readonly number[],
  ): HostArray[]
  /** Floating-point operations of a call, a multiply-add counting two, as rates are quoted. Absent: nobody quotes any. */
  flops?(call: OpCall<Attrs>): number
  readonly tolerance: Tolerance
  readonly cases: readonly Case<Attrs>[]
}

/** What an op runs as, and how it chooses. */
export type OpKernels<Attrs = unknown> = Pick<Op<Attrs>, 'name' | 'variants' | 'preferred'>

/** Returns the descriptor, with its attrs' type inferred. */
export const defineOp = <Attrs>(op: Op<Attrs>): Op<Attrs> => op

/** A case by its inputs' shapes; types where they are not of f32. */
export const caseOf = <Attrs>(
  name: string,
  inputs: readonly (Shape | TensorType)[],
  attrs: Attrs,
  more: Omit<Case<Attrs>, 'name' | 'inputs' | 'attrs'> = {},
): Case<Attrs> => ({
  name,
  inputs: inputs.map((one) => ('dtype' in one ? one : tensorType(one))),
  attrs,
  ...more,
})
