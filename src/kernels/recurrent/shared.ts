import { linearGroups, reads, type ShaderBinding } from '../shader.ts'
import { type ScalarFunctionName, stepsToWgsl } from '../steps.ts'
import type { RecurrentAttrs, Sizes } from './cells.ts'

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
