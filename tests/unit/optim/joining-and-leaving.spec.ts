import { expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { runTimesOf } from '../../../src/graph/plan/step-program.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import { Adam } from '../../../src/optim/adam.ts'
import { clipGradNorm } from '../../../src/optim/clip.ts'
import { ExponentialMovingAverage } from '../../../src/optim/ema.ts'
import { SGD } from '../../../src/optim/sgd.ts'

// Parameters that join a run late, leave it, and come back; and runs that are refused.

const runtime = new ReferenceRuntime()
let made = 0
function parameter(value: number): Parameter {
  const one = new Parameter([1], Float32Array.of(value))
  one.name = `p${made++}`
  return one
}
const read = async (one: Parameter) => (await one.read())[0]

/** A step that updates the parameters behind its loss, their sum. */
const stepOf = (optimizer: Adam | SGD, parameters: readonly Parameter[], more?: () => void) =>
  compile(
    () => {
      const loss = parameters.slice(1).reduce((sum, one) => sum.add(one), parameters[0].mul(1))
      optimizer.zeroGrad()
      loss.sum().backward()
      optimizer.step()
      more?.()
      return { loss: loss.sum() }
    },
    {},
    { runtime },
  )

test('a parameter that joins late has an average that begins with it', async () => {
  const [early, late] = [parameter(1), parameter(100)]
  const optimizer = new SGD([early, late], { lr: 0 })
  const ema = new ExponentialMovingAverage([early, late], { decay: 0.9 })
  const first = await stepOf(optimizer, [early], () => ema.update())
  await first.run({})
  await first.run({})
  const both = await stepOf(optimizer, [early, late], () => ema.update())
  await both.run({})
  const { average, num_updates } = await ema.stateDict()
  expect(num_updates).toBe(3)
  const values = await ema.averageParameters(async () => [await read(early), await read(late)])
  expect(values).toEqual([1, 100])
  expect(Object.values(average).map(({ data }) => data[0])).toEqual([1, 100])
})

test('parameters that joined apart may be trained apart, all together, and apart again', async () => {
  const [head, body] = [parameter(0), parameter(0)]
  const optimizer = new Adam([head, body], { lr: 0.1 })
  const headOnly = await stepOf(optimizer, [head])
  await headOnly.run({})
  const all = await stepOf(optimizer, [head, body])
  await all.run({})
  const headAgain = await stepOf(optimizer, [head])
  await headAgain.run({})
  expect(await read(head)).toBeCloseTo(-0.3, 6)
  expect(await read(body)).toBeCloseTo(-0.1, 6)
  const { state } = await optimizer.stateDict()
  expect([state[0]['step'], state[1]['step']]).toEqual([3, 1])
})

test('one of several parameters that joined together cannot be left out; a new optimizer with the state can', async () => {
  const [a, b] = [parameter(0), parameter(0)]
  const optimizer = new Adam([a, b], { lr: 0.1 })
  await (await stepOf(optimizer, [a, b])).run({})
  await expect(stepOf(optimizer, [a])).rejects.toThrow(/create a new optimizer and load the state/)
  const next = new Adam([a, b], { lr: 0.1 })
  next.loadStateDict(await optimizer.stateDict())
  await (await stepOf(next, [a])).run({})
  expect(await read(a)).toBeCloseTo(-0.2, 6)
  expect(await read(b)).toBeCloseTo(-0.1, 6)
})

test('a traced function that throws leaves nothing behind in the optimizer', async () => {
  const [a, b] = [parameter(0), parameter(0)]
  const optimizer = new Adam([a, b], { lr: 0.1 })
  const failing = stepOf(optimizer, [a, b], () => {
    throw new Error('no')
  })
  await expect(failing).rejects.toThrow('no')
  expect(optimizer.buckets).toEqual([])
  await (await stepOf(optimizer, [a])).run({})
  expect(await read(a)).toBeCloseTo(-0.1, 6)
})

test('a run that is refused counts nowhere', async () => {
  const weight = parameter(0)
  const optimizer = new Adam([weight], { lr: 0.1 })
  const ema = new ExponentialMovingAverage([weight])
  const program = await stepOf(optimizer, [weight], () => ema.update())
  await program.run({})
  ema.swap()
  await expect((async () => program.run({}))()).rejects.toThrow(/Call ema.swap\(\) again/)
  ema.swap()
  await program.run({})
  expect((await optimizer.stateDict()).state[0]['step']).toBe(2)
  expect(optimizer.stepCount).toBe(2)
})

test('outputs that a run was checked by keep its times', async () => {
  const weight = parameter(1)
  const optimizer = new SGD([weight], { lr: 0.1 })
  const program = await compile(
    () => {
      const loss = weight.square().sum()
      loss.backward()
      clipGradNorm([weight], 1, { errorIfNonfinite: true })
      optimizer.step()
      return { loss }
    },
    {},
    { runtime },
  )
  const outputs = await program.run({})
  expect(Object.keys(outputs)).toEqual(['loss'])
  expect(runTimesOf(outputs).endedMs).toBeGreaterThanOrEqual(runTimesOf(outputs).beganMs)
})
