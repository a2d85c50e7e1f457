import { checkChoice, checkOptions } from '../../util/options.ts'
import { refusePromise } from './refuse-promise.ts'
import { activeTrace } from './trace.ts'

export interface AutocastOptions {
  /** Default `float16`, which is all there is. */
  dtype?: 'float16'
  /** Default true; false switches it off inside another one. */
  enabled?: boolean
}

/**
 * Returns `body()`, traced so that products (Linear layers, matmul, bmm, einsum), convolutions and attention read and give float16; as torch.autocast.
 *
 * What they give is stored as float16, and what elementwise functions, batch normalization, pooling and dropout make of it alone, so
 * activations take half the memory; sums are in float32. Norms read float16 and give float32; reductions, softmax and losses get
 * float32 and give it. Parameters and their gradients stay
 * float32: a layer rounds a copy of its weight, once in forward and once in backward. Call `backward` outside, with a `GradScaler`, since
 * gradients below 6e-8 are 0 in float16.
 * numerics: the same on every adapter, whether it has `shader-f16` or not; the bias is added in float32.
 */
export function autocast<T>(options: AutocastOptions, body: () => T): T {
  const { enabled = true, dtype } = checkOptions('autocast', options, {
    enabled: true,
    dtype: true,
  })
  checkChoice('autocast', 'dtype', dtype, ['float16'])
  return activeTrace('autocast').withAutocast(enabled, () => {
    const result = body()
    refusePromise('autocast', result)
    return result
  })
}
