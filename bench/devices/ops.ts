import { autocast } from '../../src/entries/amp.ts'
import {
  bmm,
  cast,
  cat,
  conv1d,
  conv2d,
  convTranspose2d,
  cumsum,
  erf,
  exp,
  flip,
  gather,
  indexSelect,
  logSoftmax,
  logsumexp,
  matmul,
  max,
  permute,
  pow,
  scatterAdd,
  softmax,
  sum,
  type Tensor,
  tanh,
  topk,
  tril,
  variance,
} from '../../src/entries/index.ts'
import {
  avgPool2d,
  batchNorm,
  crossEntropy,
  dropout,
  embedding,
  gelu,
  groupNorm,
  layerNorm,
  maxPool2d,
  oneHot,
  pad,
  rmsNorm,
  scaledDotProductAttention,
} from '../../src/entries/nn/functional.ts'
import {
  charRnn,
  clipGradNorm,
  cnn,
  GELU,
  GRU,
  gpt,
  Linear,
  LSTM,
  type Module,
  mlp,
  RNN,
  resnet18,
  Sequential,
  Tanh,
} from '../../src/entries/nn.ts'
import { AdamW, type Optimizer, SGD } from '../../src/entries/optim.ts'
import type { Parameter } from '../../src/graph/trace/parameter.ts'
import type { Shape } from '../../src/util/shape.ts'

/** A step whose model is little more than one op, or a module: the mean of the squared result, its gradient, and an update. */
export interface OpStep {
  /** Of the operands, which are parameters. */
  readonly shapes: readonly Shape[]
  /** Shape and end of random indices. */
  readonly indices?: readonly [Shape, number]
  /** Trains instead of the operands. */
  readonly module?: () => Module
  /** Makes what follows backward. Default: plain SGD, which takes the least time. */
  readonly update?: (parameters: Parameter[]) => () => void
  result(operands: readonly Tensor[], given: { indices: Tensor; module: Module }): Tensor
}

type Ops = Readonly<Record<string, OpStep>>

const matrix: Shape = [1024, 1024]
const images: Shape = [64, 16, 28, 28]
const sequences: Shape = [32, 64, 64]

/** Of one operand. */
const unary = (name: string, op: (x: Tensor) => Tensor, shape: Shape = matrix): Ops => ({
  [`${name} of ${shape.join(' x ')}`]: { shapes: [shape], result: ([x]) => op(x) },
})

const product = (rows: number, inner: number, columns: number): Ops => ({
  [`matmul ${rows} x ${inner} x ${columns}`]: {
    shapes: [
      [rows, inner],
      [inner, columns],
    ],
    result: ([a, b]) => matmul(a, b),
  },
})

const convolution = (
  name: string,
  x: Shape,
  weight: Shape,
  options: Parameters<typeof conv2d>[3] = {},
): Ops => ({
  [`conv2d ${name}, ${x.join(' x ')}`]: {
    shapes: [x, weight],
    result: ([image, kernel]) => conv2d(image, kernel, undefined, options),
  },
})

const attention = (batch: number, heads: number, length: number, width: number): Ops => {
  const shape = [batch, heads, length, width]
  return {
    [`causal attention of ${shape.join(' x ')}`]: {
      shapes: [shape, shape, shape],
      result: ([query, key, value]) =>
        scaledDotProductAttention(query, key, value, { isCausal: true }),
    },
  }
}

const classes = (rows: number, count: number): Ops => ({
  [`cross entropy of ${rows} x ${count}`]: {
    shapes: [[rows, count]],
    indices: [[rows], count],
    result: ([x], { indices }) => crossEntropy(x, indices),
  },
})

type Layer = Module & { forward(x: Tensor): Tensor }

const layer = (name: string, shape: Shape, module: () => Layer): Ops => ({
  [`${name}, ${shape.join(' x ')}`]: {
    shapes: [shape],
    module,
    result: ([x], { module }) => (module as Layer).forward(x),
  },
})

const language = (name: string, shape: Shape, module: () => Layer): Ops => ({
  [`${name}, ${shape.join(' x ')}`]: {
    shapes: [],
    indices: [shape, 65],
    module,
    result: (_, { indices, module }) => (module as Layer).forward(indices),
  },
})

const updateOf = (optimizer: Optimizer) => () => optimizer.step()

export const plainUpdate = (parameters: Parameter[]): (() => void) =>
  updateOf(new SGD(parameters, { lr: 1e-3 }))

const gptConfig = { vocabSize: 65, blockSize: 64, layers: 2, heads: 4, width: 64 }

/** Pixels from features of their places: narrow layers, so that activations count. */
const picture = (activation: () => Module) => {
  const hidden = [16, 64, 64, 64].flatMap((width) => [new Linear(width, 64), activation()])
  return new Sequential(...(hidden as Layer[]), new Linear(64, 3))
}

const batchFirst = { batchFirst: true }

/** Every kind of kernel, in sizes in which a step takes about 1 to 100 ms. */
export const ops: Ops = {
  ...unary('square', (x) => x.mul(x)),
  ...unary('exp', exp),
  ...unary('tanh', tanh),
  ...unary('erf', erf),
  ...unary('gelu', gelu),
  ...unary('power', (x) => pow(x.square().add(1), 1.7)),
  ...unary('dropout', (x) => dropout(x, 0.5)),
  ...unary('sum of all', (x) => sum(x)),
  ...unary('sum of columns', (x) => sum(x, 0)),
  ...unary('sum of rows', (x) => sum(x, 1)),
  ...unary('maxima of rows', (x) => max(x, 1).values),
  ...unary('top 8 of rows', (x) => topk(x, 8, 1).values),
  ...unary('variance of rows', (x) => variance(x, 1)),
  ...unary('logsumexp of rows', (x) => logsumexp(x, 1)),
  ...unary('cumsum of rows', (x) => cumsum(x, 1)),
  ...unary('cumsum of columns', (x) => cumsum(x, 0)),
  ...unary('softmax of rows', (x) => softmax(x, 1)),
  ...unary('softmax of columns', (x) => softmax(x, 0)),
  ...unary('log softmax of rows', (x) => logSoftmax(x, 1)),
  ...unary('transposed', (x) => permute(x, [1, 0]).reshape([1024 * 1024])),
  ...unary('flip', (x) => flip(x, [0, 1])),
  ...unary('pad', (x) => pad(x, [8, 8, 8, 8])),
  ...unary('tril', (x) => tril(x)),
  ...unary('cat', (x) => cat([x, x], 1)),
  ...product(64, 64, 64),
  ...product(256, 256, 256),
  ...product(512, 512, 512),
  ...product(1024, 1024, 1024),
  ...product(4096, 64, 64),
  ...product(16, 4096, 1024),
  ...product(1, 1024, 1024),
  'bmm 64 x (64 x 64 x 64)': {
    shapes: [
      [64, 64, 64],
      [64, 64, 64],
    ],
    result: ([a, b]) => bmm(a, b),
  },
  'matmul 512 x 512 x 512 in float16': {
    shapes: [
      [512, 512],
      [512, 512],
    ],
    result: ([a, b]) =>
      cast(
        autocast({ dtype: 'float16' }, () => matmul(a, b)),
        'f32',
      ),
  },
  ...convolution('3 x 3 to 32', images, [32, 16, 3, 3], { padding: 1 }),
  ...convolution('1 x 1 to 64', images, [64, 16, 1, 1]),
  ...convolution('3 x 3 by channel', images, [16, 1, 3, 3], { padding: 1, groups: 16 }),
  ...convolution('3 x 3 to 32, stride 2', images, [32, 16, 3, 3], { padding: 1, stride: 2 }),
  ...convolution('3 x 3 to 128', [8, 128, 16, 16], [128, 128, 3, 3], { padding: 1 }),
  ...convolution('7 x 7 to 64, stride 2', [2, 3, 112, 112], [64, 3, 7, 7], {
    padding: 3,
    stride: 2,
  }),
  'conv1d 5 to 64, 32 x 64 x 256': {
    shapes: [
      [32, 64, 256],
      [64, 64, 5],
    ],
    result: ([x, weight]) => conv1d(x, weight, undefined, { padding: 2 }),
  },
  'convTranspose2d 4 x 4 to 16, stride 2, 16 x 32 x 14 x 14': {
    shapes: [
      [16, 32, 14, 14],
      [32, 16, 4, 4],
    ],
    result: ([x, weight]) => convTranspose2d(x, weight, undefined, { stride: 2, padding: 1 }),
  },
  ...unary('max pool 2', (x) => maxPool2d(x, 2), images),
  ...unary('average pool 3, stride 2', (x) => avgPool2d(x, 3, { stride: 2 }), images),
  'batch norm of 64 x 16 x 28 x 28': {
    shapes: [images, [16], [16]],
    result: ([x, weight, bias]) => batchNorm(x, weight, bias, { training: true }),
  },
  'layer norm of 1024 x 1024': {
    shapes: [matrix, [1024], [1024]],
    result: ([x, weight, bias]) => layerNorm(x, [1024], weight, bias),
  },
  'group norm 4 of 64 x 16 x 28 x 28': {
    shapes: [images, [16], [16]],
    result: ([x, weight, bias]) => groupNorm(x, 4, weight, bias),
  },
  'RMS norm of 1024 x 1024': {
    shapes: [matrix, [1024]],
    result: ([x, weight]) => rmsNorm(x, [1024], weight),
  },
  ...attention(8, 4, 64, 16),
  ...attention(4, 4, 256, 64),
  ...attention(1, 4, 1024, 64),
  ...classes(512, 65),
  ...classes(256, 10_000),
  'gather of rows': {
    shapes: [matrix],
    indices: [[1024, 256], 1024],
    result: ([x], { indices }) => gather(x, 1, indices),
  },
  'scatterAdd to rows': {
    shapes: [matrix, [1024, 256]],
    indices: [[1024, 256], 1024],
    result: ([x, source], { indices }) => scatterAdd(x, 1, indices, source),
  },
  'indexSelect of 1024 rows': {
    shapes: [matrix],
    indices: [[1024], 1024],
    result: ([x], { indices }) => indexSelect(x, 0, indices),
  },
  'embedding of 2048 in 10000 x 64': {
    shapes: [[10_000, 64]],
    indices: [[2048], 10_000],
    result: ([table], { indices }) => embedding(indices, table),
  },
  'one-hot of 1024 in 256': {
    shapes: [[1024, 256]],
    indices: [[1024], 256],
    result: ([x], { indices }) => oneHot(indices, 256).mul(x),
  },
  ...layer('RNN to 128', sequences, () => new RNN(64, 128, batchFirst)),
  ...layer('GRU to 128', sequences, () => new GRU(64, 128, batchFirst)),
  ...layer('LSTM to 128', sequences, () => new LSTM(64, 128, batchFirst)),
  ...layer('model mlp', [64, 784], () => mlp()),
  ...layer('model of a picture, GELU, 4 x 64', [4096, 16], () => picture(() => new GELU())),
  ...layer('model of a picture, tanh, 4 x 64', [4096, 16], () => picture(() => new Tanh())),
  ...layer('model cnn with batch norm', [64, 1, 28, 28], () => cnn({ batchNorm: true })),
  ...layer('model resnet18', [8, 3, 32, 32], () => resnet18({ smallInputs: true, numClasses: 10 })),
  ...language('model charRnn', [16, 64], () => charRnn(65)),
  ...language('model gpt', [8, 64], () => gpt(gptConfig)),
  ...language('model gpt, dropout 0.1', [8, 64], () => gpt({ ...gptConfig, dropout: 0.1 })),
  'AdamW of 4 million': {
    shapes: [[2048, 2048]],
    update: (parameters) => updateOf(new AdamW(parameters)),
    result: ([x]) => x,
  },
  'clip the norm of 4 million': {
    shapes: [[2048, 2048]],
    update: (parameters) => {
      const update = plainUpdate(parameters)
      return () => {
        clipGradNorm(parameters, 1)
        update()
      }
    },
    result: ([x]) => x,
  },
}
