import { linearGroups, reads, type ShaderBinding } from '../shader.ts'
import type { RecurrentAttrs, Sizes } from './cells.ts'

/** sigmoid and tanh to full relative precision at any argument: exp never overflows, and tanh has its series near 0. */
export const activationsWgsl = `
fn sigmoid(a: f32) -> f32 {
  let t = exp(-abs(a));
  let r = 1.0 / (1.0 + t);
  return select(t * r, r, a >= 0.0);
}
fn tanh_of(a: f32) -> f32 {
  let t = exp(-2.0 * abs(a));
  let q = a * a;
  let near = abs(a) * (1.0 - q * (0.33333334 - q * (0.13333334 - q * (0.05396825 - q * (0.021869488 - q * 0.008863235)))));
  let size = select((1.0 - t) / (1.0 + t), near, abs(a) < 0.3);
  return select(size, -size, a < 0.0);
}`

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
