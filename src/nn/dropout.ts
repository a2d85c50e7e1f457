import { dropout } from '../graph/functions/dropout.ts'
import { nextRandomLayer } from '../graph/random.ts'
import type { Tensor } from '../graph/tensor.ts'
import { Module } from './module.ts'

/**
 * Drops a share `p` of the elements in training, nothing in evaluation. shape: [N, ...] -> the same
 *
 * Each instance has masks of its own; one that is used twice in a step draws the same mask twice.
 */
export class Dropout extends Module {
  readonly #p: number
  readonly #layer = nextRandomLayer()

  constructor(p = 0.5) {
    super()
    this.#p = p
  }

  /** `samples`: how many samples x holds, where that is not its first dimension. */
  forward(x: Tensor, options: { samples?: number } = {}): Tensor {
    return dropout(x, this.#p, { ...options, training: this.training, layer: this.#layer })
  }
}
