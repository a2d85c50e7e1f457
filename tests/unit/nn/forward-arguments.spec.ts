import { expect, test } from 'vitest'
import * as api from '../../support/library.ts'

// A model is called with tensors, while a function is traced: arrays are what runs get.

type Makers = Record<string, () => { forward(...args: never[]): unknown }>

const modules: Makers = {
  Linear: () => new api.Linear(2, 2),
  Sequential: () => new api.Sequential(new api.Linear(2, 2), new api.ReLU()),
  ReLU: () => new api.ReLU(),
  GELU: () => new api.GELU(),
  LeakyReLU: () => new api.LeakyReLU(),
  SiLU: () => new api.SiLU(),
  Sigmoid: () => new api.Sigmoid(),
  Tanh: () => new api.Tanh(),
  Softplus: () => new api.Softplus(),
  Softmax: () => new api.Softmax(1),
  LogSoftmax: () => new api.LogSoftmax(1),
  Flatten: () => new api.Flatten(),
  Dropout: () => new api.Dropout(),
  Embedding: () => new api.Embedding(4, 2),
  Conv1d: () => new api.Conv1d(2, 2, 3),
  Conv2d: () => new api.Conv2d(2, 2, 3),
  'Conv2d with circular padding': () =>
    new api.Conv2d(2, 2, 3, { padding: 1, paddingMode: 'circular' }),
  ConvTranspose2d: () => new api.ConvTranspose2d(2, 2, 3),
  BatchNorm1d: () => new api.BatchNorm1d(2),
  BatchNorm2d: () => new api.BatchNorm2d(2),
  SyncBatchNorm: () => new api.SyncBatchNorm(2),
  LayerNorm: () => new api.LayerNorm(2),
  RMSNorm: () => new api.RMSNorm(2),
  GroupNorm: () => new api.GroupNorm(1, 2),
  MaxPool1d: () => new api.MaxPool1d(2),
  MaxPool2d: () => new api.MaxPool2d(2),
  AvgPool1d: () => new api.AvgPool1d(2),
  AvgPool2d: () => new api.AvgPool2d(2),
  AdaptiveAvgPool1d: () => new api.AdaptiveAvgPool1d(2),
  AdaptiveAvgPool2d: () => new api.AdaptiveAvgPool2d(2),
  RNN: () => new api.RNN(2, 2),
  GRU: () => new api.GRU(2, 2),
  LSTM: () => new api.LSTM(2, 2),
  RNNCell: () => new api.RNNCell(2, 2),
  GRUCell: () => new api.GRUCell(2, 2),
  LSTMCell: () => new api.LSTMCell(2, 2),
  MultiheadAttention: () => new api.MultiheadAttention(4, 2),
  RotaryEmbedding: () => new api.RotaryEmbedding(4),
  CharRnn: () => api.charRnn(5),
  gpt: () => api.gpt({ vocabSize: 8, blockSize: 4, layers: 1, heads: 1, width: 4 }),
  cnn: () => api.cnn(),
  mlp: () => api.mlp({ sizes: [2, 2] }),
}

const losses: Makers = {
  CrossEntropyLoss: () => new api.CrossEntropyLoss(),
  NLLLoss: () => new api.NLLLoss(),
  MSELoss: () => new api.MSELoss(),
  L1Loss: () => new api.L1Loss(),
  HuberLoss: () => new api.HuberLoss(),
  SmoothL1Loss: () => new api.SmoothL1Loss(),
  BCELoss: () => new api.BCELoss(),
  BCEWithLogitsLoss: () => new api.BCEWithLogitsLoss(),
  KLDivLoss: () => new api.KLDivLoss(),
}

const arrays: [got: string, array: unknown][] = [
  ['[1,2,3,4]', [1, 2, 3, 4]],
  ['Float32Array of 4', Float32Array.of(1, 2, 3, 4)],
]

test.each(Object.entries({ ...modules, ...losses }))(
  '%s asks for a tensor when forward gets an array',
  async (name, make) => {
    const module = make()
    for (const [got, array] of arrays) {
      const forward = () =>
        module.forward(...((name in losses ? [array, array] : [array]) as never[]))
      const text = `must be a Tensor, got ${got}. Inside compile() pass a tensor; arrays are inputs of a run: `
      expect(forward).toThrow(text)
      const program = api.compile(
        () => ({ y: forward() as api.Tensor }),
        {},
        { device: 'reference' },
      )
      await expect(program).rejects.toThrow(text)
    }
  },
)

const attention = new api.MultiheadAttention(4, 2)
const optional = ['key', 'value', 'attnMask', 'keyPaddingMask']

test('MultiheadAttention takes null for an input that is left out', async () => {
  const nulls = Object.fromEntries(optional.map((name) => [name, null]))
  const program = await api.compile(
    ({ x, one }) => ({
      y: attention.forward(x).sub(attention.forward(x, nulls)),
      one: attention.forward(one).sub(attention.forward(one, nulls)),
    }),
    { x: api.tensorType([3, 2, 4]), one: api.tensorType([3, 4]) },
    { device: 'reference' },
  )
  const { y, one } = await program.run({
    x: new Float32Array(24).fill(1),
    one: new Float32Array(12).fill(1),
  })
  expect([...y, ...one].filter(Boolean)).toEqual([])
})

test.each(optional)('MultiheadAttention names the input that is no tensor: %s', async (name) => {
  for (const [got, array] of [...arrays, ['true', true]] as const) {
    const forward = () => attention.forward(api.ones([3, 2, 4]), { [name]: array })
    const program = api.compile(() => ({ y: forward() }), {}, { device: 'reference' })
    await expect(program).rejects.toThrow(
      `MultiheadAttention: ${name} must be a Tensor, got ${got}.`,
    )
  }
})
