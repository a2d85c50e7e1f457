import { embedding } from '../graph/functions/index-ops.ts'
import { Parameter } from '../graph/trace/parameter.ts'
import type { Tensor } from '../graph/trace/tensor.ts'
import { checkNumber, checkOptions } from '../util/options.ts'
import { countArguments } from '../util/plain-callers.ts'
import { checkSizes } from './check-sizes.ts'
import { drawNormal } from './init.ts'
import { Module } from './module.ts'
import { showSettings } from './show-settings.ts'

export interface EmbeddingOptions {
  /** Index of a row that starts as zeros and gets no gradient; negative values count from the end. */
  paddingIdx?: number
}

/**
 * A table of rows, looked up by index. shape: index[..] of i32 or u32 -> [.., embeddingDim]
 *
 * Rows are initialized from the standard normal distribution, as in torch.nn.Embedding.
 */
export class Embedding extends Module {
  readonly weight: Parameter
  readonly #options: EmbeddingOptions

  constructor(numEmbeddings: number, embeddingDim: number, options: EmbeddingOptions = {}) {
    super()
    const { paddingIdx } = checkOptions('Embedding', options, { paddingIdx: true })
    checkSizes('Embedding', { numEmbeddings, embeddingDim }, 1)
    const isRow = (row: number) =>
      Number.isInteger(row) && row >= -numEmbeddings && row < numEmbeddings
    const range = `a row index for ${numEmbeddings} rows`
    checkNumber('Embedding', 'paddingIdx', paddingIdx, isRow, range)
    const draw = drawNormal(numEmbeddings * embeddingDim, 1)
    this.weight = new Parameter([numEmbeddings, embeddingDim], () => {
      const rows = draw()
      if (paddingIdx === undefined) return rows
      const row = paddingIdx < 0 ? paddingIdx + numEmbeddings : paddingIdx
      return rows.fill(0, row * embeddingDim, (row + 1) * embeddingDim)
    })
    this.#options = { paddingIdx }
    showSettings(this, { numEmbeddings, embeddingDim, paddingIdx })
  }

  forward(index: Tensor): Tensor {
    return embedding(index, this.weight, this.#options)
  }
}

countArguments(Embedding)
