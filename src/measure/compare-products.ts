import { messageOf } from '../util/errors.ts'
import { type InterleaveOptions, interleave, type Rounds } from './interleave.ts'
import { checkProduct, flops, type MakeProduct, type Product, type ProductTask } from './product.ts'

export interface CompareOptions extends InterleaveOptions {
  /** Default 7. */
  readonly rounds?: number
  /** What one timing lasts at least, in milliseconds; default 10. */
  readonly minMs?: number
}

/** Results that are held until a timing's end take no more than this. */
const heldBytes = 2 ** 28

/**
 * GFLOP/s of one product by library and round, in turns; a library that fails, or gives a wrong product, has the reason in their place.
 *
 * Each library computes it and is held against the same sums before anything is timed. Each call is one of the library's own, so what it
 * costs to make a call counts.
 */
export async function compareProducts(
  makers: Readonly<Record<string, MakeProduct>>,
  task: ProductTask,
  a: Float32Array<ArrayBuffer>,
  b: Float32Array<ArrayBuffer>,
  { rounds = 7, minMs = 10, ...options }: CompareOptions = {},
): Promise<Rounds> {
  const made = new Map<string, { product: Product; times: number }>()
  const failures: Rounds = {}
  try {
    for (const [key, make] of Object.entries(makers)) {
      options.signal?.throwIfAborted()
      try {
        const product = await make(task, a, b)
        made.set(key, { product, times: 1 })
        checkProduct(key, task, a, b, await product.result())
        made.set(key, { product, times: await timesFor(product, task, minMs) })
      } catch (thrown) {
        made.get(key)?.product.dispose()
        made.delete(key)
        failures[key] = { error: messageOf(thrown) }
      }
    }
    const timed = await interleave(
      [...made.keys()],
      rounds,
      async (key) => {
        const { product, times } = made.get(key)!
        return (flops(task) * times) / (await msOf(product, times)) / 1e6
      },
      options,
    )
    return { ...failures, ...timed }
  } finally {
    for (const { product } of made.values()) product.dispose()
  }
}

async function msOf(product: Product, times: number): Promise<number> {
  const began = performance.now()
  await product.run(times)
  return performance.now() - began
}

/** Calls that together last `minMs` or so. */
async function timesFor(product: Product, task: ProductTask, minMs: number): Promise<number> {
  const max = Math.max(1, Math.min(1000, Math.floor(heldBytes / (4 * task.m * task.n))))
  await product.run(1)
  for (let times = 1; ; times *= 2) {
    const ms = await msOf(product, times)
    if (ms < minMs / 2 && times < max) continue
    return Math.min(max, Math.max(1, Math.ceil((times * minMs) / ms)))
  }
}
