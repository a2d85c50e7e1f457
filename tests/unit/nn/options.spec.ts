import { expect, test } from 'vitest'
import { readCsv } from '../../../src/data/csv.ts'
import { download } from '../../../src/data/download.ts'
import { DataLoader } from '../../../src/data/loader/data-loader.ts'
import { DistributedSampler } from '../../../src/data/sampler.ts'
import { saveModel } from '../../../src/ddp/checkpoint/model-file.ts'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { initProcessGroup } from '../../../src/distributed/group/process-group.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { compileAccumulated } from '../../../src/graph/compile/compile-accumulated.ts'
import { gelu, leakyRelu, softplus } from '../../../src/graph/functions/activations.ts'
import {
  packedAttention,
  scaledDotProductAttention,
} from '../../../src/graph/functions/attention.ts'
import { batchNorm } from '../../../src/graph/functions/batch-norm.ts'
import { conv2d } from '../../../src/graph/functions/convolution.ts'
import { dropout } from '../../../src/graph/functions/dropout.ts'
import { embedding } from '../../../src/graph/functions/index-ops.ts'
import { topKCorrect } from '../../../src/graph/functions/linear.ts'
import * as functions from '../../../src/graph/functions/losses.ts'
import { groupNorm, layerNorm, rmsNorm } from '../../../src/graph/functions/normalization.ts'
import { adaptiveAvgPool2d, avgPool2d, maxPool2d } from '../../../src/graph/functions/pooling.ts'
import { variance } from '../../../src/graph/functions/reductions.ts'
import { packedRotaryEmbedding, rotaryTable } from '../../../src/graph/functions/rotary.ts'
import { full } from '../../../src/graph/functions/shape.ts'
import { autocast } from '../../../src/graph/trace/autocast.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { GELU, LeakyReLU, Softmax, Softplus } from '../../../src/nn/activations.ts'
import { MultiheadAttention, RotaryEmbedding } from '../../../src/nn/attention.ts'
import { BatchNorm1d, BatchNorm2d } from '../../../src/nn/batch-norm.ts'
import { charRnn } from '../../../src/nn/char-rnn.ts'
import { cnn } from '../../../src/nn/cnn.ts'
import { Conv1d, Conv2d, ConvTranspose2d } from '../../../src/nn/convolution.ts'
import { Dropout } from '../../../src/nn/dropout.ts'
import { Embedding } from '../../../src/nn/embedding.ts'
import { gpt } from '../../../src/nn/gpt.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Flatten, Linear, ReLU } from '../../../src/nn/layers.ts'
import * as losses from '../../../src/nn/losses.ts'
import { mlp } from '../../../src/nn/mlp.ts'
import type { Module } from '../../../src/nn/module.ts'
import { GroupNorm, LayerNorm, RMSNorm } from '../../../src/nn/normalization.ts'
import { packPaddedSequence } from '../../../src/nn/packed-sequence.ts'
import { AvgPool1d, AvgPool2d, MaxPool1d, MaxPool2d } from '../../../src/nn/pooling.ts'
import { GRU, GRUCell, LSTM, LSTMCell, RNN, RNNCell } from '../../../src/nn/recurrent.ts'
import { resnet18 } from '../../../src/nn/resnet.ts'
import { spectralNorm } from '../../../src/nn/spectral-norm.ts'
import { SyncBatchNorm } from '../../../src/nn/sync-batch-norm.ts'
import { ReduceLROnPlateau } from '../../../src/optim/lr-scheduler/plateau.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { recv } from '../../../src/parallel/by-hand/send-recv.ts'
import { memoryPair } from '../../../src/peer/link/memory-link.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'

// Layers, models and functions refuse options that they do not have, which JavaScript would otherwise pass over.

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
    new RegExp(
      `^${name}: expected options among .*, got "notAnOption"\\. Correct its name, or remove it`,
    ),
  )
  expect(() => make(true as never)).toThrow(new RegExp(`^${name}: expected an object with options`))
})

test.each<[name: string, make: () => Module, wrong: string]>([
  ['Conv2d', () => new Conv2d(1, 1, 3, { padding: 'smae' as never }), 'padding must be one of'],
  ['Conv2d', () => new Conv2d(1, 1, 3, { padding: Number.NaN }), 'padding must be a whole number'],
  ['Conv2d', () => new Conv2d(1, 1, 3, { stride: 0 }), 'stride must be a whole number from 1 to'],
  ['Conv2d', () => new Conv2d(1, 1, 3, { dilation: [1, 0] }), 'dilation must be a whole number'],
  ['Conv1d', () => new Conv1d(1, 1, 3, { stride: [1, 1] as never }), 'stride must be a whole'],
  ['Conv1d', () => new Conv1d(1, 1, 3, { padding: 'same', stride: 2 }), "padding 'same' needs str"],
  ['ConvTranspose2d', () => new ConvTranspose2d(1, 1, 3, { padding: 'same' as never }), 'padding'],
  ['ConvTranspose2d', () => new ConvTranspose2d(1, 1, 3, { outputPadding: -1 }), 'outputPadding'],
  ['MaxPool2d', () => new MaxPool2d(2, { stride: 0 }), 'stride must be a whole number from 1 to'],
  ['AvgPool1d', () => new AvgPool1d(2, { padding: 0.5 }), 'padding must be a whole number from'],
  ['LeakyReLU', () => new LeakyReLU(Number.NaN), 'negativeSlope must be a number, got NaN'],
  ['LeakyReLU', () => new LeakyReLU({ negativeSlope: 1 } as never), 'negativeSlope must be a'],
  ['Softplus', () => new Softplus(1, '20' as never), 'threshold must be a number'],
  ['Softmax', () => new Softmax(undefined as never), 'dim must be a dimension'],
  ['Flatten', () => new Flatten(0.5), 'startDim must be a dimension, got 0.5'],
])('%s refuses a setting that it cannot have when it is made (%#)', (name, make, wrong) => {
  expect(make).toThrow(`${name}: ${wrong}`)
})

test.each(Object.entries(layers))('%s takes no text as a flag', (_, [make]) => {
  const flags = [
    'bias',
    'affine',
    'elementwiseAffine',
    'batchFirst',
    'ceilMode',
    'trackRunningStats',
  ]
  for (const flag of flags)
    expect(() => make({ [flag]: 'no' })).toThrow(
      new RegExp(`${flag} must be true or false|got "${flag}"`),
    )
})

test('Flatten joins the dimensions that it is given', async () => {
  const step = await compile(
    ({ x }) => ({ x: new Flatten(0).forward(x), y: new Flatten(0, 1).forward(x) }),
    { x: tensorType([2, 2, 3]) },
    { device: 'reference' },
  )
  expect(step.prepared.outputs.map(({ type }) => type.shape)).toEqual([[12], [4, 3]])
})

test("a parameter's data cannot be set", () => {
  expect(() => Object.assign(new Linear(1, 1).weight, { data: new Float32Array(1) })).toThrow(
    'Parameter: data of a tensor [1, 1] cannot be set. Write assign(array)',
  )
})

const sizes = { vocabSize: 5, blockSize: 4, layers: 1, heads: 1, width: 4 }
type Tensors = { x: Tensor; y: Tensor; classes: Tensor }
const traced = (body: (tensors: Tensors) => unknown) =>
  compile(
    ({ x, y, classes }) => {
      body({ x, y, classes })
      return { x: x.mul(1) }
    },
    { x: tensorType([2, 4]), y: tensorType([2, 4]), classes: tensorType([2], 'i32') },
    { device: 'reference' },
  )

/** What is no layer: a call with an option that it does not have. */
const others: Record<string, (wrong: Options) => unknown> = {
  gpt: (o) => gpt({ ...sizes, ...o }),
  ResNet: (o) => resnet18({ width: 1, ...o }),
  mlp: (o) => mlp({ sizes: [2, 2], ...o }),
  cnn: (o) => cnn({ classes: 2, ...o }),
  charRnn: (o) => charRnn(5, o),
  spectralNorm: (o) => spectralNorm(new Linear(2, 2), o),
  DataLoader: (o) => new DataLoader({ length: 2, get: () => ({}) } as never, o),
  DistributedSampler: (o) => new DistributedSampler([], { numReplicas: 2, rank: 0, ...o }),
  DistributedDataParallel: (o) => new DistributedDataParallel(new Linear(2, 2), o),
  saveModel: (o) => saveModel(new Linear(2, 2), o as never),
  loadStateDict: (o) => new Linear(2, 2).loadStateDict({}, { strict: false, ...o }),
  compile: (o) => compile(() => ({}), {}, { device: 'reference', ...o }),
  initProcessGroup: (o) => initProcessGroup({ rank: 0, worldSize: 1, links: new Map(), ...o }),
  mseLoss: (o) => traced(({ x, y }) => functions.mseLoss(x, y, o)),
  l1Loss: (o) => traced(({ x, y }) => functions.l1Loss(x, y, o)),
  huberLoss: (o) => traced(({ x, y }) => functions.huberLoss(x, y, o)),
  smoothL1Loss: (o) => traced(({ x, y }) => functions.smoothL1Loss(x, y, o)),
  binaryCrossEntropy: (o) => traced(({ x, y }) => functions.binaryCrossEntropy(x, y, o)),
  binaryCrossEntropyWithLogits: (o) =>
    traced(({ x, y }) => functions.binaryCrossEntropyWithLogits(x, y, o)),
  klDiv: (o) => traced(({ x, y }) => functions.klDiv(x, y, o)),
  crossEntropy: (o) => traced(({ x, classes }) => functions.crossEntropy(x, classes, o)),
  nllLoss: (o) => traced(({ x, classes }) => functions.nllLoss(x, classes, o)),
  accuracy: (o) => traced(({ x, classes }) => functions.accuracy(x, classes, o)),
  dropout: (o) => traced(({ x }) => dropout(x, 0.5, o)),
  'Dropout.forward': (o) => traced(({ x }) => new Dropout(0.5).forward(x, o)),
  embedding: (o) => traced(({ x, classes }) => embedding(classes, x, o)),
  topKCorrect: (o) => traced(({ x, classes }) => topKCorrect(x, classes, 1, o)),
  packPaddedSequence: (o) => traced(({ x }) => packPaddedSequence(x.reshape([2, 2, 2]), [1, 2], o)),
  'MultiheadAttention.forward': (o) =>
    traced(({ x }) => new MultiheadAttention(4, 2).forward(x, o)),
  'LSTM.withState': (o) => traced(({ x }) => new LSTM(4, 3).withState(x, o)),
  packedAttention: (o) =>
    traced(({ x }) => packedAttention(x.reshape([2, 4]), { batch: 2, heads: 1, ...o })),
  packedRotaryEmbedding: (o) =>
    traced(({ x, y }) => packedRotaryEmbedding(x, y, { positions: 1, heads: 1, ...o })),
  conv2d: (o) =>
    traced(({ x, y }) => conv2d(x.reshape([1, 2, 2, 2]), y.reshape([2, 2, 1, 2]), undefined, o)),
  scaledDotProductAttention: (o) => traced(({ x, y }) => scaledDotProductAttention(x, y, y, o)),
  readCsv: (o) => readCsv('a\n1', 'numbers.csv', o),
  'dataset of numbers.csv': async (o) => (await readCsv('a\n1', 'numbers.csv')).dataset(o),
  download: (o) => download('https://data.example/file', o),
  memoryPair: (o) => memoryPair(new VirtualEnv(), o),
  run: async (o) => {
    const step = await compileAccumulated(() => ({}), {}, { device: 'reference' })
    return step.run({}, {}, o)
  },
  full: (o) => traced(() => full([2], 1, o)),
  'parallel.recv': (o) => traced(() => recv([2], 0, o)),
  autocast: (o) => traced(() => autocast(o, () => 1)),
}

test.each(Object.entries(others))('%s', async (name, call) => {
  const run = async (options: Options) => call(options)
  const wrong = run({ not_an_option: 1 })
  await expect(wrong).rejects.toThrow(new RegExp(`^${name}: expected \\w+ among .*"not_an_option"`))
  await expect(wrong).rejects.toMatchObject({ code: 'config.invalid' })
})

/** Values that no run could take. */
const values: [call: () => unknown, text: RegExp][] = [
  [
    () => new LayerNorm(4, { eps: Number.NaN }),
    /LayerNorm: eps must be finite and at least 0, got NaN/,
  ],
  [() => new RMSNorm(4, { eps: -1 }), /RMSNorm: eps must be .*, got -1/],
  [() => new GroupNorm(2, 4, { eps: '1' as never }), /GroupNorm: eps must be .*, got "1"/],
  [
    () => new BatchNorm2d(4, { eps: Number.POSITIVE_INFINITY }),
    /BatchNorm2d: eps must be .*Infinity/,
  ],
  [() => new BatchNorm1d(4, { momentum: 3 }), /BatchNorm1d: momentum must be from 0 to 1, got 3/],
  [() => spectralNorm(new Linear(2, 2), { eps: -1 }), /spectralNorm: eps must be .*, got -1/],
  [() => new RotaryEmbedding(5), /RotaryEmbedding: width must be an even number above 0, got 5/],
  [() => new RotaryEmbedding(4, { isInterleaved: 1 as never }), /isInterleaved must be true or/],
  [() => rotaryTable(5, 8), /rotaryTable: width must be an even number above 0, got 5/],
  [
    () => new Conv2d(3, 4, undefined as never),
    /Conv2d: kernelSize must be a whole number from 1 to \d+, or a pair of them, got undefined/,
  ],
  [
    () => new Conv1d(3, 4, [3] as never),
    /Conv1d: kernelSize must be a whole number from 1 to \d+, got \[3\]/,
  ],
  [() => new ConvTranspose2d(3, 4, 0), /ConvTranspose2d: kernelSize must be .*, got 0/],
  [() => new MaxPool2d([2, 2, 2] as never), /MaxPool2d: kernelSize must be .*, got \[2,2,2\]/],
  [
    () => new AvgPool1d(undefined as never),
    /AvgPool1d: kernelSize must be a whole number from 1 to/,
  ],
  [
    () => new Conv2d(3, 4, 3, { groups: 2 }),
    /Conv2d: groups must be a divisor of 3 inChannels and 4 outChannels, got 2/,
  ],
  [
    () => new Conv2d(4, 6, 3, { groups: 4 }),
    /Conv2d: groups must be a divisor of 4 inChannels and 6/,
  ],
  [() => new Conv1d(-3, 4, 3), /Conv1d: inChannels must be a whole number from 0 to \d+, got -3/],
  [() => new Linear(2.5, 4), /Linear: inFeatures must be a whole number from 0 to \d+, got 2.5/],
  [() => new BatchNorm2d(-2), /BatchNorm2d: numFeatures must be a whole number .*, got -2/],
  [() => new LayerNorm(-1), /LayerNorm: normalizedShape must be a whole number .*, got -1/],
  [() => new RMSNorm([4, 0.5]), /RMSNorm: normalizedShape must be a whole number .*, got 0.5/],
  [() => new GroupNorm(3, 4), /GroupNorm: numGroups must be a divisor of 4 channels, got 3/],
  [() => new GroupNorm(0, 4), /GroupNorm: numGroups must be a divisor of 4 channels, got 0/],
  [() => new ReLU(true as never), /^ReLU: the argument must be omitted, got true/],
  [() => manualSeed(-5), /manualSeed: seed must be a whole number from 0 to 2\^53 - 1, got -5/],
  [
    () =>
      new ReduceLROnPlateau(new SGD(new Linear(1, 1).parameters(), { lr: 1 })).step(
        undefined as never,
      ),
    /ReduceLROnPlateau.step: metric must be a number, got undefined/,
  ],
  [
    () => traced(({ x }) => gelu(x, 'tahn' as never)),
    /gelu: approximate must be one of 'none', 'tanh', got "tahn"/,
  ],
  [
    () => traced(({ x }) => adaptiveAvgPool2d(x.reshape([1, 2, 2, 2]), undefined as never)),
    /adaptiveAvgPool2d: outputSize must be a whole number above 0, .*, got undefined/,
  ],
  [
    () => new DistributedDataParallel(new Linear(2, 2), { onLeftOut: 3 as never }),
    /DistributedDataParallel: onLeftOut must be a function, got 3/,
  ],
  [
    () => new DistributedDataParallel(new Linear(2, 2), { onLeftOut: () => undefined }),
    /DistributedDataParallel: onLeftOut must be left out without aggregation or trust/,
  ],
  [() => new Dropout(2), /Dropout: p must be within 0..1, got 2/],
  [
    () => new Embedding(3, 2, { paddingIdx: 7 }),
    /paddingIdx must be a row index for 3 rows, got 7/,
  ],
  [
    () => new Embedding(3, 2, { paddingIdx: -4 }),
    /paddingIdx must be a row index for 3 rows, got -4/,
  ],
  [() => new MultiheadAttention(4, 2, { dropout: -1 }), /dropout must be within 0..1, got -1/],
  [() => new LSTM(2, 2, { dropout: 1.5 }), /LSTM: dropout must be within 0..1, got 1.5/],
  [() => new RNN(2, 2, { nonlinearity: 'gelu' as never }), /one of 'tanh', 'relu', got "gelu"/],
  [
    () => new losses.MSELoss({ reduction: 'batchmean' as never }),
    /'none', 'sum', 'mean', got "batchmean"/,
  ],
  [() => new losses.KLDivLoss({ reduction: 'Mean' as never }), /'mean', 'batchmean', got "Mean"/],
  [() => new losses.HuberLoss({ delta: 0 }), /HuberLoss: delta must be above 0, got 0/],
  [() => new losses.CrossEntropyLoss({ labelSmoothing: 2 }), /labelSmoothing must be within 0..1/],
  [
    () => new losses.CrossEntropyLoss({ weight: [1, Number.NaN] }),
    /CrossEntropyLoss: weight must be a list of finite numbers, got \[1,/,
  ],
  [() => new losses.NLLLoss({ weight: 'ab' as never }), /NLLLoss: weight must be a list of finite/],
  [() => new losses.NLLLoss({ ignoreIndex: 1.5 }), /ignoreIndex must be a whole number, got 1.5/],
  [
    () => new losses.BCEWithLogitsLoss({ posWeight: [] }),
    /posWeight must be a list of finite numbers, got \[\]/,
  ],
  [() => new losses.KLDivLoss({ logTarget: 1 as never }), /logTarget must be true or false, got 1/],
  [
    () => traced(({ x, y }) => functions.smoothL1Loss(x, y, { beta: Number.NaN })),
    /smoothL1Loss: beta must be at least 0, got NaN/,
  ],
  [
    () => new SyncBatchNorm(2, { processGroup: 5 as never }),
    /SyncBatchNorm: processGroup must be what newGroup\(\) returned on a rank in it, got 5/,
  ],
  [
    () => traced(({ x, y }) => functions.mseLoss(x, y, { reduction: 'batchmean' as never })),
    /mseLoss: reduction/,
  ],
  [() => traced(() => autocast({ dtype: 'bfloat16' as never }, () => 1)), /one of 'float16'/],
  [() => gpt({ ...sizes, dropout: 3 }), /gpt: dropout must be within 0..1, got 3/],
  ...[Number.NaN, 0, -1e-5, Number.POSITIVE_INFINITY, '1e-5' as never, null as never].map(
    (layerNormEps): [call: () => unknown, text: RegExp] => [
      () => gpt({ ...sizes, layerNormEps }),
      new RegExp(`layerNormEps must be a finite number above 0, got "?${layerNormEps}`),
    ],
  ),
  [() => gpt({ ...sizes, layers: undefined as never }), /gpt: layers must be a whole number/],
  [() => resnet18({ numClasses: 0 }), /ResNet: numClasses must be a whole number above 0, got 0/],
  [
    () => compileAccumulated(() => ({}), {}, { weight: Number.NaN }),
    /weight must be a finite number of at least 0, got NaN/,
  ],
]

const image = (x: Tensor) => x.reshape([1, 1, 2, 4])
/** What a layer refuses when it is made, its function refuses when it is called. */
const called: [text: RegExp, call: (x: Tensor) => unknown][] = [
  [/layerNorm: eps must be finite/, (x) => layerNorm(x, [4], undefined, undefined, Number.NaN)],
  [/rmsNorm: eps must be finite .*, got -1/, (x) => rmsNorm(x, [4], undefined, -1)],
  [/groupNorm: eps must be/, (x) => groupNorm(x, 1, undefined, undefined, 'a' as never)],
  [/batchNorm: eps must be/, (x) => batchNorm(x, x, x, { training: true, eps: Number.NaN })],
  [/batchNorm: momentum must be from 0 to 1/, (x) => batchNorm(x, x, x, { momentum: 2 })],
  [/batchNorm: training must be true or/, (x) => batchNorm(x, x, x, { training: 'no' as never })],
  [/scale must be a finite/, (x) => scaledDotProductAttention(x, x, x, { scale: Number.NaN })],
  [/isCausal must be/, (x) => scaledDotProductAttention(x, x, x, { isCausal: 0 as never })],
  [/maxPool2d: ceilMode must be/, (x) => maxPool2d(image(x), 2, { ceilMode: 'no' as never })],
  [/avgPool2d: countIncludePad/, (x) => avgPool2d(image(x), 2, { countIncludePad: 0 as never })],
  [/leakyRelu: negativeSlope must be a number, got NaN/, (x) => leakyRelu(x, Number.NaN)],
  [/softplus: beta must be a number, got NaN/, (x) => softplus(x, Number.NaN)],
  [/^dropout: p must be within 0..1, got an object with p/, (x) => dropout(x, { p: 0.5 } as never)],
  [/variance: correction must be/, (x) => variance(x, 1, { correction: Number.NaN })],
]
values.push(
  ...called.map(([text, call]): (typeof values)[number] => [
    () => traced(({ x }) => call(x) as Tensor),
    text,
  ]),
)

test.each(values.map(([call, text]) => [text, call] as const))('%s', async (text, call) => {
  const run = (async () => call())()
  await expect(run).rejects.toThrow(text)
  await expect(run).rejects.toMatchObject({ code: 'config.invalid' })
})
