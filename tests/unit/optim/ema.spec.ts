import { beforeEach, expect, test } from 'vitest'
import { load, save } from '../../../src/data/saved-tree.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Module } from '../../../src/nn/module.ts'
import { ExponentialMovingAverage } from '../../../src/optim/ema.ts'
import type { EmaState } from '../../../src/optim/ema-state.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { tensorType } from '../../../src/util/shape.ts'

const runtime = new ReferenceRuntime()

/** Two layers whose own keys are the same. */
class Two extends Module {
  readonly a = new Linear(2, 2)
  readonly norm = new BatchNorm1d(2, { affine: false })
  readonly b = new Linear(2, 2)
  forward(x: Tensor): Tensor {
    return this.b.forward(this.norm.forward(this.a.forward(x)))
  }
}

beforeEach(() => manualSeed(1))

/** A model whose groups were listed layer by layer, which gives parameters of two layers one name. */
async function trained({ useBuffers = false } = {}) {
  const model = new Two()
  const groups = [{ params: model.a.parameters() }, { params: model.b.parameters() }]
  const optimizer = new SGD(groups, { lr: 0.1 })
  const ema = new ExponentialMovingAverage(model, { decay: 0.5, useBuffers })
  const compiled = () =>
    compile(
      ({ x }) => {
        model.forward(x).square().mean().backward()
        optimizer.step()
        ema.update()
        return {}
      },
      { x: tensorType([4, 2]) },
      { runtime },
    )
  const batch = (i: number) => ({ x: Float32Array.from({ length: 8 }, (_, k) => Math.sin(k + i)) })
  return { model, optimizer, ema, compiled, batch }
}

const numbers = async (model: Module) =>
  Promise.all(
    [...model.parameters(), ...model.buffers()].map(async (one) => [...(await one.read())]),
  )

/** What averages by decay 0.5 are after these states of the tensors. */
const averaged = (states: readonly number[][][]): number[][] =>
  states.reduce((average, now) =>
    average.map((values, i) => values.map((value, k) => Math.fround((value + now[i][k]) / 2))),
  )

test('averages that are in the model already are not swapped out by a second call', async () => {
  const { ema, compiled, batch } = await trained()
  await (await compiled()).run(batch(0))
  const again = () => ema.averageParameters(async () => 1)
  await expect(ema.averageParameters(again)).rejects.toThrow(
    /^ema.averageParameters: the averages are in the model already/,
  )
  expect(await again()).toBe(1)
})

test('each parameter has its average, with any name', async () => {
  const { model, ema, compiled, batch } = await trained()
  const step = await compiled()
  const states: number[][][] = []
  for (let i = 0; i < 3; i++) {
    await step.run(batch(i))
    states.push(await numbers(model))
  }
  const expected = averaged(states)
  const { average, buffers } = await ema.stateDict()
  expect(buffers).toBeUndefined()
  expect(Object.keys(average)).toEqual(['0', '1', '2', '3'])
  expect(Object.values(average).map(({ data }) => [...data])).toEqual(expected.slice(0, 4))
  // The buffers stay the model's own.
  const swapped = await ema.averageParameters(() => numbers(model))
  expect(swapped).toEqual([...expected.slice(0, 4), ...states[2].slice(4)])
})

test('with useBuffers running statistics are averaged too; counts stay', async () => {
  const { model, ema, compiled, batch } = await trained({ useBuffers: true })
  const step = await compiled()
  const states: number[][][] = []
  for (let i = 0; i < 3; i++) {
    await step.run(batch(i))
    states.push(await numbers(model))
  }
  const expected = [...averaged(states).slice(0, 6), states[2][6]]
  expect(states[2][6]).toEqual([3])
  expect(expected[4]).not.toEqual(states[2][4])
  expect(await ema.averageParameters(() => numbers(model))).toEqual(expected)
  expect(await numbers(model)).toEqual(states[2])
  const only = () => new ExponentialMovingAverage(model.parameters(), { useBuffers: true })
  expect(only).toThrow(/useBuffers needs the model/)
})

test.each([{ when: 'before' }, { when: 'after' }])(
  'a run that loads averages over $when compiling continues as the one that saved them',
  async ({ when }) => {
    const first = await trained({ useBuffers: true })
    const step = await first.compiled()
    await step.run(first.batch(0))
    await step.run(first.batch(1))
    const file = save({
      model: (await first.model.stateDict()) as never,
      ema: (await first.ema.stateDict()) as never,
    })
    const saved = load(file) as { model: never; ema: never }
    const next = await trained({ useBuffers: true })
    next.model.loadStateDict(saved.model)
    if (when === 'before') next.ema.loadStateDict(saved.ema)
    const again = await next.compiled()
    if (when === 'after') next.ema.loadStateDict(saved.ema)
    expect(await next.ema.stateDict()).toEqual(await first.ema.stateDict())
    await step.run(first.batch(2))
    await again.run(next.batch(2))
    expect(await next.ema.stateDict()).toEqual(await first.ema.stateDict())
  },
)

test('files by names load where each names one parameter; all else is refused, and changes nothing', async () => {
  const { model, ema } = await trained()
  const entry = (value: number) => ({ shape: [2], data: new Float32Array(2).fill(value) })
  ema.loadStateDict({ num_updates: 3, average: { 'a.bias': entry(1) } })
  const before = await ema.stateDict()
  expect(Object.keys(before.average)).toEqual(['1'])
  const refused: [Partial<EmaState>, RegExp][] = [
    [{ average: { bias: entry(2) } }, /the name "bias" belongs to 2 parameters/],
    [{ average: { 'c.bias': entry(2) } }, /"c.bias" names none of the 4 tensors/],
    [{ average: { 4: entry(2) } }, /"4" names none of the 4 tensors/],
    [{ average: { 0: entry(2) } }, /average 0 \("a.weight"\) must be \[2, 2\], got \[2\]/],
    [{ average: {}, buffers: { 0: entry(2) } }, /"0" names none of the 0 tensors/],
    [{ num_updates: 'nine' as never, average: {} }, /expected num_updates and average/],
    [{ average: undefined as never }, /expected averages by index, got undefined/],
    [{ average: { 1: 5 as never } }, /average 1 must be { shape, data: Float32Array }, got 5/],
    [
      { average: { 1: { shape: [2], data: [1, 2] as never } } },
      /average 1 must be { shape, data: Float32Array }/,
    ],
    [
      { average: { 1: { shape: [2], data: new Float32Array(3) } } },
      /must be \[2\], got \[2\] of 3/,
    ],
  ]
  for (const [state, text] of refused) {
    const load = () => ema.loadStateDict({ num_updates: 9, ...state } as EmaState)
    expect(load).toThrow(text)
    expect(load).toThrow(expect.objectContaining({ code: 'data.malformed' }))
  }
  expect(await ema.stateDict()).toEqual(before)
  const [weight] = model.parameters()
  expect(() => new ExponentialMovingAverage([weight, weight])).toThrow(
    /averaged must have distinct parameters, got "a.weight" twice/,
  )
})

test('averages of a part of what updates together are refused', async () => {
  const layer = new Linear(2, 2)
  const optimizer = new SGD(layer.parameters(), { lr: 0.1 })
  const ema = new ExponentialMovingAverage([layer.weight])
  const compiling = compile(
    ({ x }) => {
      layer.forward(x).mean().backward()
      optimizer.step()
      ema.update()
      return {}
    },
    { x: tensorType([4, 2]) },
    { runtime },
  )
  await expect(compiling).rejects.toThrow(/must be averaged together, but "bias" is missing/)
})
