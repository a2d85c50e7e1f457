import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { compileAccumulated } from '../../../src/graph/compile/compile-accumulated.ts'
import { crossEntropy, sampleCount } from '../../../src/graph/functions/linear.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { ExponentialMovingAverage } from '../../../src/optim/ema.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { tensorType } from '../../../src/util/shape.ts'

const runtime = new ReferenceRuntime()
const features = 3
const classes = 4

const types = (rows: number) => ({
  x: tensorType([rows, features]),
  y: tensorType([rows], 'i32'),
})

/** Rows [from, from + count) of an endless data set, filled up with others to `rows`. */
const rowsFrom = (from: number, count: number, rows = count) => ({
  x: Float32Array.from({ length: rows * features }, (_, i) =>
    i < count * features ? Math.sin(from * features + i) : 9,
  ),
  y: Int32Array.from({ length: rows }, (_, i) => (from + i) % classes),
})

function trainingStep() {
  const initial = Float32Array.from({ length: features * classes }, (_, i) => Math.cos(i))
  const weight = new Parameter([features, classes], initial)
  const optimizer = new SGD([weight], { lr: 0.5 })
  const step = ({ x, y }: Record<string, Tensor>) => {
    const loss = crossEntropy(x.matmul(weight), y, { count: sampleCount() })
    optimizer.zeroGrad()
    loss.backward()
    optimizer.step()
    return { loss }
  }
  return { weight, step }
}

/** The weight after one update on rows [0, count). */
async function afterOneBatch(count: number) {
  const { weight, step } = trainingStep()
  const program = await compile(step, types(count), { runtime })
  await program.run(rowsFrom(0, count))
  return [...(await weight.read())]
}

function expectClose(found: Iterable<number>, wanted: readonly number[]) {
  const all = [...found]
  expect(all).toHaveLength(wanted.length)
  all.forEach((value, i) => {
    expect(value, `[${i}]`).toBeCloseTo(wanted[i], 6)
  })
}

test('a run with wrong inputs or scalars counts as none, and those after it are as if it had not been', async () => {
  const { weight, step } = trainingStep()
  const program = await compileAccumulated(step, types(2), { steps: 2, runtime })
  const wrongInputs = program.run({ x: new Float32Array(5), y: new Int32Array(2) })
  const first = program.run(rowsFrom(0, 2))
  await expect(wrongInputs).rejects.toThrow(/input "x" must be a Float32Array of 6 elements/)
  await first
  expect(program.isLast).toBe(true)
  await expect(program.run({})).rejects.toThrow(/input "x"/)
  await expect(program.run(rowsFrom(2, 2), { size: 1 })).rejects.toThrow(/no step scalar "size"/)
  expect(program.isLast).toBe(true)
  await program.run(rowsFrom(2, 2))
  expect(program.isLast).toBe(false)
  expectClose(await weight.read(), await afterOneBatch(4))
})

test('a run with averaged parameters in the model is refused, adding or updating, and counts as none', async () => {
  const { weight, step } = trainingStep()
  const ema = new ExponentialMovingAverage([weight], { decay: 0.5 })
  const withAverage = (inputs: Record<string, Tensor>) => {
    const outputs = step(inputs)
    ema.update()
    return outputs
  }
  const program = await compileAccumulated(withAverage, types(2), { steps: 2, runtime })
  await program.run(rowsFrom(0, 2))
  await program.run(rowsFrom(2, 2))
  const refused = /Call ema.swap\(\) again/
  for (const isLast of [false, true]) {
    ema.swap()
    await expect(program.run(rowsFrom(4, 2))).rejects.toThrow(refused)
    ema.swap()
    expect(program.isLast, 'the same part is next').toBe(isLast)
    await program.run(rowsFrom(4 + 2 * Number(isLast), 2))
    expect(program.isLast).toBe(!isLast)
  }

  const plain = trainingStep()
  const undisturbed = await compileAccumulated(plain.step, types(2), { steps: 2, runtime })
  for (const from of [0, 2, 4, 6]) await undisturbed.run(rowsFrom(from, 2))
  expect([...(await weight.read())]).toEqual([...(await plain.weight.read())])
})

test('runs of unequal counts are one big batch with each run weighed by its samples', async () => {
  const counts = [4, 1, 2]
  const total = 7
  const { weight, step } = trainingStep()
  const steps = counts.length
  const program = await compileAccumulated(step, types(4), { steps, runtime })
  let from = 0
  for (const count of counts) {
    const gradientWeight = (count * steps) / total
    await program.run(rowsFrom(from, count, 4), { count, gradientWeight })
    from += count
  }
  expectClose(await weight.read(), await afterOneBatch(total))
})

test('runs that give their counts alone weigh by them; one that gives a weight beside them is refused', async () => {
  const { weight, step } = trainingStep()
  const program = await compileAccumulated(step, types(4), { steps: 3, runtime })
  let from = 0
  for (const count of [4, 1, 2]) {
    await program.run(rowsFrom(from, count, 4), { count })
    from += count
  }
  expectClose(await weight.read(), await afterOneBatch(7))
  await program.run(rowsFrom(0, 4), { count: 4 })
  await program.run(rowsFrom(0, 4), { count: 4, gradientWeight: 1 })
  await expect(program.run(rowsFrom(0, 4))).rejects.toThrow(
    /gradientWeight: all ranks and micro-steps .*, or none, but 1 of 3 runs passed it/,
  )
})

test.each([Number.NaN, Number.POSITIVE_INFINITY, -1])(
  'a run of one rank is refused when its weight is %s',
  async (gradientWeight) => {
    const { weight, step } = trainingStep()
    const before = [...(await weight.read())]
    const whole = await compile(step, types(4), { runtime })
    const parts = await compileAccumulated(step, types(4), { steps: 2, runtime })
    for (const { run } of [whole, parts])
      await expect(run(rowsFrom(0, 4), { gradientWeight })).rejects.toThrow(
        `run: step scalar "gradientWeight" must be a finite number of at least 0, got ${gradientWeight}. Pass the share`,
      )
    await expect(
      compileAccumulated(step, types(4), { steps: 2, weight: gradientWeight, runtime }),
    ).rejects.toThrow('compileAccumulated: weight must be a finite number of at least 0')
    expect([...(await weight.read())]).toEqual(before)
  },
)

test('an update before all runs is weighed exactly in the same way', async () => {
  const { weight, step } = trainingStep()
  const steps = 4
  const program = await compileAccumulated(step, types(3), { steps, runtime })
  await program.run(rowsFrom(0, 3), { count: 3, gradientWeight: (3 * steps) / 5 })
  const rest = { count: 2, gradientWeight: (2 * steps) / 5 }
  await program.run(rowsFrom(3, 2, 3), rest, { last: true })
  expectClose(await weight.read(), await afterOneBatch(5))
})

test('unweighted runs count 1 / steps each, also when an update comes early', async () => {
  const early = trainingStep()
  const program = await compileAccumulated(early.step, types(4), { steps: 4, runtime })
  const before = [...(await early.weight.read())]
  await program.run(rowsFrom(0, 4), {}, { last: true })
  const whole = await afterOneBatch(4)
  expectClose(
    await early.weight.read(),
    before.map((value, i) => value + (whole[i] - value) / 4),
  )
})
