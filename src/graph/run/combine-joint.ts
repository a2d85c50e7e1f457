import type { JointReduction } from '../trace/trace.ts'

/** Elements of a joint number: a value and a flag. */
export const jointElements = 2

/**
 * What the [value, flag] pairs of all ranks make together, in the order of ranks: the same bits on each.
 *
 * `all` holds `count` pairs of each rank, rank after rank; those at `index` belong to this reduction.
 */
export function joinRanks(
  { join }: JointReduction,
  all: Float32Array,
  index = 0,
  count = 1,
): Float32Array<ArrayBuffer> {
  let value = 0
  let flag = 0
  for (let at = jointElements * index; at < all.length; at += jointElements * count) {
    value = join === 'sum' ? value + all[at] : Math.max(value, all[at])
    flag = Math.max(flag, all[at + 1])
  }
  return Float32Array.of(value, flag)
}
