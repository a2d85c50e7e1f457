import { dropout as dropoutOp } from '../../kernels/dropout/dropout.ts'
import { checkOptions } from '../../util/options.ts'
import { functionalLayer, randomSlots } from '../trace/random.ts'
import { emit, type Tensor } from '../trace/tensor.ts'

export interface DropoutOptions {
  /** Whether anything is dropped; default true. */
  training?: boolean
  /** How many samples x holds, one after the other; default its first dimension. */
  samples?: number
  /** Tells masks of one step apart; default: the number of this call among those of the traced function. */
  layer?: number
}

/**
 * x with a share `p` of its elements set to 0 and the others times 1 / (1 - p); x itself where nothing is dropped.
 *
 * The mask is a function of seed, step, layer and global sample number alone, so recomputing, replaying and any split over ranks give
 * the same one; nothing is stored for backward. Of f16 x, f16 again.
 * source: Philox, Salmon et al. (SC 2011).
 */
export function dropout(x: Tensor, p = 0.5, options: DropoutOptions = {}): Tensor {
  checkOptions('dropout', options, { training: true, samples: true, layer: true })
  if (options.training === false || p === 0) return x
  const samples = options.samples ?? x.shape[0] ?? 1
  return emit(dropoutOp, [x], {
    p,
    layer: options.layer ?? functionalLayer('dropout'),
    samples,
    random: randomSlots('dropout', samples),
    ...(x.dtype === 'f16' && { half: true }),
  })
}
