import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { embedding } from '../../../src/graph/functions/index-ops.ts'
import { sampleCount } from '../../../src/graph/functions/linear.ts'
import { crossEntropy, nllLoss } from '../../../src/graph/functions/losses.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { tensorType } from '../../../src/util/shape.ts'

const logits = Float32Array.from({ length: 12 }, (_, i) => Math.sin(i))
const logitsType = tensorType([4, 3])
const labelsType = tensorType([4], 'i32')

const lossOf = (loss: (x: Tensor, y: Tensor) => Tensor, y = labelsType, x = logitsType) =>
  compile(({ x, y }) => ({ loss: loss(x, y) }), { x, y }, { device: 'cpu' })

test.each([
  ['crossEntropy', crossEntropy],
  ['nllLoss', nllLoss],
] as const)('%s rejects a run when a class number is out of range', async (name, loss) => {
  const program = await lossOf((x, y) => loss(x, y))
  const good = await program.run({ x: logits, y: Int32Array.of(0, 1, 2, -100) })
  for (const wrong of [3, -1]) {
    const inputs = { x: logits, y: Int32Array.of(0, 2, wrong, 1) }
    const error = {
      code: 'graph.misuse',
      message: `${name}: class ${wrong} of sample 2 in input "y" is out of range: there are 3 classes, 0 to 2. Number classes from 0, or give the last layer an output for each class.`,
    }
    await expect(program.run(inputs)).rejects.toMatchObject(error)
    expect(() => program.check(inputs, {})).toThrow(expect.objectContaining(error))
  }
  // The program is as it was.
  expect(await program.run({ x: logits, y: Int32Array.of(0, 1, 2, -100) })).toEqual(good)
})

test('an ignored class and samples that do not count may have any number', async () => {
  const program = await lossOf((x, y) =>
    crossEntropy(x, y, { ignoreIndex: 9, count: sampleCount() }),
  )
  const inputs = { x: logits, y: Int32Array.of(0, 9, 7, 7) }
  await expect(program.run(inputs, { count: 2 })).resolves.toBeDefined()
  expect(() => program.check(inputs, { count: 2 })).not.toThrow()
  await expect(program.run(inputs, { count: 3 })).rejects.toThrow('class 7 of sample 2')
  expect(() => program.check(inputs, { count: 3 })).toThrow('class 7 of sample 2')
  await expect(program.run(inputs)).rejects.toThrow('class 7 of sample 2')
})

test('an error names the sample where each has several class numbers, also of another shape', async () => {
  const program = await lossOf(
    (x, y) => crossEntropy(x, y.reshape([2, 2])),
    labelsType,
    tensorType([2, 3, 2]),
  )
  const run = program.run({ x: logits, y: Int32Array.of(0, 1, 2, 5) })
  await expect(run).rejects.toThrow('class 5 of sample 1 in input "y"')
})

test('embedding rejects a run when an index has no row', async () => {
  const program = await compile(
    ({ index, table }) => ({ rows: embedding(index, table) }),
    { index: tensorType([2, 2], 'i32'), table: tensorType([5, 2]) },
    { device: 'cpu' },
  )
  const table = new Float32Array(10)
  await expect(program.run({ index: Int32Array.of(0, 4, 3, 2), table })).resolves.toBeDefined()
  await expect(program.run({ index: Int32Array.of(0, 4, 3, 5), table })).rejects.toThrow(
    'embedding: row 5 of sample 1 in input "index" is out of range: the table has 5 rows, 0 to 4. Number rows from 0, or make the table larger.',
  )
})

test("JavaScript's operators throw on a tensor, and a text shows its shape", async () => {
  const wrong: readonly ((x: Tensor) => unknown)[] = [
    (x) => (x as unknown as number) * 2,
    (x) => (x as unknown as number) > 2,
    (x) => (x as unknown as number) + 1,
    (x) => -(x as unknown as number),
    (x) => Math.exp(x as unknown as number),
    // biome-ignore lint/suspicious/noDoubleEquals: this operator is under test
    (x) => (x as unknown) == 2,
  ]
  for (const use of wrong) {
    const compiling = compile(
      ({ x }) => {
        use(x)
        return { x: x.relu() }
      },
      { x: tensorType([2, 3]) },
      { device: 'cpu' },
    )
    await expect(compiling).rejects.toMatchObject({
      code: 'graph.misuse',
      message: expect.stringContaining('Write x.mul(2) for x * 2'),
    })
  }
  let text = ''
  const types = { x: tensorType([2, 3]) }
  await compile(
    ({ x }) => {
      text = `got ${x}`
      return { x: x.relu() }
    },
    types,
    { device: 'cpu' },
  )
  expect(text).toBe('got a tensor [2, 3] of f32')
})
