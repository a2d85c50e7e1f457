import type { Tensor } from '../graph/trace/tensor.ts'
import { checkOptions } from '../util/options.ts'
import { byName, countArguments } from '../util/plain-callers.ts'
import { checkSizes } from './check-sizes.ts'
import { Embedding } from './embedding.ts'
import { Linear } from './layers.ts'
import { Module } from './module.ts'
import { LSTM } from './recurrent.ts'
import type { FirstStates, LastStates } from './recurrent-base.ts'

export interface CharRnnOptions {
  /** Default 64. */
  embeddingSize?: number
  /** Default 128. */
  hiddenSize?: number
  /** Default 1. */
  numLayers?: number
  /** Dropout between layers; default 0. */
  dropout?: number
}

/** A character-level language model: embedding, LSTM, linear head. shape: tokens[B, T] of i32 -> logits[B, T, vocabularySize] */
export class CharRnn extends Module {
  readonly embedding: Embedding
  readonly lstm: LSTM
  readonly head: Linear

  constructor(vocabularySize: number, options: CharRnnOptions = {}) {
    super()
    const known = { embeddingSize: true, hiddenSize: true, numLayers: true, dropout: true } as const
    checkOptions('charRnn', options, known)
    checkSizes('charRnn', { vocabularySize }, 1)
    const { embeddingSize = 64, hiddenSize = 128, numLayers = 1, dropout = 0 } = options
    this.embedding = new Embedding(vocabularySize, embeddingSize)
    this.lstm = new LSTM(embeddingSize, hiddenSize, { numLayers, dropout, batchFirst: true })
    this.head = new Linear(hiddenSize, vocabularySize)
  }

  protected override get entryPoints(): readonly string[] {
    return ['forward', 'withState']
  }

  forward(tokens: Tensor): Tensor {
    return this.withState(tokens).logits
  }

  /** Returns the logits and the states after the last token, from which to continue a text. */
  withState(tokens: Tensor, states?: FirstStates): LastStates & { logits: Tensor } {
    const { output, ...last } = this.lstm.withState(this.embedding.forward(tokens), states)
    const [B, T, H] = output.shape
    const logits = this.head.forward(output.reshape([B * T, H]))
    return byName('CharRnn.withState', {
      logits: logits.reshape([B, T, logits.shape[1]]),
      ...last,
    })
  }
}

/** Returns a new `CharRnn`. */
export const charRnn = (vocabularySize: number, options: CharRnnOptions = {}): CharRnn =>
  new CharRnn(vocabularySize, options)

countArguments(CharRnn)
