import { blockUntilReady, defaultDevice, init, jit, numpy as np } from '@jax-js/jax'
import { leftShape, type MakeProduct, rightShape } from '../product.ts'

export type JaxDevice = 'webgpu' | 'wasm'

/** Opens one of jax-js's backends. errors: where it is not there. */
export async function openJax(device: JaxDevice): Promise<void> {
  const available = await init(device)
  if (!available.includes(device)) throw new Error(`jax-js: no ${device} here`)
}

/** A product under `jit`, as jax-js's own README writes it, on its WebGPU backend. */
export const jaxProduct: MakeProduct = async (task, a, b) => {
  const device = 'webgpu'
  await openJax(device)
  defaultDevice(device)
  const { form } = task
  const left = np.array(a, { shape: leftShape(task), device })
  const right = np.array(b, { shape: rightShape(task), device })
  const product = jit((x: np.Array, y: np.Array) =>
    np.matmul(form === 'tn' ? np.transpose(x) : x, form === 'nt' ? np.transpose(y) : y),
  )
  return {
    async run(times) {
      // All kept to the end: jax-js is lazy and might skip what nobody holds.
      const results = Array.from({ length: times }, () => product(left.ref, right.ref) as np.Array)
      await blockUntilReady(results)
      for (const one of results) one.dispose()
    },
    result: async () => (await (product(left.ref, right.ref) as np.Array).data()) as Float32Array,
    dispose() {
      left.dispose()
      right.dispose()
    },
  }
}
