import { type TensorType, tensorType } from '../../util/shape.ts'
import { naiveOr } from '../naive-or.ts'
import type { Case, KernelLimits, Lowering, Op, OpCall } from '../op.ts'
import { linearGroups, reads, type ShaderBinding } from '../shader.ts'
import { type ScalarFunctionName, stepsToWgsl } from '../steps.ts'
import type { CellKind, RecurrentAttrs, Sizes } from './cells.ts'

/** The elementwise function `fn` as a WGSL function `name`. */
function scalarWgsl(name: string, fn: ScalarFunctionName): string {
  const { lines, result } = stepsToWgsl([{ fn, args: [{ input: 0 }] }], ['a'])
  return `fn ${name}(a: f32) -> f32 {\n  ${[...lines, `return ${result};`].join('\n  ')}\n}`
}

/** The gates' functions, as elementwise kernels compute them. */
export const activationsWgsl = [
  scalarWgsl('sigmoid', 'sigmoid'),
  scalarWgsl('tanh_of', 'tanh'),
].join('\n')

/** Places in time and memory; `lengthsInput` is the call's input that holds the lengths. */
export function placesWgsl(
  { isReverse, batchFirst, lengths }: RecurrentAttrs,
  { B }: Sizes,
): string {
  const length =
    lengths === 'all'
      ? 'return T;'
      : lengths === 'input'
        ? 'return u32(clamp(lengths[b], 0, i32(T)));'
        : `const own = array<u32, ${B}>(${lengths.map((value) => `${value}u`).join(', ')});\n  return own[b];`
  return `
fn length_of(b: u32) -> u32 {
  ${length}
}
fn time_of(s: u32, length: u32) -> u32 {
  return ${isReverse ? 'select(s, length - 1u - s, s < length)' : 's'};
}
fn row_of(t: u32, b: u32) -> u32 {
  return ${batchFirst ? 'b * T + t' : 't * B + b'};
}`
}

export const lengthsBinding = ({ lengths }: RecurrentAttrs, input: number): ShaderBinding[] =>
  lengths === 'input' ? [reads('lengths', { in: input }, 'i32')] : []

/** One workgroup a sequence. */
export const sequenceGroups = ({ B }: Sizes) => linearGroups(B)

/** Lanes of a workgroup: one an item where that is enough, in whole waves. */
export function lanesFor(items: number): number {
  if (items <= 64) return 64
  return items <= 128 ? 128 : 256
}

/** The variants of a kernel over sequences: scalar loads, and 4 neighbouring weights at a time, `itemsOf` of which a workgroup's lanes share. */
export function sequenceVariants<A>(
  lower: (call: OpCall<A>, lanes: number, isWide: boolean) => Lowering,
  weightOf: (call: OpCall<A>) => TensorType,
  itemsOf: (call: OpCall<A>) => number,
): Pick<Op<A>, 'variants' | 'preferred'> {
  const canBeWide = (call: OpCall<A>, { maxInvocations }: KernelLimits) => {
    const size = weightOf(call).shape[1]
    return size % 4 === 0 && size > 0 && maxInvocations >= 256
  }
  return naiveOr('wide', canBeWide, (call, isWide) =>
    lower(call, isWide ? lanesFor(itemsOf(call)) : 64, isWide),
  )
}

/** A sample call in short: sizes, attrs that differ from the usual ones, fill. */
export interface Example<A> {
  readonly cell: CellKind
  readonly T: number
  readonly B: number
  readonly H: number
  readonly more?: Partial<A>
  readonly fill?: Case['fill']
}

/** The case of an example; lengths, where they are an input, are the last one. */
export function sequenceCase<A extends RecurrentAttrs>(
  { cell, T, B, H, fill }: Example<A>,
  attrs: A,
  inputs: readonly TensorType[],
  notes: readonly (string | false)[],
): Case<A> {
  const words = [
    attrs.isReverse && 'reverse',
    attrs.batchFirst && 'batch first',
    attrs.lengths !== 'all' && `lengths ${attrs.lengths}`,
    ...notes,
    fill,
  ].filter(Boolean)
  const isGiven = attrs.lengths === 'input'
  return {
    name: [`${cell} ${T}x${B}x${H}`, ...words].join(', '),
    inputs: isGiven ? [...inputs, tensorType([B], 'i32')] : inputs,
    attrs,
    integerBelow: isGiven ? { [inputs.length]: T + 1 } : undefined,
    fill,
  }
}
