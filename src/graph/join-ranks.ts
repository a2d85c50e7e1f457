import type { JointReduction } from './trace.ts'

/** What the [value, flag] pairs of all ranks make together, in the order of ranks: the same bits on each. */
export function joinRanks(
  { join }: JointReduction,
  pairs: Float32Array,
): Float32Array<ArrayBuffer> {
  let value = 0
  let flag = 0
  for (let at = 0; at < pairs.length; at += 2) {
    value = join === 'sum' ? value + pairs[at] : Math.max(value, pairs[at])
    flag = Math.max(flag, pairs[at + 1])
  }
  return Float32Array.of(value, flag)
}
