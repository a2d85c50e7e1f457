import { dropout } from '../graph/functions/dropout.ts'
import { layerOfCall, nextRandomLayer } from '../graph/trace/random.ts'
import type { Tensor } from '../graph/trace/tensor.ts'
import { checkNumber, checkOptions, isShare } from '../util/options.ts'
import { Module } from './module.ts'

/**
 * Drops a share `p` of the elements in training, nothing in evaluation. shape: [N, ...] -> the same
 *
 * Each instance draws masks of its own, and new ones in each call, also where a step calls it several times.
 */
export class Dropout extends Module {
  readonly #p: number
  readonly #layer = nextRandomLayer()

  constructor(p = 0.5) {
    super()
    checkNumber('Dropout', 'p', p, isShare, 'within 0..1')
    this.#p = p
  }

  /** `samples`: how many samples x holds, where that is not its first dimension. */
  forward(x: Tensor, options: { samples?: number } = {}): Tensor {
    const { samples } = checkOptions('Dropout.forward', options, { samples: true })
    if (!this.training || this.#p === 0) return x
    return dropout(x, this.#p, { samples, layer: layerOfCall('Dropout', this.#layer) })
  }
}
