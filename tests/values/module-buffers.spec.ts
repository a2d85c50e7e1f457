import { afterEach, expect, test } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import { crossEntropy, sampleCount } from '../../src/graph/functions/linear.ts'
import { BatchNorm1d } from '../../src/nn/batch-norm.ts'
import { SGD } from '../../src/optim/sgd.ts'
import { RandomStream } from '../../src/util/random.ts'
import { tensorType } from '../../src/util/shape.ts'
import { testRuntime } from '../support/run-op.ts'

afterEach(async () => (await testRuntime()).gpu.check())

const rows = 6
const features = 3
const x = tensorType([rows, features])
const draw = (stream: number) => {
  const source = new RandomStream(3, stream)
  return Float32Array.from({ length: rows * features }, () => source.between(-2, 3))
}

/** Mean of each feature, in f64. */
const means = (values: Float32Array) =>
  Array.from({ length: features }, (_, c) => {
    let sum = 0
    for (let n = 0; n < rows; n++) sum += values[n * features + c]
    return sum / rows
  })

function expectNear(got: ArrayLike<number>, expected: readonly number[]): void {
  expected.forEach((value, i) => {
    expect(got[i]).toBeCloseTo(value, 5)
  })
}

test('a program keeps a node that changes a buffer though nothing reads its output', async () => {
  const norm = new BatchNorm1d(features)
  const program = await compile(
    (given) => {
      norm.forward(given.x)
      return { sum: given.x.sum() }
    },
    { x },
    { runtime: await testRuntime() },
  )
  const first = draw(1)
  await program.run({ x: first })
  const second = draw(2)
  await program.run({ x: second })
  const state = await norm.stateDict()
  expect([...state.num_batches_tracked.data]).toEqual([2])
  const [a, b] = [means(first), means(second)]
  expectNear(
    state.running_mean.data,
    a.map((mean, c) => 0.9 * (0.1 * mean) + 0.1 * b[c]),
  )
  program.destroy()
})

test('a layer used twice counts its batches in the order of the code, fused or not', async () => {
  for (const useNaiveKernels of [false, true]) {
    const norm = new BatchNorm1d(features)
    const program = await compile(
      ({ a, b }) => {
        const first = norm.forward(a)
        const second = norm.forward(b)
        // The chain of the first use is traced last, which must not move it behind the second.
        return { second: second.relu(), first: first.relu() }
      },
      { a: x, b: x },
      { runtime: await testRuntime(), useNaiveKernels },
    )
    const inputs = { a: draw(1), b: draw(2) }
    await program.run(inputs)
    const { running_mean: running } = await norm.stateDict()
    const [a, b] = [means(inputs.a), means(inputs.b)]
    expectNear(
      running.data,
      a.map((mean, c) => 0.9 * (0.1 * mean) + 0.1 * b[c]),
    )
    program.destroy()
  }
})

test('rows that fill a batch up stay out of statistics, loss and gradients', async () => {
  const train = async (rowsOfProgram: number) => {
    const first = new BatchNorm1d(features)
    const second = new BatchNorm1d(features, { momentum: null })
    const parameters = [first, second].flatMap((norm) => norm.parameters())
    const optimizer = new SGD(parameters, { lr: 0.5 })
    const program = await compile(
      (given) => {
        // The second layer sends gradients through its statistics into all rows of the first.
        const logits = second.forward(first.forward(given.x).relu())
        const loss = crossEntropy(logits, given.labels, { count: sampleCount() })
        loss.backward()
        optimizer.step()
        return { loss }
      },
      { x: tensorType([rowsOfProgram, features]), labels: tensorType([rowsOfProgram], 'i32') },
      { runtime: await testRuntime() },
    )
    const losses: number[] = []
    for (const [step, count] of [4, 3, 1].entries()) {
      const x = draw(10 + step).slice(0, rowsOfProgram * features)
      x.fill(1e4, count * features)
      const labels = Int32Array.from({ length: rowsOfProgram }, (_, n) => n % features)
      losses.push((await program.run({ x, labels }, { count })).loss[0])
    }
    program.destroy()
    const states = [await first.stateDict(), await second.stateDict()]
    return [losses, ...states.flatMap((state) => Object.values(state).map(({ data }) => [...data]))]
  }
  const [filled, short] = [await train(rows), await train(4)]
  expect(filled).toEqual(short)
  // The last batch, of one sample, has no variance and is not counted.
  expect([filled[5], filled[10]]).toEqual([[2], [2]])
})

test('evaluation reads the statistics that training left on the device and changes nothing', async () => {
  const norm = new BatchNorm1d(features, { affine: false })
  const runtime = await testRuntime()
  const training = await compile((given) => ({ y: norm.forward(given.x) }), { x }, { runtime })
  norm.eval()
  const evaluation = await compile((given) => ({ y: norm.forward(given.x) }), { x }, { runtime })
  const data = draw(5)
  const zero = await evaluation.run({ x: data })
  // Running statistics begin at 0 and 1.
  expectNear(
    zero.y,
    [...data].map((value) => value / Math.sqrt(1 + 1e-5)),
  )
  await training.run({ x: data })
  const before = await norm.stateDict()
  const { y } = await evaluation.run({ x: data })
  const { running_mean: mean, running_var: variance } = before
  expectNear(
    y,
    [...data].map(
      (value, i) =>
        (value - mean.data[i % features]) / Math.sqrt(variance.data[i % features] + 1e-5),
    ),
  )
  expect(await norm.stateDict()).toEqual(before)
  training.destroy()
  evaluation.destroy()
})

test('without running statistics evaluation normalizes by the batch', async () => {
  const norm = new BatchNorm1d(features, { trackRunningStats: false }).eval()
  expect(Object.keys(await norm.stateDict())).toEqual(['weight', 'bias'])
  const program = await compile(
    (given) => ({ y: norm.forward(given.x) }),
    { x },
    { runtime: await testRuntime() },
  )
  const { y } = await program.run({ x: draw(7) })
  expectNear(means(y as Float32Array), [0, 0, 0])
  program.destroy()
})

test('a run takes elements in memory that may grow', async () => {
  const memory = new (ArrayBuffer as new (size: number, options: object) => ArrayBuffer)(16, {
    maxByteLength: 32,
  })
  const x = new Float32Array(memory, 4, 2)
  x.set([1, 2])
  const program = await compile(
    ({ x }) => ({ y: x.mul(2) }),
    { x: tensorType([2]) },
    { runtime: await testRuntime() },
  )
  expect((await program.run({ x })).y).toEqual(Float32Array.of(2, 4))
  program.destroy()
})
