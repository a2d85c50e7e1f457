import { expect, test } from 'vitest'
import { GELU } from '../../../src/nn/activations.ts'
import { MultiheadAttention, RotaryEmbedding } from '../../../src/nn/attention.ts'
import { BatchNorm1d, BatchNorm2d } from '../../../src/nn/batch-norm.ts'
import { Conv1d, Conv2d, ConvTranspose2d } from '../../../src/nn/convolution.ts'
import { Embedding } from '../../../src/nn/embedding.ts'
import { Linear } from '../../../src/nn/layers.ts'
import * as losses from '../../../src/nn/losses.ts'
import type { Module } from '../../../src/nn/module.ts'
import { GroupNorm, LayerNorm, RMSNorm } from '../../../src/nn/normalization.ts'
import { AvgPool1d, AvgPool2d, MaxPool1d, MaxPool2d } from '../../../src/nn/pooling.ts'
import { GRU, GRUCell, LSTM, LSTMCell, RNN, RNNCell } from '../../../src/nn/recurrent.ts'

// Layers refuse options that they do not have, which JavaScript would otherwise pass over.

type Options = Record<string, unknown>

/** Each layer with options that it takes, all of them. */
const layers: Record<string, [make: (options: Options) => Module, options: Options]> = {
  Linear: [(o) => new Linear(2, 3, o), { bias: false }],
  Embedding: [(o) => new Embedding(4, 2, o), { paddingIdx: 1 }],
  GELU: [(o) => new GELU(o), { approximate: 'tanh' }],
  LayerNorm: [(o) => new LayerNorm(4, o), { eps: 1, elementwiseAffine: true, bias: false }],
  RMSNorm: [(o) => new RMSNorm(4, o), { eps: 1, elementwiseAffine: true }],
  GroupNorm: [(o) => new GroupNorm(2, 4, o), { eps: 1, affine: false }],
  BatchNorm1d: [(o) => new BatchNorm1d(4, o), { eps: 1, momentum: null, affine: false }],
  BatchNorm2d: [(o) => new BatchNorm2d(4, o), { trackRunningStats: false }],
  MultiheadAttention: [
    (o) => new MultiheadAttention(4, 2, o),
    { dropout: 0.1, bias: false, batchFirst: true },
  ],
  RotaryEmbedding: [
    (o) => new RotaryEmbedding(4, o),
    { maxPositions: 8, base: 100, isInterleaved: true },
  ],
  Conv1d: [(o) => new Conv1d(2, 2, 3, o), { stride: 2, padding: 1, dilation: 2, groups: 2 }],
  Conv2d: [(o) => new Conv2d(2, 2, 3, o), { padding: 'same', bias: false }],
  ConvTranspose2d: [(o) => new ConvTranspose2d(2, 2, 3, o), { stride: 2, outputPadding: 1 }],
  MaxPool1d: [(o) => new MaxPool1d(2, o), { stride: 1, padding: 1, dilation: 2, ceilMode: true }],
  MaxPool2d: [(o) => new MaxPool2d(2, o), { stride: [1, 2] }],
  AvgPool1d: [(o) => new AvgPool1d(2, o), { stride: 1, padding: 1, countIncludePad: false }],
  AvgPool2d: [(o) => new AvgPool2d(2, o), { ceilMode: true }],
  RNN: [(o) => new RNN(2, 3, o), { nonlinearity: 'relu', numLayers: 2, dropout: 0.5 }],
  GRU: [(o) => new GRU(2, 3, o), { bias: false, bidirectional: true }],
  LSTM: [(o) => new LSTM(2, 3, o), { batchFirst: true }],
  RNNCell: [(o) => new RNNCell(2, 3, o), { nonlinearity: 'relu', bias: false }],
  GRUCell: [(o) => new GRUCell(2, 3, o), { bias: false }],
  LSTMCell: [(o) => new LSTMCell(2, 3, o), { bias: false }],
  MSELoss: [(o) => new losses.MSELoss(o), { reduction: 'sum' }],
  L1Loss: [(o) => new losses.L1Loss(o), { reduction: 'sum' }],
  HuberLoss: [(o) => new losses.HuberLoss(o), { reduction: 'sum', delta: 2 }],
  SmoothL1Loss: [(o) => new losses.SmoothL1Loss(o), { reduction: 'sum', beta: 2 }],
  BCELoss: [(o) => new losses.BCELoss(o), { reduction: 'sum' }],
  BCEWithLogitsLoss: [(o) => new losses.BCEWithLogitsLoss(o), { posWeight: [1] }],
  KLDivLoss: [(o) => new losses.KLDivLoss(o), { reduction: 'batchmean', logTarget: true }],
  NLLLoss: [(o) => new losses.NLLLoss(o), { weight: [1], ignoreIndex: 0, reduction: 'sum' }],
  CrossEntropyLoss: [
    (o) => new losses.CrossEntropyLoss(o),
    { weight: [1], ignoreIndex: 0, labelSmoothing: 0.1, reduction: 'sum' },
  ],
}

test.each(Object.entries(layers))('%s', (name, [make, options]) => {
  expect(make(options).parameters().length).toBeGreaterThanOrEqual(0)
  const unknown = { ...options, notAnOption: 1 }
  expect(() => make(unknown)).toThrow(
    new RegExp(`^${name}: expected options among .*, got "notAnOption"\\. Correct its name`),
  )
  expect(() => make(true as never)).toThrow(new RegExp(`^${name}: expected an object with options`))
})
