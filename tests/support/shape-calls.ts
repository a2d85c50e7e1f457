import { einsum } from '../../src/graph/functions/einsum.ts'
import {
  embedding,
  gather,
  indexSelect,
  oneHot,
  scatterAdd,
} from '../../src/graph/functions/index-ops.ts'
import { linear } from '../../src/graph/functions/linear.ts'
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
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import text from '../golden/shape.json?raw'
import type { GoldenCase } from './golden.ts'
import { type GoldenProgram, goldenProgram, type Named } from './golden-program.ts'

/** What the cases of tests/golden/shape.py compute, by name. */

const product = ({ a, b }: Named) => a.matmul(b)

const functions: Record<string, (given: Named) => Tensor> = {
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
    ? (given: Named) => einsum(name.slice(7), ...Object.values(given))
    : functions[name]

export const { cases: shapeCases } = JSON.parse(text) as { cases: GoldenCase[] }

export const programOfShape = (golden: GoldenCase): GoldenProgram =>
  goldenProgram(golden, (operands) => ({ y: functionOf(golden.name)(operands) }))
