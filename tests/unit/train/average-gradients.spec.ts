import { expect, test } from 'vitest'
import * as dist from '../../../src/distributed/call/functions.ts'
import { allGatherObject } from '../../../src/distributed/call/objects.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { meshOf } from '../../support/process-ring.ts'

// `average_gradients` of PyTorch's "Writing Distributed Applications".

const runtime = new ReferenceRuntime()
const inputs = { x: tensorType([4, 3]) }
const dataOf = (rank: number) =>
  Float32Array.from({ length: 12 }, (_, i) => Math.sin(i + 12 * rank))

test('an all-reduce of a gradient inside of the step, as in the tutorial, is refused with what to do', async () => {
  const [group] = await meshOf(1)
  const model = new Linear(3, 2)
  const step =
    (exchange: (gradient: Tensor) => void) =>
    ({ x }: Record<string, Tensor>) => {
      const loss = model.forward(x).sum()
      loss.backward()
      for (const parameter of model.parameters()) exchange(parameter.grad!)
      return { loss }
    }
  const refused = (where: string) => ({
    code: 'graph.misuse',
    message: `${where}: called inside a compiled function, where tensors and gradients have no contents yet. Wrap the model in DistributedDataParallel, which averages gradients over the ranks, or return the tensor and exchange what a run returns.`,
  })
  const calls: Record<string, (gradient: Tensor) => void> = {
    allReduce: (gradient) => dist.allReduce(gradient as never, { group }),
    broadcast: (gradient) => dist.broadcast(gradient as never, 0, { group }),
  }
  for (const [where, call] of Object.entries(calls))
    await expect(compile(step(call), inputs, { runtime })).rejects.toMatchObject(refused(where))

  let received: Promise<unknown> | undefined
  let gradient: Tensor | undefined
  const keep = (one: Tensor) => {
    gradient = one
    received ??= allGatherObject([], 1, { group }).catch((error: unknown) => error)
  }
  await compile(step(keep), inputs, { runtime })
  expect(await received).toMatchObject(refused('allGatherObject'))
  await expect(dist.allReduce(gradient as never, { group })).rejects.toThrow(
    /^allReduce: tensor must be a typed array, .*got a tensor of a compiled function, which has no contents/,
  )
  group.destroy()
})

test('gradients can be returned, averaged by hand, and given to a step that updates', async () => {
  const size = 2
  const groups = await meshOf(size)
  const ends = await Promise.all(
    groups.map(async (group) => {
      manualSeed(5)
      const model = new Linear(3, 2)
      const optimizer = new SGD(model.parameters(), { lr: 0.5 })
      const named = [...model.namedParameters()]
      const backward = await compile(
        ({ x }) => {
          model.forward(x).pow(2).mean().backward()
          return Object.fromEntries(named.map(([key, parameter]) => [key, parameter.grad!]))
        },
        inputs,
        { runtime },
      )
      const update = await compile(
        (gradients) => {
          for (const [key, parameter] of named) parameter.grad = gradients[key]
          optimizer.step()
          return {}
        },
        Object.fromEntries(named.map(([key, { shape }]) => [key, tensorType(shape)])),
        { runtime },
      )
      for (let step = 0; step < 3; step++) {
        const gradients = await backward.run({ x: dataOf(group.rank) })
        for (const key in gradients) await dist.allReduce(gradients[key], { op: 'avg', group })
        await update.run(gradients)
      }
      return model.stateDict()
    }),
  )
  expect(ends[1]).toEqual(ends[0])

  manualSeed(5)
  const alone = new Linear(3, 2)
  const optimizer = new SGD(alone.parameters(), { lr: 0.5 })
  const whole = await compile(
    ({ x }) => {
      alone.forward(x).pow(2).mean().backward()
      optimizer.step()
      return {}
    },
    { x: tensorType([8, 3]) },
    { runtime },
  )
  for (let step = 0; step < 3; step++)
    await whole.run({ x: Float32Array.of(...dataOf(0), ...dataOf(1)) })
  const expected = await alone.stateDict()
  for (const key in expected)
    for (const [at, value] of [...expected[key].data].entries())
      expect(ends[0][key].data[at]).toBeCloseTo(Number(value), 6)
  for (const group of groups) group.destroy()
})
