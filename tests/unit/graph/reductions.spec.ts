import { describe, expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import {
  amax,
  argmax,
  argmin,
  logsumexp,
  mean,
  norm,
  std,
  sum,
  topk,
  variance,
  varMean,
} from '../../../src/graph/functions/reductions.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { tensorType } from '../../../src/util/shape.ts'

// Which dimensions reductions reduce: arguments in PyTorch's order, and none of a wrong kind passed over.

const x = Float32Array.of(1, 2, 4, 8, 16, 0.5)

async function results(of: (x: Tensor) => Record<string, Tensor>) {
  const shapes: Record<string, readonly number[]> = {}
  const program = await compile(
    (inputs) => {
      const outputs = of(inputs.x)
      for (const [name, { shape }] of Object.entries(outputs)) shapes[name] = shape
      return outputs
    },
    { x: tensorType([2, 3]) },
    { device: 'reference' },
  )
  const outputs = await program.run({ x })
  program.destroy()
  const round = (value: number) => Math.round(value * 1e4) / 1e4
  return Object.fromEntries(
    Object.entries(outputs).map(([name, values]) => [
      name,
      [shapes[name], Array.from(values, round)],
    ]),
  )
}

test('of [[1, 2, 4], [8, 16, 0.5]], what torch makes of them', async () => {
  const got = await results((x) => {
    const [var1, mean1] = varMean(x, 1)
    return {
      sum: sum(x, 1, true),
      'sum of none': sum(x, []),
      mean: mean(x, [0, -1]),
      amax: amax(x, 0),
      argmax: argmax(x, 1, true),
      argmin: argmin(x, 0),
      topk: topk(x, 1, 0, false).values,
      logsumexp: logsumexp(x, 1),
      'logsumexp, kept': logsumexp(x, [0, 1], true),
      variance: variance(x, 1),
      'variance, correction 0': variance(x, 1, { correction: 0 }),
      'variance, biased': variance(x, -1, { unbiased: false, keepDim: true }),
      'variance, correction 3': variance(x, 1, { correction: 3 }),
      'variance of all': variance(x),
      std: std(x, 0),
      var1,
      mean1,
      norm: norm(x, 2, 1),
      'norm 1, kept': norm(x, 1, 0, true),
      'norm 3 of all': norm(x, 3),
    }
  })
  expect(got).toEqual({
    sum: [
      [2, 1],
      [7, 24.5],
    ],
    'sum of none': [[], [31.5]],
    mean: [[], [5.25]],
    amax: [[3], [8, 16, 4]],
    argmax: [
      [2, 1],
      [2, 1],
    ],
    argmin: [[3], [0, 0, 1]],
    topk: [
      [1, 3],
      [1, 2, 0.5],
    ],
    logsumexp: [[2], [4.1698, 16.0003]],
    'logsumexp, kept': [[1, 1], [16.0003]],
    variance: [[2], [2.3333, 60.0833]],
    'variance, correction 0': [[2], [1.5556, 40.0556]],
    'variance, biased': [
      [2, 1],
      [1.5556, 40.0556],
    ],
    'variance, correction 3': [[2], [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY]],
    'variance of all': [[], [35.175]],
    std: [[3], [4.9497, 9.8995, 2.4749]],
    var1: [[2], [2.3333, 60.0833]],
    mean1: [[2], [2.3333, 8.1667]],
    norm: [[2], [4.5826, 17.8955]],
    'norm 1, kept': [
      [1, 3],
      [9, 18, 4.5],
    ],
    'norm 3 of all': [[], [16.7282]],
  })
})

describe('arguments of a wrong kind are refused', () => {
  const wrong: Record<string, [(x: Tensor) => Tensor, RegExp]> = {
    'options for a dimension': [
      (x) => logsumexp(x, { axes: [0] } as never),
      /^logsumexp: dim must be a dimension or an array of them, got an object with axes\. Arguments are in PyTorch's order\.$/,
    ],
    "norm's dimension that is none": [(x) => norm(x, 2, 7), /^norm: dim must be/],
    "norm's text for keepDim": [
      (x) => norm(x, 2, 0, 'yes' as never),
      /^norm: keepDim must be true or false, got "yes"/,
    ],
    "variance's number for keepDim": [
      (x) => variance(x, 0, { keepDim: 3 as never }),
      /^variance: keepDim must be true or false, got 3/,
    ],
    'options for keepDim': [
      (x) => sum(x, 0, { keepDim: true } as never),
      /^sum: keepDim must be true or false, got an object with keepDim/,
    ],
    'a number for keepDim': [
      (x) => x.argmax(0, 1 as never),
      /^argmax: keepDim must be true or false/,
    ],
    'a text': [(x) => x.mean('0' as never), /^mean: dim must be a dimension/],
    null: [(x) => x.amin(null as never), /^amin: dim must be a dimension/],
    'options for p': [(x) => norm(x, { axes: 1 } as never), /^norm: p must be a number/],
    'options for the dimension of topk': [
      (x) => x.topk(1, { dim: 0 } as never).values,
      /^topk: dim must be a dimension of \[2, 3\]/,
    ],
    'a third argument of variance as in some torch': [
      (x) => variance(x, 1, false as never),
      /variance: expected an object with options \(keepDim, correction, unbiased\), got false/,
    ],
    'an option that torch does not have': [
      (x) => std(x, 1, { keepDims: true } as never),
      /expected options among keepDim, correction, unbiased, got "keepDims"/,
    ],
    'a dimension outside': [(x) => x.sum(2), /^sum: dim must be a dimension of \[2, 3\], got 2/],
    'a dimension twice': [
      (x) => x.sum([0, -2]),
      /^sum: dim must be distinct dimensions, got \[0, -2\]/,
    ],
  }
  test.each(Object.entries(wrong))('%s', async (_, [of, message]) => {
    await expect(results((x) => ({ y: of(x) }))).rejects.toThrow(message)
  })
})
