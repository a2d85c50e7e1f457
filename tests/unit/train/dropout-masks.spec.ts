import { beforeEach, expect, test } from 'vitest'
import { packCheckpoint, unpackCheckpoint } from '../../../src/ddp/checkpoint/checkpoint-file.ts'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { compileAccumulated } from '../../../src/graph/compile/compile-accumulated.ts'
import { dropout } from '../../../src/graph/functions/dropout.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { Dropout } from '../../../src/nn/dropout.ts'
import { getRngState, manualSeed, setRngState } from '../../../src/nn/init.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Module } from '../../../src/nn/module.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { ringOf } from '../../support/process-ring.ts'

const runtime = new ReferenceRuntime()
const width = 40

/** Masks of its rows, and of two positions a row that share a first dimension, as a model of sequences makes them. */
class Masks extends Module {
  readonly #rows = new Dropout(0.5)
  readonly #positions = new Dropout(0.5)
  /** DistributedDataParallel wants one. */
  readonly unused = new Parameter([1], Float32Array.of(1))
  forward(x: Tensor): Tensor {
    const positions = x.reshape([2 * x.shape[0], width / 2])
    return this.#rows.forward(x).add(this.#positions.forward(positions).mul(10).reshape(x.shape))
  }
}

const masksOf = async (model: Module, rows: number) => {
  const program = await compile(
    ({ x }) => ({ y: model.forward(x) }),
    { x: tensorType([rows, width]) },
    { runtime },
  )
  const x = new Float32Array(rows * width).fill(1)
  return async (scalars = {}) => [...(await program.run({ x }, scalars)).y]
}

beforeEach(() => manualSeed(3))

test('ranks draw what one rank draws for the same samples, unless a run says otherwise', async () => {
  const rows = 3
  const whole = await masksOf(new Masks(), 2 * rows)
  const expected = [await whole(), await whole()]
  const groups = await ringOf(2)
  for (const [rank, processGroup] of groups.entries()) {
    manualSeed(3)
    const model = new DistributedDataParallel(new Masks(), { processGroup })
    const draw = await masksOf(model, rows)
    const own = (step: number) =>
      expected[step].slice(rank * rows * width, (rank + 1) * rows * width)
    expect(await draw()).toEqual(own(0))
    expect(await draw()).toEqual(own(1))
    // Both layers take the sample that a run gives.
    expect(await draw({ sampleOffset: 0, randomStep: 0 })).toEqual(
      await (await masksOf(model.module, rows))({ sampleOffset: 0, randomStep: 0 }),
    )
  }
  const [first, second] = [expected[0].slice(0, rows * width), expected[0].slice(rows * width)]
  expect(first).not.toEqual(second)
})

test('no two runs repeat masks, of one program, of another, or compiled again', async () => {
  const model = new Masks()
  const first = await masksOf(model, 2)
  const second = await masksOf(model, 2)
  const drawn = [await first(), await second(), await first(), await (await masksOf(model, 2))()]
  expect(new Set(drawn.map(String)).size).toBe(drawn.length)
  expect(getRngState().nextStep).toBe(4)
  manualSeed(3)
  expect(await first()).toEqual(drawn[0])
  setRngState({ ...getRngState(), nextStep: 2 })
  expect(await second()).toEqual(drawn[2])
})

test('a shorter batch of a second program continues the count', async () => {
  const model = new Masks()
  const [long, short] = [await masksOf(model, 3), await masksOf(model, 2)]
  const drawn = await long()
  const next = await short()
  expect(next).not.toEqual(drawn.slice(0, 2 * width))
  expect(next).toEqual((await (await masksOf(model, 3))({ randomStep: 1 })).slice(0, 2 * width))
})

test('micro-steps of an accumulation draw different masks', async () => {
  const layer = new Linear(2, 2)
  const optimizer = new SGD(layer.parameters(), { lr: 0.1 })
  const program = await compileAccumulated(
    ({ x }) => {
      const masked = dropout(x, 0.5)
      optimizer.zeroGrad()
      layer
        .forward(masked.narrow(1, 0, 2))
        .sum()
        .backward()
      optimizer.step()
      return { masked }
    },
    { x: tensorType([2, width]) },
    { runtime, steps: 2 },
  )
  const x = new Float32Array(2 * width).fill(1)
  const drawn: string[] = []
  for (let run = 0; run < 4; run++) drawn.push(String((await program.run({ x })).masked))
  expect(new Set(drawn).size).toBe(4)
})

test('a checkpoint keeps the count; files without one begin at 0', async () => {
  const model = new Masks()
  const draw = await masksOf(model, 2)
  await draw()
  const file = await packCheckpoint({ model })
  const expected = await draw()
  manualSeed(8)
  const again = new Masks()
  await unpackCheckpoint(file, { model: again })
  expect(getRngState()).toMatchObject({ seed: 3, nextStep: 1 })
  expect(await (await masksOf(again, 2))()).toEqual(expected)

  const older = file.slice()
  const text = new TextDecoder('latin1').decode(older)
  const at = text.indexOf('nextStep')
  expect(at).toBeGreaterThan(0)
  older[at] = 'x'.charCodeAt(0)
  await unpackCheckpoint(older, { model: again })
  expect(getRngState().nextStep).toBe(0)
})
