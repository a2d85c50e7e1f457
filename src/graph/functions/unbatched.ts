import type { Tensor } from '../trace/tensor.ts'

/** `compute` of x as a batch of one where x lacks its first axis (its rank is `rank` with it), without that axis in the results. */
export function asBatch(rank: number, x: Tensor, compute: (x: Tensor) => Tensor): Tensor
export function asBatch(rank: number, x: Tensor, compute: (x: Tensor) => Tensor[]): Tensor[]
export function asBatch(
  rank: number,
  x: Tensor,
  compute: (x: Tensor) => Tensor | Tensor[],
): Tensor | Tensor[] {
  if (x.shape.length !== rank - 1) return compute(x)
  const results = compute(x.unsqueeze(0))
  return Array.isArray(results) ? results.map((y) => y.squeeze(0)) : results.squeeze(0)
}
