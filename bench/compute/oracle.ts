import type { MatmulTask } from './task.ts'

/** What every library is held to before it is timed: PyTorch's losses, and products in double precision. */

/** Largest relative difference between two trajectories. */
export const worstDifference = (losses: readonly number[], expected: readonly number[]): number =>
  Math.max(...losses.map((loss, step) => Math.abs(loss / expected[step] - 1)))

/** One element of the product. */
export function matmulElement(
  { form, m, k, n }: MatmulTask,
  a: Float32Array,
  b: Float32Array,
  row: number,
  col: number,
): number {
  let sum = 0
  for (let i = 0; i < k; i++) {
    const left = form === 'tn' ? a[i * m + row] : a[row * k + i]
    const right = form === 'nt' ? b[col * k + i] : b[i * n + col]
    sum += left * right
  }
  return sum
}
