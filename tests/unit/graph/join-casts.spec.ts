import { expect, test } from 'vitest'
import { autocast } from '../../../src/entries/amp.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { batchNorm } from '../../../src/graph/functions/batch-norm.ts'
import { conv2d } from '../../../src/graph/functions/convolution.ts'
import { dropout } from '../../../src/graph/functions/dropout.ts'
import { layerNorm } from '../../../src/graph/functions/normalization.ts'
import { maxPool2d } from '../../../src/graph/functions/pooling.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { prepare } from '../../../src/graph/plan/prepare.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { dropout as dropoutOp } from '../../../src/kernels/dropout/dropout.ts'
import type { Op } from '../../../src/kernels/op.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { formulaUniform } from '../../support/formula-data.ts'

type Outputs = Record<string, Tensor>
type Traced = (inputs: Outputs) => Outputs

const { limits } = new ReferenceRuntime()

const types = { x: tensorType([6, 8]) }

/** Names of the nodes that have kernels. */
const kernels = (fn: Traced, types: Parameters<typeof prepare>[2]) =>
  prepare({ limits, variants: {} }, fn, types)
    .nodes.filter(({ op }) => !op.isView)
    .map(({ op }) => op.name)

/** How the dropout of a function stores its result. */
const storedBy = (fn: Traced) =>
  prepare({ limits, variants: {} }, fn, types).nodes.find(({ op }) => op === (dropoutOp as Op))!
    .outputs[0].type.dtype

/** What a function gives with and without rewrites. */
async function bothWays(
  make: () => Traced,
  types: Parameters<typeof prepare>[2],
  inputs: Record<string, Float32Array<ArrayBuffer>>,
) {
  const run = async (useNaiveKernels: boolean) => {
    manualSeed(3)
    const program = await compile(make(), types, { device: 'reference', useNaiveKernels })
    const outputs = await program.run(inputs)
    program.destroy()
    return Object.fromEntries(Object.entries(outputs).map(([name, data]) => [name, [...data]]))
  }
  return { rewritten: await run(false), naive: await run(true) }
}

const ones = (count: number) => new Float32Array(count).fill(1)
const inputs = { x: formulaUniform(1, 48, 3) }

test('a norm and a dropout that conversions alone read store float16 themselves, bit for bit the same', async () => {
  const make = (): Traced => {
    const weight = new Parameter([8], formulaUniform(2, 8, 1))
    return ({ x, a, b }) => {
      const normal = layerNorm(x, [8], weight)
      const kept = dropout(x, 0.5, { maskIndex: 1 })
      return {
        normal: normal.half().matmul(a.half()),
        again: normal.half().matmul(b.half()),
        kept: kept.half().matmul(b.half()),
      }
    }
  }
  const square = tensorType([8, 8])
  const all = { ...types, a: square, b: square }
  const [a, b] = [formulaUniform(6, 64, 1), formulaUniform(7, 64, 1)]
  const { rewritten, naive } = await bothWays(make, all, { ...inputs, a, b })
  expect(rewritten).toEqual(naive)
  // The conversions that are left are those of a and b.
  const left = kernels(make(), all).sort()
  expect(left).toEqual(['dropout', 'map', 'map', 'map', 'matmul', 'matmul', 'matmul', 'norm'])
})

test('what is read as float32 too, or kept, stays float32', () => {
  const drop = (x: Tensor) => dropout(x, 0.5, { maskIndex: 1 })
  const halfSum = (x: Tensor) => x.half().float().sum()
  expect(storedBy(({ x }) => ({ a: halfSum(drop(x)) }))).toBe('f16')
  expect(
    storedBy(({ x }) => {
      const kept = drop(x)
      return { a: halfSum(kept), b: kept.sum() }
    }),
  ).toBe('f32')
  expect(
    storedBy(({ x }) => {
      const kept = drop(x)
      return { a: halfSum(kept), kept }
    }),
  ).toBe('f32')
})

test('too large for float16 is infinite and NaN stays NaN, however a result is stored', async () => {
  const make = (): Traced => {
    const gain = new Parameter([8], new Float32Array(8).fill(1e6))
    const none = new Parameter([8], new Float32Array(8))
    return ({ x }) => ({
      dropped: dropout(x, 0.5, { maskIndex: 1 }).half().float(),
      normal: layerNorm(x, [8], gain).half().float(),
      channels: batchNorm(x.half(), gain, none, { training: true }).float(),
    })
  }
  const x = inputs.x.map((value, i) => (i >= 8 && i < 16 ? Number.NaN : value * 5e4))
  const { rewritten, naive } = await bothWays(make, types, { x })
  expect(rewritten).toEqual(naive)
  for (const values of Object.values(rewritten)) {
    expect(values.some(Number.isNaN)).toBe(true)
    if (values !== rewritten.channels) expect(values).toContain(Number.POSITIVE_INFINITY)
  }
})

test('under autocast convolution, normalization, relu and pooling follow each other in float16, a kernel each', async () => {
  const images = { x: tensorType([2, 3, 8, 8]) }
  const make = (): Traced => {
    const weights = [3, 4].map(
      (channels, n) => new Parameter([4, channels, 3, 3], formulaUniform(8 + n, 36 * channels, 1)),
    )
    const gain = new Parameter([4], ones(4))
    const bias = new Parameter([4], formulaUniform(4, 4, 1))
    return ({ x }) => {
      const y = autocast({}, () => {
        const first = conv2d(x, weights[0], undefined, { padding: 1 })
        const normal = batchNorm(first, gain, bias, { training: true }).relu()
        return conv2d(maxPool2d(normal, 2), weights[1])
      })
      expect(y.dtype).toBe('f16')
      return { y: y.float() }
    }
  }
  const { rewritten, naive } = await bothWays(make, images, { x: formulaUniform(3, 384, 1) })
  expect(rewritten).toEqual(naive)
  expect(kernels(make(), images)).toEqual([
    'map',
    'halfCopies',
    'conv2d',
    'batchNorm',
    'maxPool2d',
    'conv2d',
  ])
})

test('a dropout of float16 gives float16, its gradient too, by the same mask', async () => {
  const make =
    (isHalf: boolean): Traced =>
    ({ x }) => {
      const own = new Parameter([6, 8], inputs.x)
      const y = dropout(isHalf ? own.half() : own, 0.5, { maskIndex: 1 })
      expect(y.dtype).toBe(isHalf ? 'f16' : 'f32')
      y.float().mul(x).sum().backward()
      return { y: y.float(), dx: own.grad! }
    }
  const half = await bothWays(() => make(true), types, inputs)
  const full = await bothWays(() => make(false), types, inputs)
  expect(half.rewritten).toEqual(half.naive)
  for (const name of ['y', 'dx']) {
    const got = half.rewritten[name]
    const expected = full.rewritten[name]
    expect(got.map((value) => value === 0)).toEqual(expected.map((value) => value === 0))
    got.forEach((value, i) => {
      expect(Math.abs(value - expected[i])).toBeLessThanOrEqual(2 ** -10 * Math.abs(expected[i]))
    })
  }
  expect(dropoutOp.takesHalf).toBe(true)
})

test('copies of parameters share a dispatch while they are small and of different ones', () => {
  const square = (width: number) => new Parameter([width, width], new Float32Array(width ** 2))
  const copiesOf = (weights: readonly Parameter[], width: number) =>
    kernels(
      ({ x }) => {
        let y: Tensor = x.half()
        for (const weight of weights) y = y.matmul(weight.half())
        return { y: y.float() }
      },
      { x: tensorType([4, width]) },
    ).filter((name) => name !== 'matmul')
  const small = [0, 1, 2, 3, 4].map(() => square(8))
  expect(copiesOf(small, 8)).toEqual(['map', 'halfCopies', 'map'])
  expect(copiesOf([small[0], small[0]], 8)).toEqual(['map', 'map', 'map'])
  const large = [0, 1].map(() => square(256))
  expect(copiesOf(large, 256)).toEqual(['map', 'map', 'map'])
})
