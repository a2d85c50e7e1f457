import { checkArgument, checkChoice, checkFlag, checkOptions } from '../../util/options.ts'
import { refusePromise } from './refuse-promise.ts'
import { activeTrace } from './trace.ts'

export interface AutocastOptions {
  /** Default `float16`, the only choice. */
  dtype?: 'float16'
  /** Default true; false turns it off inside another one. */
  enabled?: boolean
}

/**
 * Returns `body()`, traced so that matrix products (Linear layers, matmul, bmm, einsum), convolutions and attention read and return
 * float16; like torch.autocast.
 *
 * Their results are stored as float16. So are results that elementwise functions, batch normalization, pooling and dropout compute from
 * float16 only: activations take half the memory. Sums use float32. Norms read float16 and return float32; reductions, softmax and losses
 * get and return float32. Parameters and their gradients stay float32: a layer rounds a copy of its weight, once in forward and once in
 * backward. Call `backward` outside, with a `GradScaler`, because gradients below 6e-8 are 0 in float16.
 * numerics: the same on every adapter; the bias is added in float32.
 */
export function autocast<T>(options: AutocastOptions, body: () => T): T {
  const { enabled = true, dtype } = checkOptions('autocast', options, {
    enabled: true,
    dtype: true,
  })
  checkFlag('autocast', 'enabled', enabled)
  checkArgument('autocast', 'body', body, typeof body === 'function', 'a function')
  checkChoice('autocast', 'dtype', dtype, ['float16'])
  return activeTrace('autocast').withAutocast(enabled, () => {
    const result = body()
    refusePromise('autocast', result)
    return result
  })
}
