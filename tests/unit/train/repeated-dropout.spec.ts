import { beforeEach, expect, test } from 'vitest'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { checkpoint } from '../../../src/graph/functions/checkpoint.ts'
import { dropout } from '../../../src/graph/functions/dropout.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { MultiheadAttention } from '../../../src/nn/attention.ts'
import { Dropout } from '../../../src/nn/dropout.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Module } from '../../../src/nn/module.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { ringOf } from '../../support/process-ring.ts'

// One instance called several times in a step: `self.dropout` after each layer.

const runtime = new ReferenceRuntime()
const width = 40
const drawing = async (fn: (x: Tensor) => Record<string, Tensor>, rows = 2) => {
  const program = await compile(({ x }) => fn(x), { x: tensorType([rows, width]) }, { runtime })
  const x = Float32Array.from({ length: rows * width }, (_, i) => 1 + Math.sin(i) / 4)
  return async (scalars = {}) => {
    const outputs = await program.run({ x }, scalars)
    return Object.fromEntries(Object.entries(outputs).map(([name, data]) => [name, [...data]]))
  }
}
const zeros = (values: number[]) => values.map((value) => value === 0).join()

beforeEach(() => manualSeed(3))

test('each call draws a new mask; the first draws that of a single call', async () => {
  const layers = [new Dropout(0.5), new Dropout(0.5)]
  const [d, e] = layers
  const run = await drawing((x) => ({
    first: d.forward(x),
    other: e.forward(x),
    functional: dropout(x, 0.5),
    second: d.forward(x),
    third: d.forward(x),
    otherAgain: e.forward(x),
  }))
  const once = await drawing((x) => ({
    first: d.forward(x),
    other: e.forward(x),
    functional: dropout(x, 0.5),
  }))
  const drawn = await run({ randomStep: 0 })
  expect(new Set(Object.values(drawn).map(zeros)).size).toBe(6)
  expect(drawn).toMatchObject(await once({ randomStep: 0 }))
  // The same function, traced again, and replayed.
  const again = await drawing((x) => ({ first: d.forward(x), second: d.forward(x) }))
  expect(drawn).toMatchObject(await again({ randomStep: 0 }))
  expect(await again({ randomStep: 0 })).toEqual(await again({ randomStep: 0 }))
  expect(await again({ randomStep: 1 })).not.toEqual(await again({ randomStep: 0 }))
})

test('an explicit layer keeps its masks; evaluation draws none', async () => {
  const d = new Dropout(0.5)
  const run = await drawing((x) => ({
    a: dropout(x, 0.5, { maskIndex: 7 }),
    b: dropout(x, 0.5, { maskIndex: 7 }),
  }))
  const { a, b } = await run()
  expect(a).toEqual(b)
  d.eval()
  const plain = await drawing((x) => ({ a: d.forward(x), x: x.mul(1) }))
  const { a: kept, x } = await plain()
  expect(kept).toEqual(x)
})

test('checkpoint computes again with the masks of the calls that it repeats', async () => {
  const d = new Dropout(0.2)
  const body = (x: Tensor) => d.forward(d.forward(x.exp()).square()).mul(x)
  const gradient = (isCheckpointed: boolean) =>
    drawing((x) => {
      const input = x.requiresGrad_()
      const before = d.forward(input)
      const y = isCheckpointed ? checkpoint(body, before) : body(before)
      d.forward(y).square().sum().backward()
      return { y, dx: input.grad! }
    })
  const [plain, recomputed] = [await gradient(false), await gradient(true)]
  const expected = await plain({ randomStep: 4 })
  expect(expected['dx'].filter((value) => value !== 0).length).toBeGreaterThan(20)
  expect(await recomputed({ randomStep: 4 })).toEqual(expected)
})

/** A module that calls its one dropout after each layer. */
class Repeated extends Module {
  readonly dropout = new Dropout(0.5)
  /** DistributedDataParallel wants one. */
  readonly unused = new Parameter([1], Float32Array.of(1))
  forward(x: Tensor): Tensor {
    return this.dropout.forward(x).add(this.dropout.forward(x).mul(10))
  }
}

test('ranks draw what one rank draws for the same samples', async () => {
  const whole = await drawing((x) => ({ y: new Repeated().forward(x.mul(0).add(1)) }), 4)
  const expected = (await whole({ randomStep: 0 }))['y']
  for (const [rank, processGroup] of (await ringOf(2)).entries()) {
    manualSeed(3)
    const model = new DistributedDataParallel(new Repeated(), { processGroup })
    const own = await drawing((x) => ({ y: model.forward(x.mul(0).add(1)) }), 2)
    const share = expected.slice(rank * 2 * width, (rank + 1) * 2 * width)
    expect((await own({ randomStep: 0 }))['y']).toEqual(share)
  }
})

test('attention that is called twice drops other probabilities', async () => {
  const attention = new MultiheadAttention(8, 2, { dropout: 0.5, batchFirst: true })
  const run = await drawing((x) => {
    const tokens = x.reshape([2, 5, 8])
    return { a: attention.forward(tokens), b: attention.forward(tokens) }
  })
  const { a, b } = await run()
  expect(a).not.toEqual(b)
})
