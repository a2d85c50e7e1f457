import { expect, test } from 'vitest'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import type { JoinOptions } from '../../../src/ddp/data-parallel/uneven-inputs.ts'
import { fp16CompressHook } from '../../../src/ddp/hooks/comm-hooks.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { compileAccumulated } from '../../../src/graph/compile/compile-accumulated.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { Module } from '../../../src/nn/module.ts'
import { SyncBatchNorm } from '../../../src/nn/sync-batch-norm.ts'
import { clipGradNorm } from '../../../src/optim/clip.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { uniform } from '../../../src/util/random.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { ringOf } from '../../support/process-ring.ts'

const runtime = new ReferenceRuntime()

/** A loss whose gradient by the weight is the batch: all numbers are exact. */
class Dot extends Module {
  readonly weight = new Parameter([2], Float32Array.of(1, -1))
  forward(x: Tensor): Tensor {
    return this.weight.mul(x).sum()
  }
}

const types = { x: tensorType([2]) }
const batchOf = (rank: number, step: number) => Float32Array.of(rank + 1, 8 * step + 2)

async function dots(size: number, clipsTo?: number) {
  const groups = await ringOf(size)
  return Promise.all(
    groups.map(async (group) => {
      const model = new Dot()
      const ddp = new DistributedDataParallel(model, { processGroup: group, bucketCapMb: 1 })
      const optimizer = new SGD(ddp.parameters(), { lr: 0.5 })
      const step = ({ x }: Record<string, Tensor>) => {
        const loss = ddp.forward(x)
        optimizer.zeroGrad()
        loss.backward()
        if (clipsTo !== undefined) clipGradNorm(ddp.parameters(), clipsTo)
        optimizer.step()
        return { loss }
      }
      const program = await compile(step, types, { runtime })
      return { group, model, ddp, optimizer, step, program }
    }),
  )
}
type Ranks = Awaited<ReturnType<typeof dots>>

/** Rank r runs `counts[r]` steps inside `join`; returns the losses that it saw, or why it failed. */
const joined = (ranks: Ranks, counts: readonly number[], options?: JoinOptions) =>
  Promise.all(
    ranks.map(({ ddp, program }, rank) =>
      ddp
        .join(async () => {
          const losses: number[] = []
          for (let step = 0; step < counts[rank]; step++) {
            losses.push((await program.run({ x: batchOf(rank, step) })).loss[0])
          }
          return losses
        }, options)
        .catch((error) => `${error.code}: ${error.message}`),
    ),
  )

/** The weight after these steps, each rank's gradient divided as `divisor` says of the ranks that have a batch. */
function expectedWeight(counts: readonly number[], divisor: (active: number) => number): number[] {
  const weight = [1, -1]
  for (let step = 0; step < Math.max(...counts); step++) {
    const active = counts.flatMap((count, rank) => (count > step ? [rank] : []))
    for (const rank of active) {
      batchOf(rank, step).forEach((x, i) => {
        weight[i] -= (0.5 * x) / divisor(active.length)
      })
    }
  }
  return weight
}

const weightsOf = (ranks: Ranks) =>
  Promise.all(ranks.map(async ({ model }) => [...(await model.weight.read())]))

test.each([[[3, 1]], [[0, 2]], [[1, 4, 2, 4]], [[5, 0, 0, 0]]])(
  'ranks with %j batches end with equal weights, each batch counting one of all ranks',
  async (counts) => {
    const ranks = await dots(counts.length)
    const results = await joined(ranks, counts)
    expect(results.map((losses) => losses.length)).toEqual(counts)
    const all = await weightsOf(ranks)
    for (const own of all) expect(own).toEqual(expectedWeight(counts, () => counts.length))
    // The group works as before.
    const next = await Promise.all(ranks.map(({ program }) => program.run({ x: batchOf(0, 0) })))
    expect(new Set(next.map(({ loss }) => loss[0])).size).toBe(1)
    for (const { group } of ranks) group.destroy()
  },
)

test('ranks without batches update by the learning rate of those that have some', async () => {
  const counts = [1, 4, 2]
  const ranks = await dots(3)
  const expected = [1, -1]
  for (let step = 0; step < 4; step++) {
    for (const [rank, count] of counts.entries()) {
      if (step >= count) continue
      batchOf(rank, step).forEach((x, i) => {
        expected[i] -= (0.5 ** (step + 1) * x) / 3
      })
    }
  }
  await Promise.all(
    ranks.map(({ ddp, program, optimizer }, rank) =>
      ddp.join(async () => {
        for (let step = 0; step < counts[rank]; step++) {
          await program.run({ x: batchOf(rank, step) })
          optimizer.paramGroups[0].lr /= 2
        }
      }),
    ),
  )
  const all = await weightsOf(ranks)
  for (const own of all) {
    expect(own).toEqual(all[0])
    for (const [i, value] of own.entries()) expect(value).toBeCloseTo(expected[i], 5)
  }
  for (const { group } of ranks) group.destroy()
})

test('divideByInitialWorldSize: false divides by the ranks that still have batches', async () => {
  const counts = [1, 2, 4, 4]
  const ranks = await dots(4)
  // The third step has 2 of 4 ranks: sums of weights 1/4 each are doubled.
  await joined(ranks, counts, { divideByInitialWorldSize: false })
  const expected = expectedWeight(counts, (active) => active)
  for (const own of await weightsOf(ranks)) {
    own.forEach((value, i) => {
      expect(value).toBeCloseTo(expected[i], 5)
    })
  }
  expect(new Set((await weightsOf(ranks)).map(String)).size).toBe(1)
})

test('throwOnEarlyTermination throws on all ranks, naming those without batches; equal numbers pass', async () => {
  const options = { throwOnEarlyTermination: true }
  const ranks = await dots(3)
  expect(await joined(ranks, [2, 2, 2], options)).toEqual([
    expect.any(Array),
    expect.any(Array),
    expect.any(Array),
  ])
  const results = await joined(ranks, [2, 1, 1], options)
  expect(new Set(results)).toEqual(
    new Set([
      'graph.misuse: join: ranks 1 and 2 ran out of batches before the others. Divide the data evenly, or omit throwOnEarlyTermination.',
    ]),
  )
})

test('clipping by the norm of all gradients holds in steps that some ranks take without a batch', async () => {
  const ranks = await dots(2, 1)
  const before = await weightsOf(ranks)
  await joined(ranks, [1, 3])
  const [own, other] = await weightsOf(ranks)
  expect(own).toEqual(other)
  // Three steps of length 1 times 0.5, all in nearly one direction.
  const length = Math.hypot(own[0] - before[0][0], own[1] - before[0][1])
  expect(length).toBeGreaterThan(1.4)
  expect(length).toBeLessThanOrEqual(1.5001)
})

test('join only calls the function with enable: false, and on one rank; errors and results pass', async () => {
  const [one] = await dots(1)
  expect(await one.ddp.join(async () => 7)).toBe(7)
  const [rank] = await dots(2)
  expect(await rank.ddp.join(async () => 8, { enable: false })).toBe(8)
  await expect(rank.ddp.join(() => Promise.reject(new Error('mine')))).rejects.toThrow('mine')
  const nested = rank.ddp.join(() => rank.ddp.join(async () => 1))
  await expect(nested).rejects.toThrow('called inside another join')
  const misspelt = { enabled: false } as unknown as JoinOptions
  await expect(rank.ddp.join(async () => 1, misspelt)).rejects.toThrow('"enabled"')
})

test('micro-steps add up inside join; ranks may update different numbers of times', async () => {
  const ranks = await dots(2)
  const programs = await Promise.all(
    ranks.map(({ step }) => compileAccumulated(step, types, { runtime, steps: 2 })),
  )
  const updates = [1, 3]
  await Promise.all(
    ranks.map(({ ddp }, rank) =>
      ddp.join(async () => {
        for (let run = 0; run < 2 * updates[rank]; run++) {
          await programs[rank].run({ x: batchOf(rank, Math.floor(run / 2)) })
        }
      }),
    ),
  )
  for (const own of await weightsOf(ranks)) {
    expect(own).toEqual(expectedWeight(updates, () => 2))
  }
})

/** Ranks of a batch normalization with its running statistics; `make` gives the layer. */
async function normed(size: number, make: () => BatchNorm1d | SyncBatchNorm, hasHook = false) {
  const groups = await ringOf(size)
  return Promise.all(
    groups.map(async (group) => {
      const model = make()
      const ddp = new DistributedDataParallel(model, { processGroup: group, bucketCapMb: 1 })
      if (hasHook) ddp.registerCommHook(null, fp16CompressHook)
      const optimizer = new SGD(ddp.parameters(), { lr: 0.1 })
      const step = ({ x }: Record<string, Tensor>) => {
        const loss = ddp.forward(x).mul(x).mean()
        optimizer.zeroGrad()
        loss.backward()
        optimizer.step()
        return { loss }
      }
      const rows = { x: tensorType([4, 3]) }
      const program = await compile(step, rows, { runtime })
      const state = async () =>
        Object.entries(await model.stateDict()).map(([key, { data }]) => [key, [...data]])
      return { group, ddp, program, step, rows, state }
    }),
  )
}
const rowsOf = (rank: number, step: number) => uniform(20 + rank, step, 12, rank, rank + 2)

test('buffers come from the lowest rank that has batches, and end equal on all', async () => {
  const ranks = await normed(3, () => new BatchNorm1d(3))
  const counts = [1, 3, 2]
  await Promise.all(
    ranks.map(({ ddp, program }, rank) =>
      ddp.join(async () => {
        for (let step = 0; step < counts[rank]; step++) await program.run({ x: rowsOf(rank, step) })
      }),
    ),
  )
  const states = await Promise.all(ranks.map(({ state }) => state()))
  expect(states[1]).toEqual(states[0])
  expect(states[2]).toEqual(states[0])
  // Rank 0's first batch, then rank 1's second and third.
  const layer = new BatchNorm1d(3)
  const follow = await compile(
    ({ x }) => ({ y: layer.forward(x) }),
    { x: tensorType([4, 3]) },
    { runtime },
  )
  for (const [rank, step] of [
    [0, 0],
    [1, 1],
    [1, 2],
  ])
    await follow.run({ x: rowsOf(rank, step) })
  const kept = Object.fromEntries(states[0] as [string, number[]][])
  expect(kept['running_mean']).toEqual([...(await layer.runningMean!.read())])
  expect(kept['num_batches_tracked']).toEqual([3])
})

test('synchronized statistics leave ranks without batches out, hooks included', async () => {
  for (const hasHook of [false, true]) {
    const ranks = await normed(2, () => new SyncBatchNorm(3), hasHook)
    const counts = [1, 2]
    await Promise.all(
      ranks.map(({ ddp, program }, rank) =>
        ddp.join(async () => {
          for (let step = 0; step < counts[rank]; step++) {
            await program.run({ x: rowsOf(rank, step) })
          }
        }),
      ),
    )
    const [own, other] = await Promise.all(ranks.map(({ state }) => state()))
    expect(own).toEqual(other)
    const mean = [0, 1, 2].map((c) => {
      const of = (rank: number, step: number) =>
        [0, 1, 2, 3].reduce((sum, row) => sum + rowsOf(rank, step)[3 * row + c] / 4, 0)
      const both = (of(0, 0) + of(1, 0)) / 2
      return 0.1 * of(1, 1) + 0.9 * 0.1 * both
    })
    const got = Object.fromEntries(own as [string, number[]][])['running_mean']
    got.forEach((value, c) => {
      expect(value).toBeCloseTo(mean[c], 5)
    })
  }
})

test('steps with detectAnomaly are refused inside join', async () => {
  const ranks = await dots(2)
  const programs = await Promise.all(
    ranks.map(({ step }) => compile(step, types, { runtime, detectAnomaly: true })),
  )
  const runs = ranks.map(({ ddp }, rank) =>
    ddp.join(() => programs[rank].run({ x: batchOf(0, 0) })),
  )
  for (const run of runs)
    await expect(run).rejects.toThrow('join: this step was compiled with detectAnomaly')
})

test('micro-steps in which ranks synchronize are refused inside join', async () => {
  const ranks = await normed(2, () => new SyncBatchNorm(3))
  const programs = await Promise.all(
    ranks.map(({ step, rows }) => compileAccumulated(step, rows, { runtime, steps: 2 })),
  )
  const runs = ranks.map(({ ddp }, rank) =>
    ddp.join(async () => {
      await programs[rank].run({ x: rowsOf(rank, 0) })
    }),
  )
  for (const run of runs)
    await expect(run).rejects.toThrow(
      'join: synchronized batch normalization does not work in gradient accumulation inside join',
    )
})
