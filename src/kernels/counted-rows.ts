import type { ScalarSlot } from './op.ts'

/**
 * The WGSL function `counted_rows()`: how many of the R rows count in this step.
 *
 * A batch that a rank shares out may be shorter than its program's R rows; the number of real ones comes from the
 * step scalars. Without a slot all rows count.
 */
export const countedRowsWgsl = (count: ScalarSlot | null): string =>
  count === null
    ? 'fn counted_rows() -> u32 { return R; }'
    : `fn counted_rows() -> u32 { return min(u32(max(scalars[${count.slot}u], 0.0)), R); }`

/** The same number on the host. */
export const countedRows = (
  rows: number,
  count: ScalarSlot | null,
  scalars: readonly number[],
): number =>
  count === null ? rows : Math.min(rows, Math.floor(Math.max(0, scalars[count.slot] ?? 0)))
