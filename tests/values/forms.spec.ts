import { afterEach, describe, expect, test } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import * as convolutions from '../../src/graph/functions/convolution.ts'
import * as losses from '../../src/graph/functions/losses.ts'
import { pad } from '../../src/graph/functions/pad.ts'
import * as pooling from '../../src/graph/functions/pooling.ts'
import {
  packedRotaryEmbedding,
  rotaryEmbedding,
  rotaryTable,
} from '../../src/graph/functions/rotary.ts'
import { cat } from '../../src/graph/functions/shape.ts'
import { Parameter } from '../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { MultiheadAttention } from '../../src/nn/attention.ts'
import { Conv1d, Conv2d } from '../../src/nn/convolution.ts'
import type { Module } from '../../src/nn/module.ts'
import { GRU, GRUCell, LSTM, LSTMCell, RNN, RNNCell } from '../../src/nn/recurrent.ts'
import { tensorType } from '../../src/util/shape.ts'
import text from '../golden/forms.json?raw'
import { formulaUniform } from '../support/formula-data.ts'
import { type Call, type CallCase, problemsOfCall } from '../support/golden-call.ts'
import { checkTestRuntime, testRuntime } from '../support/run-op.ts'

// Padding modes, and layers and losses of inputs without a batch axis, against PyTorch (tests/golden/forms.py); the packed form of
// the rotary embedding against the plain one.

afterEach(checkTestRuntime)

/** The module with these tensors in place of its parameters. */
const withWeights = <M extends Module>(module: M, weights: Record<string, Tensor>): M =>
  Object.assign(module, weights)

const sequence =
  (Layer: typeof RNN | typeof GRU | typeof LSTM): Call =>
  ({ x, h0, c0, ...weights }) => {
    const { output, hn, cn } = withWeights(new Layer(3, 8), weights).withState(x, { h0, c0 })
    return { y: output, hn, ...(cn && { cn }) }
  }

const calls: Record<string, Call> = {
  pad: ({ x }, { pads, mode }) => pad(x, pads, mode),
  Conv1d: ({ x, ...weights }, options) =>
    withWeights(new Conv1d(2, 3, 4, options), weights).forward(x),
  Conv2d({ x, ...weights }, options) {
    const [, , height, width] = weights.weight.shape
    return withWeights(new Conv2d(2, 3, [height, width], options), weights).forward(x)
  },
  conv1d: ({ x, w, b }, options) => convolutions.conv1d(x, w, b, options),
  conv2d: ({ x, w, b }, options) => convolutions.conv2d(x, w, b, options),
  convTranspose2d: ({ x, w, b }, options) => convolutions.convTranspose2d(x, w, b, options),
  maxPool1d: ({ x }, { kernel }) => pooling.maxPool1d(x, kernel),
  maxPool2d({ x }, { kernel }) {
    const [y, indices] = pooling.maxPool2d(x, kernel, { returnIndices: true })
    return { y, indices }
  },
  avgPool1d: ({ x }, { kernel }) => pooling.avgPool1d(x, kernel),
  avgPool2d: ({ x }, { kernel }) => pooling.avgPool2d(x, kernel),
  adaptiveAvgPool1d: ({ x }, { size }) => pooling.adaptiveAvgPool1d(x, size),
  adaptiveAvgPool2d: ({ x }, { size }) => pooling.adaptiveAvgPool2d(x, size),
  crossEntropy: ({ input, target }, options) => losses.crossEntropy(input, target, options),
  nllLoss: ({ input, target }, options) => losses.nllLoss(input, target, options),
  RNN: sequence(RNN),
  GRU: sequence(GRU),
  LSTM: sequence(LSTM),
  RNNCell: ({ x, h, ...weights }) => withWeights(new RNNCell(3, 8), weights).forward(x, h),
  GRUCell: ({ x, h, ...weights }) => withWeights(new GRUCell(3, 8), weights).forward(x, h),
  LSTMCell: ({ x, h, c, ...weights }) => withWeights(new LSTMCell(3, 8), weights).forward(x, h, c),
  MultiheadAttention({ x, key, padding, w, b, wo, bo }) {
    const module = new MultiheadAttention(6, 2)
    Object.assign(module, { inProjWeight: w, inProjBias: b })
    withWeights(module.outProj, { weight: wo, bias: bo })
    return module.forward(x, key && { key, value: key, keyPaddingMask: padding })
  },
}

describe('against PyTorch', () => {
  for (const golden of (JSON.parse(text) as { cases: CallCase[] }).cases) {
    test(golden.name, async () => {
      expect(await problemsOfCall(golden, calls, { runtime: await testRuntime() })).toEqual([])
    })
  }
})

test.each([false, true])(
  'the packed rotary embedding turns queries and keys as the plain one, and leaves values (interleaved: %s)',
  async (isInterleaved) => {
    const [batch, positions, heads, width] = [2, 5, 3, 4]
    const shape = [batch * positions, 3 * heads * width]
    const data = formulaUniform(11, shape[0] * shape[1], 1)
    const runs = [false, true].map(async (isPacked) => {
      const qkv = new Parameter(shape, data)
      const program = await compile(
        ({ table, dy }) => {
          const options = { isInterleaved }
          const turned = (x: Tensor) =>
            rotaryEmbedding(x.permute(0, 2, 1, 3), table, options).permute(0, 2, 1, 3)
          const apart = () => {
            const parts = qkv.reshape([batch, positions, 3 * heads, width])
            const values = parts.narrow(2, 2 * heads, heads)
            const y = turned(parts.narrow(2, 0, 2 * heads))
            return cat([y, values], 2).reshape(shape)
          }
          const y = isPacked
            ? packedRotaryEmbedding(qkv, table, { positions, heads }, options)
            : apart()
          y.mul(dy).sum().backward()
          return { y, gradient: qkv.grad! }
        },
        { table: tensorType([positions, width / 2, 2]), dy: tensorType(shape) },
        { runtime: await testRuntime() },
      )
      const dy = formulaUniform(12, data.length, 1)
      const got = await program.run({ table: rotaryTable(width, positions), dy })
      program.destroy()
      return got
    })
    const [plain, packed] = await Promise.all(runs)
    expect(packed.y).toEqual(plain.y)
    expect(packed.gradient).toEqual(plain.gradient)
    expect(packed.y).not.toEqual(data)
  },
)
