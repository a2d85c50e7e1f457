import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { where } from '../../../src/graph/functions/elementwise.ts'
import {
  embedding,
  gather,
  indexSelect,
  oneHot,
  scatterAdd,
} from '../../../src/graph/functions/index-ops.ts'
import { sampleCount } from '../../../src/graph/functions/linear.ts'
import { crossEntropy, nllLoss } from '../../../src/graph/functions/losses.ts'
import { pad } from '../../../src/graph/functions/pad.ts'
import { cast, cat, chunk, zeros } from '../../../src/graph/functions/shape.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { pipeline } from '../../../src/parallel/pipeline/pipe.ts'
import { ScheduleGPipe } from '../../../src/parallel/pipeline/schedule.ts'
import { tensorType } from '../../../src/util/shape.ts'

const logits = Float32Array.from({ length: 12 }, (_, i) => Math.sin(i))
const logitsType = tensorType([4, 3])
const labelsType = tensorType([4], 'i32')

const lossOf = (loss: (x: Tensor, y: Tensor) => Tensor, y = labelsType, x = logitsType) =>
  compile(({ x, y }) => ({ loss: loss(x, y) }), { x, y }, { device: 'reference' })

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
  await expect(run).rejects.toThrow('class 5 of sample 3 in input "y"')
})

test.each<[string, (y: Tensor) => Tensor, string]>([
  ['narrowed', (y) => y.narrow(0, 2, 3), 'class 3 of sample 4'],
  ['sliced backwards', (y) => y.flip(0).slice(0, 1, 6, 2), 'class 3 of sample 4'],
  ['split', (y) => chunk(y, 2)[1], 'class 3 of sample 4'],
  ['split and joined', (y) => cat([...chunk(y, 3)].reverse()), 'class 3 of sample 4'],
  ['padded', (y) => pad(y, [1, 1], 'constant', -100), 'class 3 of sample 4'],
  ['of two dimensions', (y) => y.reshape([3, 2]).transpose(0, 1).flatten(), 'class 3 of sample 4'],
  ['shifted', (y) => y.add(1), 'class 3 computed from 2 of sample 2'],
  ['masked', (y) => where(y.eq(3), 4, y), 'class 4 computed from 3 of sample 4'],
  ['cast', (y) => cast(y, 'i32'), 'class 3 of sample 4'],
])('a class number out of range is refused in labels that are %s', async (how, made, words) => {
  const type = tensorType([6], how === 'cast' ? 'f32' : 'i32')
  const program = await compile(
    ({ y }) => {
      const labels = made(y)
      return { loss: crossEntropy(zeros([labels.shape[0], 3]), labels) }
    },
    { y: type },
    { device: 'reference' },
  )
  const labels = [0, 1, 2, 1, 3, 0]
  const y = how === 'cast' ? Float32Array.from(labels) : Int32Array.from(labels)
  await expect(program.run({ y })).rejects.toThrow(`crossEntropy: ${words} in input "y" is out of`)
  // Those that are good, and those in a part that nothing reads.
  const good = y.map((label) => Math.min(label, 1))
  if (how === 'narrowed') good[0] = 7
  await expect(program.run({ y: good })).resolves.toBeDefined()
})

test('a class number out of range in a later micro-batch ends the step before it changes weights', async () => {
  const model = new Sequential(new Linear(2, 3), new Linear(3, 3))
  const pipe = await pipeline(model, { splitSpec: ['1'], devices: ['reference'] })
  const schedule = new ScheduleGPipe(pipe, { microBatches: 2, lossFn: crossEntropy })
  const optimizer = new SGD(model.parameters(), { lr: 1 })
  const step = await compile(
    ({ x, y }) => {
      const { loss } = schedule.step(x, y)
      optimizer.step()
      return { loss }
    },
    { x: tensorType([4, 2]), y: tensorType([4], 'i32') },
    { device: 'reference' },
  )
  const before = await model.stateDict()
  const run = step.run({ x: new Float32Array(8), y: Int32Array.of(0, 1, 2, 3) })
  await expect(run).rejects.toThrow('crossEntropy: class 3 of sample 3 in input "y"')
  expect(await model.stateDict()).toEqual(before)
})

test.each<[string, (x: Tensor, i: Tensor) => Tensor, string]>([
  ['indexSelect', (x, i) => indexSelect(x, 0, i), 'index 4 of sample 1'],
  ['gather', (x, i) => gather(x, 0, i.reshape([2, 1])), 'index 4 of sample 1'],
  [
    'scatterAdd',
    (x, i) => scatterAdd(x, 0, i.reshape([2, 1]), zeros([2, 1])),
    'index 4 of sample 1',
  ],
  ['oneHot', (_, i) => oneHot(i, 4), 'class 4 of sample 1'],
])('%s refuses an index that is out of range', async (name, call, words) => {
  const program = await compile(
    ({ x, i }) => ({ y: call(x, i) }),
    { x: tensorType([4, 3]), i: tensorType([2], 'i32') },
    { device: 'reference' },
  )
  const run = (i: Int32Array<ArrayBuffer>) => program.run({ x: logits, i })
  await expect(run(Int32Array.of(0, 3))).resolves.toBeDefined()
  await expect(run(Int32Array.of(0, 4))).rejects.toThrow(`${name}: ${words} in input "i" is out`)
  await expect(run(Int32Array.of(-1, 0))).rejects.toThrow(' -1 of sample 0')
})

test('embedding rejects a run when an index has no row', async () => {
  const program = await compile(
    ({ index, table }) => ({ rows: embedding(index, table) }),
    { index: tensorType([2, 2], 'i32'), table: tensorType([5, 2]) },
    { device: 'reference' },
  )
  const table = new Float32Array(10)
  await expect(program.run({ index: Int32Array.of(0, 4, 3, 2), table })).resolves.toBeDefined()
  await expect(program.run({ index: Int32Array.of(0, 4, 3, 5), table })).rejects.toThrow(
    'embedding: row 5 of sample 1 in input "index" is out of range: the table has 5 rows, 0 to 4. Number rows from 0, or make the table larger.',
  )
})

test("JavaScript's operators and loops throw on a tensor, and a text shows its shape", async () => {
  const wrong: readonly ((x: Tensor) => unknown)[] = [
    (x) => [...(x as unknown as Tensor[])],
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
      { device: 'reference' },
    )
    await expect(compiling).rejects.toMatchObject({
      code: 'graph.misuse',
      message: expect.stringMatching(
        /Write x.mul\(2\) for x \* 2|Take its rows .* x.select\(0, i\)/,
      ),
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
    { device: 'reference' },
  )
  expect(text).toBe('got a tensor [2, 3] of f32')
})
