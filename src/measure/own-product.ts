import type { Runtime } from '../graph/memory/runtime.ts'
import { prepareLowering } from '../graph/tune/prepare-lowering.ts'
import { chooseVariant } from '../kernels/choose.ts'
import { plain } from '../kernels/matmul/problem.ts'
import { kernels } from '../kernels/matmul/variants.ts'
import type { OpCall } from '../kernels/op.ts'
import { tensorType } from '../util/shape.ts'
import { leftShape, type Product, type ProductTask, rightShape } from './product.ts'

/** Ours, one submit a product as the other libraries do; the variant is the runtime's choice unless it is named. */
export async function ownProduct(
  runtime: Runtime,
  task: ProductTask,
  a: Float32Array<ArrayBuffer>,
  b: Float32Array<ArrayBuffer>,
  variantName?: string,
): Promise<Product & { variant: string }> {
  const { limits, variants } = runtime
  const { form, m, n } = task
  const inputs = [tensorType(leftShape(task)), tensorType(rightShape(task))]
  const call = { inputs, outputs: [tensorType([m, n])], attrs: plain(form) }
  const variant =
    kernels.variants.find(({ name }) => name === variantName) ??
    chooseVariant(kernels, call, limits, variants, false)
  const lowering = variant.lower(call)
  const prepared = await prepareLowering(runtime, lowering, call as OpCall, [a, b])
  return {
    variant: variant.name,
    async run(times) {
      await prepared.runApart(times)
      runtime.gpu.check()
    },
    async result() {
      await prepared.run(1)
      return new Float32Array(await prepared.read(0))
    },
    dispose: () => prepared.destroy(),
  }
}
