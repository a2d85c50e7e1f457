import { dropout } from '../graph/functions/dropout.ts'
import { layerOfCall, nextRandomLayer } from '../graph/trace/random.ts'
import { mustBeTensor, type Tensor } from '../graph/trace/tensor.ts'
import { checkNumber, checkOptions, isShare } from '../util/options.ts'
import { countArguments } from '../util/plain-callers.ts'
import { Module } from './module.ts'
import { showSettings } from './show-settings.ts'

/**
 * Drops a fraction `p` of the elements in training, none in evaluation. shape: [N, ...] -> the same
 *
 * Each instance draws its own masks, with new ones for each call, even for several calls in one step.
 */
export class Dropout extends Module {
  readonly #p: number
  readonly #layer = nextRandomLayer()

  constructor(p = 0.5) {
    super()
    checkNumber('Dropout', 'p', p, isShare, 'within 0..1')
    this.#p = p
    showSettings(this, { p })
  }

  /** `samples`: number of samples in x, if it is not the size of the first dimension. */
  forward(x: Tensor, options: { samples?: number } = {}): Tensor {
    mustBeTensor('Dropout', { x })
    const { samples } = checkOptions('Dropout.forward', options, { samples: true })
    if (!this.training || this.#p === 0) return x
    return dropout(x, this.#p, { samples, maskIndex: layerOfCall('Dropout', this.#layer) })
  }
}

countArguments(Dropout, { forward: 2 })
