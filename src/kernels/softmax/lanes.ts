import type { KernelLimits, Lowering, OpCall, Variant } from '../op.ts'
import type { Pass } from '../reduce/shapes.ts'
import { ceilDiv, linearGroups } from '../shader.ts'
import lanesWgsl from './lanes.wgsl?raw'

/** WGSL `max_over_lanes` and `sum_over_lanes` of the LANES neighbouring threads that share a row. */
export const lanesLibrary = lanesWgsl

const maxThreads = 256

/** How many threads share a row of `length` elements: one for short rows, else about 8 elements a thread. */
export const lanesFor = (length: number): number =>
  length <= 32 ? 1 : Math.min(maxThreads, 2 ** Math.ceil(Math.log2(length / 8)))

/**
 * The constants and workgroup counts of a kernel that gives each of outer x inner rows to `lanes` threads.
 *
 * Rows are numbered as the elements of [outer, inner], so that without lanes neighbouring threads read neighbouring elements.
 */
export function rowGrid({ outer, reduced, inner }: Pass, lanes: number) {
  const rows = outer * inner
  const threads = Math.max(64, lanes)
  const groups = linearGroups(ceilDiv(rows, threads / lanes))
  return {
    constants: {
      ROWS: rows,
      N: reduced,
      INNER: inner,
      THREADS: threads,
      LANES: lanes,
      GROUPS_X: groups[0],
    },
    groups,
  }
}

/**
 * The variants of such a kernel: one thread a row, and several.
 *
 * Several pay where rows are long and either contiguous or too few to fill a device.
 */
export function rowVariants<A>(
  rowsOf: (call: OpCall<A>) => Pass,
  lower: (call: OpCall<A>, lanes: number) => Lowering,
) {
  const prefersLanes = (call: OpCall<A>): boolean => {
    const { outer, reduced, inner } = rowsOf(call)
    return lanesFor(reduced) > 1 && (inner === 1 || outer * inner < 1024)
  }
  const variants: [Variant<A>, Variant<A>] = [
    { name: 'naive', lower: (call) => lower(call, 1) },
    {
      name: 'lanes',
      when: (call, limits) =>
        limits.maxInvocations >= maxThreads && lanesFor(rowsOf(call).reduced) > 1,
      lower: (call) => lower(call, lanesFor(rowsOf(call).reduced)),
    },
  ]
  const preferred = (call: OpCall<A>, limits: KernelLimits): string =>
    !limits.isWasm && limits.maxInvocations >= maxThreads && prefersLanes(call) ? 'lanes' : 'naive'
  return { variants, preferred }
}
