/** [N, C, L]: batch, channels, and all further dimensions as one; M = N*L elements a channel. */
export interface NormSizes {
  readonly N: number
  readonly C: number
  readonly L: number
  readonly M: number
}

type Numbers = ArrayLike<number>

/** The sizes of the first `rows` rows, which come first in memory. */
export const countedSizes = (sizes: NormSizes, rows: number): NormSizes => ({
  ...sizes,
  N: rows,
  M: rows * sizes.L,
})

/** Calls `visit` with the flat index and the channel of every element. */
function eachElement({ N, C, L }: NormSizes, visit: (at: number, c: number) => void): void {
  for (let at = 0; at < N * C * L; at++) visit(at, Math.floor(at / L) % C)
}

/** Mean and biased variance of each channel. */
export function statisticsReference(x: Numbers, sizes: NormSizes): [Float64Array, Float64Array] {
  const mean = new Float64Array(sizes.C)
  const variance = new Float64Array(sizes.C)
  eachElement(sizes, (at, c) => {
    mean[c] += x[at] / sizes.M
  })
  eachElement(sizes, (at, c) => {
    variance[c] += (x[at] - mean[c]) ** 2 / sizes.M
  })
  return [mean, variance]
}

/** `(x - mean) / sqrt(variance + eps) * weight + bias` */
export function normalizeReference(
  [x, mean, variance, weight, bias]: readonly Numbers[],
  sizes: NormSizes,
  eps: number,
): Float64Array {
  const y = new Float64Array(x.length)
  eachElement(sizes, (at, c) => {
    y[at] = ((x[at] - mean[c]) / Math.sqrt(variance[c] + eps)) * weight[c] + bias[c]
  })
  return y
}

/** dx, dweight and dbias; mean and variance are those of x's first `rows` rows (0: given ones), whose dx has their share. */
export function batchNormGradReference(
  [dy, x, mean, variance, weight]: readonly Numbers[],
  sizes: NormSizes,
  eps: number,
  rows: number,
): [Float64Array, Float64Array, Float64Array] {
  const dx = new Float64Array(x.length)
  const dweight = new Float64Array(sizes.C)
  const dbias = new Float64Array(sizes.C)
  const normal = (at: number, c: number) => (x[at] - mean[c]) / Math.sqrt(variance[c] + eps)
  eachElement(sizes, (at, c) => {
    dbias[c] += dy[at]
    dweight[c] += dy[at] * normal(at, c)
  })
  eachElement(sizes, (at, c) => {
    const isOwn = at < rows * sizes.C * sizes.L
    const shared = isOwn ? (dbias[c] + normal(at, c) * dweight[c]) / (rows * sizes.L) : 0
    dx[at] = ((dy[at] - shared) * weight[c]) / Math.sqrt(variance[c] + eps)
  })
  return [dx, dweight, dbias]
}
