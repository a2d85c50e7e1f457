import { dropout as dropoutOp } from '../../kernels/dropout/dropout.ts'
import { checkNumber, checkOptions, isShare } from '../../util/options.ts'
import { functionalLayer, randomSlots } from '../trace/random.ts'
import { emit, mustBeTensor, type Tensor } from '../trace/tensor.ts'

export interface DropoutOptions {
  /** Drops elements; default true. */
  training?: boolean
  /** Number of samples in x, one after the other; default: the size of its first dimension. */
  samples?: number
  /** Distinguishes the masks of one step; default: the number of this call in the traced function. */
  maskIndex?: number
}

/**
 * Returns x with a fraction `p` of its elements set to 0 and the others times 1 / (1 - p); x itself if nothing is dropped.
 *
 * The mask depends only on seed, step, `maskIndex` and global sample number, so recomputing, replaying and any split over ranks give the same
 * mask; nothing is stored for backward. An f16 x gives an f16 result.
 * source: Philox, Salmon et al. (SC 2011).
 */
export function dropout(x: Tensor, p = 0.5, options: DropoutOptions = {}): Tensor {
  mustBeTensor('dropout', { x })
  checkNumber('dropout', 'p', p, isShare, 'within 0..1')
  checkOptions('dropout', options, { training: 'flag', samples: 'number', maskIndex: 'number' })
  if (options.training === false || p === 0) return x
  const samples = options.samples ?? x.shape[0] ?? 1
  return emit(dropoutOp, [x], {
    p,
    layer: options.maskIndex ?? functionalLayer('dropout'),
    samples,
    random: randomSlots('dropout', samples),
    ...(x.dtype === 'f16' && { half: true }),
  })
}
