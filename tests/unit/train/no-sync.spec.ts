import { expect, test } from 'vitest'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { compileAccumulated } from '../../../src/graph/compile/compile-accumulated.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { Module } from '../../../src/nn/module.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { ringOf } from '../../support/process-ring.ts'

const runtime = new ReferenceRuntime()
const microBatches = [
  [1, 2, 3, -1],
  [0, 1, 2, 2],
  [-1, 1, 1, 0],
]
/**
 * torch 1.13: SGD(lr=1/64) over two steps of three backwards each on ((x @ w - 1) ** 2).mean(), rank 1 with twice the inputs of rank 0,
 * gradients averaged over the ranks. Exact in float32.
 */
const torchWeights = [
  [0.34765625, -0.064453125],
  [0.276031494140625, 0.0532684326171875],
]

class Product extends Module {
  readonly weight = new Parameter([2], Float32Array.of(0.5, -0.25))
  forward(x: Tensor): Tensor {
    return x.matmul(this.weight)
  }
}

/** Two ranks with a training step each, which `make` compiles. */
async function twoRanks<P>(
  make: (step: (inputs: Record<string, Tensor>) => Record<string, Tensor>) => Promise<P>,
) {
  const groups = await ringOf(2)
  return Promise.all(
    groups.map(async (group, rank) => {
      const model = new Product()
      const ddp = new DistributedDataParallel(model, { processGroup: group })
      const optimizer = new SGD(ddp.parameters(), { lr: 1 / 64 })
      const program = await make(({ x }) => {
        const loss = ddp.forward(x).sub(1).square().mean()
        optimizer.zeroGrad()
        loss.backward()
        optimizer.step()
        return { loss }
      })
      const batches = microBatches.map((x) => ({ x: Float32Array.from(x, (v) => v * (rank + 1)) }))
      return { group, model, ddp, program, batches }
    }),
  )
}

const types = { x: tensorType([2, 2]) }
const accumulated = () => twoRanks((step) => compileAccumulated(step, types, { runtime }))

test('runs inside noSync add up and send nothing, the next one updates, to the weights of PyTorch', async () => {
  const ranks = await accumulated()
  for (const expected of torchWeights) {
    await Promise.all(
      ranks.map(async ({ group, ddp, program, batches }) => {
        const sent = group.stats().payloadBytesSent
        const kept = await ddp.noSync(async () => {
          await program.run(batches[0])
          await program.run(batches[1])
          return 'what it returns'
        })
        expect(kept).toBe('what it returns')
        expect(group.stats().payloadBytesSent).toBe(sent)
        await program.run(batches[2])
        expect(group.stats().payloadBytesSent).toBeGreaterThan(sent)
      }),
    )
    for (const { model } of ranks) expect([...(await model.weight.read())]).toEqual(expected)
  }
})

test('runs count by where they began, awaited or not', async () => {
  const ranks = await accumulated()
  await Promise.all(
    ranks.flatMap(({ ddp, program, batches }) => {
      const added = ddp.noSync(() => [program.run(batches[0]), program.run(batches[1])])
      return [...added, program.run(batches[2])]
    }),
  )
  for (const { model } of ranks) expect([...(await model.weight.read())]).toEqual(torchWeights[0])
})

test('a run is refused when it may belong to a noSync that nobody awaits', async () => {
  const ranks = await accumulated()
  await Promise.all(
    ranks.map(async ({ ddp, program, batches }) => {
      const outside = /^noSync: a function that it was given has not ended.*Write await ddp.noSync/
      const added = ddp.noSync(() => program.run(batches[0]))
      await expect(program.run(batches[2])).rejects.toThrow(outside)
      await added
      const late = async () => {
        await Promise.resolve()
        return program.run(batches[1])
      }
      const inside = async () => ddp.noSync(late)
      await inside()
      await program.run(batches[2])
      const floating: Promise<unknown>[] = []
      void ddp.noSync(() => {
        floating.push(late())
        return Promise.allSettled(floating)
      })
      await expect(floating[0]).rejects.toThrow(outside)
    }),
  )
  for (const { model } of ranks) expect([...(await model.weight.read())]).toEqual(torchWeights[0])
})

test('noSync may nest, and ends when its function throws', async () => {
  const [{ ddp, model }] = await accumulated()
  const { exchange } = model.weight
  expect(() =>
    ddp.noSync(() => {
      ddp.noSync(() => expect(exchange?.isSynchronizing).toBe(false))
      expect(exchange?.isSynchronizing).toBe(false)
      throw new Error('stop')
    }),
  ).toThrow('stop')
  expect(exchange?.isSynchronizing).toBe(true)
  await expect(ddp.noSync(() => Promise.reject(new Error('later')))).rejects.toThrow('later')
  expect(exchange?.isSynchronizing).toBe(true)
})

test('two noSync that overlap end with the last of them', async () => {
  const [{ ddp, model }] = await accumulated()
  const { exchange } = model.weight
  const ends: (() => void)[] = []
  const wait = () => new Promise<void>((resolve) => void ends.push(resolve))
  const first = ddp.noSync(wait)
  const second = ddp.noSync(wait)
  ends[0]()
  await first
  expect(exchange?.isSynchronizing).toBe(false)
  ends[1]()
  await second
  expect(exchange?.isSynchronizing).toBe(true)
})

test("forward passes all arguments on to the module's", async () => {
  class Scaled extends Module {
    readonly unused = new Parameter([1], Float32Array.of(1))
    forward(x: Tensor, ...factors: unknown[]): Tensor {
      return (factors as number[]).reduce((y, factor) => y.mul(factor), x)
    }
  }
  const [group] = await ringOf(1)
  const ddp = new DistributedDataParallel(new Scaled(), { processGroup: group })
  const program = await compile(({ x }) => ({ y: ddp.forward(x, 2, 5) }), types, { runtime })
  expect([...(await program.run({ x: Float32Array.of(1, 2, 3, 4) })).y]).toEqual([10, 20, 30, 40])
})

test('a step that updates is refused inside, a program without updates is not', async () => {
  const whole = await twoRanks((step) => compile(step, types, { runtime }))
  const [{ ddp, program, batches }] = whole
  const refused = ddp.noSync(async () => program.run(batches[0]))
  await expect(refused).rejects.toMatchObject({
    code: 'graph.misuse',
    message: expect.stringContaining('Compile it with compileAccumulated()'),
  })
  const evaluation = await compile(({ x }) => ({ y: ddp.forward(x) }), types, { runtime })
  const { y } = await ddp.noSync(() => evaluation.run(batches[0]))
  expect([...y]).toEqual([0, 1.75])

  const counted = await twoRanks((step) => compileAccumulated(step, types, { runtime, steps: 2 }))
  const last = counted[0].ddp.noSync(async () => {
    await counted[0].program.run(batches[0])
    return counted[0].program.run(batches[1])
  })
  await expect(last).rejects.toThrow('noSync: the last run of an accumulation updates parameters')
})
