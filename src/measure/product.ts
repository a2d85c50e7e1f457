import type { MatmulForm } from '../kernels/matmul/matmul.ts'

/** A matrix product as every library is given it. */

/** `c[m, n]` from a and b, read as the form says: nn a[m,k] b[k,n]; nt a[m,k] b[n,k]; tn a[k,m] b[k,n]. */
export interface ProductTask {
  readonly form: MatmulForm
  readonly m: number
  readonly k: number
  readonly n: number
}

/** One library's way to compute a product, with its operands on the device. */
export interface Product {
  /** Computes it `times` times, each in a separate call, and resolves when the last result is there. */
  run(times: number): Promise<void>
  /** shape: [m, n] */
  result(): Promise<Float32Array>
  dispose(): void
}

export type MakeProduct = (
  task: ProductTask,
  a: Float32Array<ArrayBuffer>,
  b: Float32Array<ArrayBuffer>,
) => Promise<Product>

export const flops = ({ m, k, n }: ProductTask): number => 2 * m * k * n

export const leftShape = ({ form, m, k }: ProductTask): [number, number] =>
  form === 'tn' ? [k, m] : [m, k]
export const rightShape = ({ form, k, n }: ProductTask): [number, number] =>
  form === 'nt' ? [n, k] : [k, n]

const samples = 500
/** Float32 sums of thousands of terms against double precision; a wrong kernel is off by far more. */
const tolerance = 3e-4

/** Holds a spread of elements against sums in double precision; throws at the first that is wrong, `who` in front. */
export function checkProduct(
  who: string,
  task: ProductTask,
  a: Float32Array,
  b: Float32Array,
  c: Float32Array,
): void {
  const { form, m, k, n } = task
  const fail = (what: string) => {
    throw new Error(`bench: ${who} of ${form} ${m}x${k}x${n}: ${what}`)
  }
  if (c.length < m * n) fail(`expected ${m * n} elements, got ${c.length}`)
  for (let sample = 0; sample < samples; sample++) {
    const at = Math.floor((sample * (m * n - 1)) / (samples - 1))
    const row = Math.floor(at / n)
    const expected = element(task, a, b, row, at % n)
    if (!(Math.abs(c[at] - expected) <= tolerance * (1 + Math.abs(expected))))
      fail(`element [${row}, ${at % n}]: expected ${expected}, got ${c[at]}. Run the op's tests.`)
  }
}

function element(
  { form, m, k, n }: ProductTask,
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
