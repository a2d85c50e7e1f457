import { expect, test } from 'vitest'
import { compile } from '../../src/graph/compile.ts'
import { einsum } from '../../src/graph/functions/einsum.ts'
import {
  embedding,
  gather,
  indexSelect,
  oneHot,
  scatterAdd,
} from '../../src/graph/functions/index-ops.ts'
import { bmm, dot, outer } from '../../src/graph/functions/matmul.ts'
import { pad } from '../../src/graph/functions/pad.ts'
import {
  arange,
  cast,
  cat,
  chunk,
  cumsum,
  full,
  ones,
  repeat,
  roll,
  split,
  stack,
  tril,
  triu,
} from '../../src/graph/functions/shape.ts'
import { linear } from '../../src/graph/functions.ts'
import { Parameter } from '../../src/graph/parameter.ts'
import type { Tensor } from '../../src/graph/tensor.ts'
import text from '../golden/shape.json?raw'
import {
  allowedDistance,
  type GoldenCase,
  type GoldenTensor,
  largestDistance,
  typeOf,
  valuesOf,
} from '../support/golden.ts'
import { testRuntime } from '../support/run-op.ts'

// The functions that users call, values and gradients, against PyTorch's float64 results (tests/golden/shape.py): within 5
// times the distance of PyTorch's own float32 results. Programs are compiled as in training, with every rewrite.

type Given = Record<string, Tensor>

const product = ({ a, b }: Given) => a.matmul(b)

const functions: Record<string, (given: Given) => Tensor> = {
  'matmul [K] [K]': product,
  'matmul [K] [K, N]': product,
  'matmul [M, K] [K]': product,
  'matmul [K] [B, K, N]': product,
  'matmul [B, M, K] [K]': product,
  'matmul [B, M, K] [B, K, N]': product,
  'matmul [A, 1, M, K] [B, K, N]': product,
  'matmul [A, B, M, K] [K, N]': product,
  'matmul [M, K] [B, K, N]': product,
  'a by b transposed': ({ a, b }) => a.matmul(b.transpose(-1, -2)),
  'a transposed by b': ({ a, b }) => a.transpose(-1, -2).matmul(b),
  'both transposed': ({ a, b }) => a.transpose(0, 1).matmul(b.transpose(0, 1)),
  bmm: ({ a, b }) => bmm(a, b),
  outer: ({ a, b }) => outer(a, b),
  dot: ({ a, b }) => dot(a, b),
  'linear [A, B, K]': ({ x, w, b }) => linear(x, w, b),
  'linear [K]': ({ x, w, b }) => linear(x, w, b),
  heads({ x, w }) {
    const [batch, time, width] = x.shape
    const [q, k, v] = split(x.matmul(w), width, 2)
    const apart = (part: Tensor) => part.reshape([batch, time, 2, width / 2]).permute(0, 2, 1, 3)
    const scores = apart(q).matmul(apart(k).transpose(-2, -1))
    return scores.matmul(apart(v)).permute(0, 2, 1, 3).reshape([batch, time, width])
  },
  permute: ({ x }) => x.permute(2, 0, 1),
  transpose: ({ x }) => x.transpose(0, -1),
  expand: ({ x }) => x.expand(2, 3, -1, 4),
  'squeeze and unsqueeze': ({ x }) => x.squeeze(1).unsqueeze(-1),
  slice: ({ x }) => x.slice(1, 1, -1, 2),
  narrow: ({ x }) => x.narrow(1, 2, 3),
  select: ({ x }) => x.select(1, -2),
  flip: ({ x }) => x.flip(0, 2),
  'slice of a permute of a slice': ({ x }) =>
    x.slice(0, 1).permute(2, 0, 1).slice(2, 0, undefined, 2),
  cat: ({ a, b }) => cat([a, b, a], 1),
  stack: ({ a, b }) => stack([a, b], -1),
  split({ x }) {
    const [first, second, third] = split(x, [2, 3, 4], 1)
    return first.mul(third.slice(1, 0, 2)).add(second.slice(1, 1))
  },
  'chunk, one unused'({ x }) {
    const [first, , third] = chunk(x, 3, 0)
    return first.mul(third)
  },
  pad: ({ x }) => pad(x, [1, 2, 0, 3], 0.5),
  'pad by less than nothing': ({ x }) => pad(x, [-1, 2, 1, -1]),
  gather: ({ x, i }) => gather(x, 1, i),
  scatterAdd: ({ x, s, i }) => scatterAdd(x, 1, i, s),
  indexSelect: ({ x, i }) => indexSelect(x, 1, i),
  embedding: ({ w, i }) => embedding(i, w, { paddingIdx: 2 }),
  oneHot: ({ i }) => oneHot(i, 5),
  cumsum: ({ x }) => cumsum(x, 1),
  'cumsum, long': ({ x }) => cumsum(x, -1),
  tril: ({ x }) => tril(x, 1),
  triu: ({ x }) => triu(x, -1),
  repeat: ({ x }) => repeat(x, [2, 1, 3]),
  roll: ({ x }) => roll(x, [1, -2], [0, 1]),
  constants: ({ x }) => x.add(arange(3, 10, 2)).add(full([4], 0.1).mul(ones([4]))),
  'whole numbers': ({ x }) => cast(cast(x.mul(full([], 5)), 'i32'), 'f32'),
}

const functionOf = (name: string) =>
  name.startsWith('einsum ')
    ? (given: Given) => einsum(name.slice(7), ...Object.values(given))
    : functions[name]

const { cases } = JSON.parse(text) as { cases: GoldenCase[] }
const shares: number[] = []

/** Programs whose views matmuls read in place: once more without rewrites, where the views are copies. */
const folded = ['heads', 'both transposed', 'einsum bhts,bshd->bthd']
const runs = cases.flatMap((golden) =>
  folded.includes(golden.name)
    ? [
        { golden, isNaive: false },
        { golden, isNaive: true },
      ]
    : [{ golden, isNaive: false }],
)

for (const { golden, isNaive } of runs) {
  const { name, inputs, outputs } = golden
  test(isNaive ? `${name}, without rewrites` : name, async () => {
    const compute = functionOf(name)
    const { dy, ...operands } = inputs
    const given = Object.entries({ ...operands, ...(dy ? { dy } : {}) })
    const isFixed = (key: string, tensor: GoldenTensor) => key === 'dy' || tensor.dtype !== 'f32'
    const parameters = Object.fromEntries(
      given.flatMap(([key, tensor]) =>
        isFixed(key, tensor)
          ? []
          : [[key, new Parameter(tensor.shape, Float32Array.from(valuesOf(tensor)))]],
      ),
    )
    const fixed = given.filter(([key, tensor]) => isFixed(key, tensor))
    const program = await compile(
      (traced) => {
        const y = compute(
          Object.fromEntries(
            Object.keys(operands).map((key) => [key, parameters[key] ?? traced[key]]),
          ),
        )
        if (!dy) return { y }
        y.mul(traced.dy).sum().backward()
        return {
          y,
          ...Object.fromEntries(
            Object.entries(parameters).map(([key, parameter]) => [`d${key}`, parameter.grad!]),
          ),
        }
      },
      Object.fromEntries(fixed.map(([key, tensor]) => [key, typeOf(tensor)])),
      { runtime: await testRuntime(), isNaive },
    )
    const run = () =>
      program.run(
        Object.fromEntries(
          fixed.map(([key, tensor]) => [
            key,
            tensor.dtype === 'f32'
              ? Float32Array.from(valuesOf(tensor))
              : Int32Array.from(valuesOf(tensor)),
          ]),
        ),
      )
    const got = await run()
    const again = await run()
    program.destroy()
    expect(Object.keys(got).sort()).toEqual(Object.keys(outputs).sort())
    for (const [key, result] of Object.entries(outputs)) {
      const expected = valuesOf(result)
      const distance = largestDistance(got[key], expected)
      const allowed = allowedDistance(result.distance, expected)
      expect(distance, `${key}: PyTorch's float32 is ${result.distance} away`).toBeLessThanOrEqual(
        allowed,
      )
      if (distance > 0) shares.push(distance / allowed)
      expect(again[key], `${key}: the same bits again`).toEqual(got[key])
    }
  })
}

test('the largest distance, as a share of what is allowed', () => {
  console.log(Math.max(...shares).toFixed(2))
  expect(shares.length).toBeGreaterThan(0)
})
