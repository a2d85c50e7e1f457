import type { Runtime } from '../graph/memory/runtime.ts'
import { ownProduct } from './own-product.ts'
import { flops, leftShape, type ProductTask, rightShape } from './product.ts'

/** The product by which devices are compared: large enough to fill an ordinary GPU, small enough for a software adapter. */
export const speedTask: ProductTask = { form: 'nn', m: 512, k: 512, n: 512 }

/** No more products are timed after so long; one on a software adapter takes about 20. units: ms. */
const budgetMs = 60
const minMs = 5

/** Returns the GFLOP/s of a device in one fixed product, the best of a few. cost: some 100 ms on a software adapter. errors: `gpu.*`. */
export async function deviceSpeed(runtime: Runtime): Promise<number> {
  const operand = ([rows, columns]: readonly number[]) =>
    Float32Array.from({ length: rows * columns }, (_, i) => ((i * 7919) % 1000) / 1000 - 0.5)
  const { form, m, k, n } = speedTask
  const product = await ownProduct(
    runtime,
    { form, m, k, n },
    operand(leftShape(speedTask)),
    operand(rightShape(speedTask)),
  )
  try {
    await product.run(1) // compiles what is compiled late, and wakes the device
    const beganMs = performance.now()
    let best = 0
    for (let times = 1; ; ) {
      const startMs = performance.now()
      await product.run(times)
      const nowMs = performance.now()
      const tookMs = nowMs - startMs
      // Coarse clocks: what takes less than this says little.
      if (tookMs < minMs && times < 256) times *= 4
      else best = Math.max(best, (times * flops(speedTask)) / tookMs / 1e6)
      if (nowMs - beganMs > budgetMs) return best || (times * flops(speedTask)) / tookMs / 1e6
    }
  } finally {
    product.dispose()
  }
}
