import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { sampleCount, stepScalar } from '../../../src/graph/functions/linear.ts'
import { crossEntropy, mseLoss } from '../../../src/graph/functions/losses.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { copyInputs, type RunInputs } from '../../../src/graph/plan/step-program.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { tensorType } from '../../../src/util/shape.ts'

const program = await compile(
  ({ x }) => ({ y: x.mul(x) }),
  { x: tensorType([2]) },
  { runtime: new ReferenceRuntime() },
)

// What callers without types hand over.
const wrong: [name: string, x: unknown, got: string, remedy: string][] = [
  ['nothing', undefined, 'nothing', 'Pass what'],
  ['null', null, 'null', 'Pass what'],
  ['a plain array', [1, 2], 'a plain array of 2', 'Pass Float32Array.of(...)'],
  ['texts', ['a'], 'a plain array of 1', 'Pass what'],
  ['a number', 5, 'the number 5', 'Pass what'],
  ['a text', 'one', 'the string "one"', 'Pass what'],
  ['doubles', Float64Array.of(1, 2), 'Float64Array of 2', 'Pass what'],
  ['integers', Int32Array.of(1, 2), 'Int32Array of 2', 'Pass what'],
  [
    'too few',
    Float32Array.of(1),
    'Float32Array of 1',
    'These are 1 of 2 rows: give DataLoader dropLast',
  ],
  ['too many', new Float32Array(3), 'Float32Array of 3', 'Pass what'],
  ['a plain array under a shape', { shape: [2], data: [1, 2] }, 'a plain array of 2', 'Pass what'],
  ['no data', { shape: [2], data: undefined }, 'a tensor [2] of nothing', 'Pass what'],
  ['another object', { value: 1 }, 'an object with value', 'Pass what'],
]
for (const [name, x, got, remedy] of wrong)
  test(`an input that is ${name} is refused by what it is`, async () => {
    const inputs = { x } as RunInputs
    for (const given of [inputs, copyInputs(inputs, ['x'])])
      await expect(program.run(given)).rejects.toMatchObject({
        code: 'graph.misuse',
        message: expect.stringContaining(
          `run: input "x" must be a Float32Array of 2 elements, got ${got}. ${remedy}`,
        ),
      })
  })

test('a run asks for an Int32Array for integers', async () => {
  const runtime = new ReferenceRuntime()
  const step = await compile(
    ({ i }) => ({ y: i.add(1) }),
    { i: tensorType([2], 'i32') },
    { runtime },
  )
  await expect(step.run({ i: [1, 2] } as never)).rejects.toThrow(
    'must be an Int32Array of 2 elements',
  )
})

test('a run names dropLast and padBatch when a batch has whole rows, but too few', async () => {
  const step = await compile(
    ({ x }) => ({ y: x.sum() }),
    { x: tensorType([4, 3]) },
    { runtime: new ReferenceRuntime() },
  )
  await expect(step.run({ x: new Float32Array(6) })).rejects.toThrow(
    'These are 2 of 4 rows: give DataLoader dropLast: true, or run padBatch(batch, 4) with count: batchSizeOf(batch).',
  )
  for (const count of [0, 5, 15])
    await expect(step.run({ x: new Float32Array(count) })).rejects.toThrow('Pass what the program')
  await expect(step.run(undefined as never)).rejects.toThrow('run: inputs must be an object')
})

const counting = await compile(
  ({ x, y }) => ({
    loss: crossEntropy(x, y, { count: sampleCount() }),
    rows: mseLoss(x, x, { count: stepScalar('rows') }).mul(stepScalar('factor', 1)),
  }),
  { x: tensorType([2, 3]), y: tensorType([2], 'i32') },
  { runtime: new ReferenceRuntime() },
)
const twoRows = { x: new Float32Array(6), y: new Int32Array(2) }

test.each(['count', 'rows'])(
  '%s of a run is a whole number of the rows that there are',
  async (name) => {
    for (const value of [-1, 0.5, 3, 100, Number.NaN, Number.POSITIVE_INFINITY, '1', null]) {
      await expect(counting.run(twoRows, { [name]: value as number })).rejects.toMatchObject({
        code: 'graph.misuse',
        message: expect.stringMatching(
          `run: step scalar "${name}" must be a (number|whole number of samples from 0 to 2), got `,
        ),
      })
    }
    for (const value of [0, 1, 2]) await counting.run(twoRows, { [name]: value })
  },
)

test('a step scalar that is undefined is one that a run does not give', async () => {
  const whole = await counting.run(twoRows)
  expect(
    await counting.run(twoRows, { count: undefined as never, factor: undefined as never }),
  ).toEqual(whole)
  await expect(counting.run(twoRows, { factor: 'two' as never })).rejects.toThrow(
    'run: step scalar "factor" must be a number, got "two"',
  )
})

test('a loss takes a step scalar as its count, and no number', async () => {
  const refused = compile(
    ({ x, y }) => ({ loss: crossEntropy(x, y, { count: 2 as never }) }),
    { x: tensorType([2, 3]), y: tensorType([2], 'i32') },
    { runtime: new ReferenceRuntime() },
  )
  await expect(refused).rejects.toThrow('crossEntropy: count must be sampleCount() or stepScalar')
})

test('compile names tensorType when an input is given by its shape', async () => {
  const fn = ({ x }: { x: Tensor }) => ({ y: x.exp() })
  await expect(
    compile(fn as never, { x: [1, 4] } as never, { device: 'reference' }),
  ).rejects.toThrow(
    'compile: input "x" must be a tensor\'s type, got the shape [1, 4]. Write { x: tensorType([1, 4]) }.',
  )
  await expect(compile(fn as never, { x: 4 } as never, { device: 'reference' })).rejects.toThrow(
    'compile: input "x" must be a tensor\'s type, got 4. Write { x: tensorType([1, 4]) }.',
  )
})

test('elements are taken bare and under a shape, and copied', async () => {
  const x = Float32Array.of(2, 3)
  for (const inputs of [{ x }, { x: { shape: [2], data: x } }]) {
    const copy = copyInputs(inputs, ['x'])
    x[0] = 9
    expect(await program.run(copy)).toEqual({ y: Float32Array.of(4, 9) })
    x[0] = 2
    expect(await program.run(inputs)).toEqual({ y: Float32Array.of(4, 9) })
  }
})

test('a run refuses elements under another shape than compiled for', async () => {
  for (const shape of [[1, 2], [2, 1], [1]]) {
    const inputs = { x: { shape, data: new Float32Array(2) } }
    for (const given of [inputs, copyInputs(inputs, ['x'])])
      await expect(program.run(given)).rejects.toMatchObject({
        code: 'shape.mismatch',
        message: expect.stringContaining(`run: input "x" must be [2], got [${shape.join(', ')}]. `),
      })
  }
})

test('a step takes types, batches and outputs that are objects of classes', async () => {
  class Types {
    readonly x = tensorType([2])
  }
  class Batch {
    readonly x = Float32Array.of(2, 3)
  }
  class Outputs {
    constructor(readonly y: Tensor) {}
  }
  const fn = ({ x }: { x: Tensor }) => new Outputs(x.mul(x)) as never
  const runtime = new ReferenceRuntime()
  const same = await compile(fn, new Types() as never, { runtime })
  expect(await same.run(new Batch() as never)).toEqual({ y: Float32Array.of(4, 9) })
  await expect(same.run(new Map() as never)).rejects.toThrow('run: inputs must be an object with')
})

test('an input with the name of what every object inherits is missing where it is not given', async () => {
  const inputs = { constructor: tensorType([1]) }
  const runtime = new ReferenceRuntime()
  const odd = await compile(({ constructor: x }) => ({ y: (x as Tensor).neg() }), inputs, {
    runtime,
  })
  await expect((async () => odd.run({} as never))()).rejects.toThrow(
    /"constructor" must be .* got nothing/,
  )
  await expect(
    compile(({ x }) => ({ ['__proto__']: x }), { x: tensorType([1]) }, { runtime }),
  ).rejects.toThrow(/^compile: an output must be another name, got "__proto__"/)
  const named = JSON.parse('{"__proto__":{"shape":[1],"dtype":"f32"}}')
  await expect(compile(() => ({}), named, { device: 'reference' })).rejects.toThrow(
    /^compile: an input must be another name, got "__proto__"/,
  )
})
