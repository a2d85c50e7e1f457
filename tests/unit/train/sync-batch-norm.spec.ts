import { expect, test } from 'vitest'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { compileAccumulated } from '../../../src/graph/compile/compile-accumulated.ts'
import { detectAnomaly } from '../../../src/graph/compile/detect-anomaly.ts'
import { runEagerly } from '../../../src/graph/compile/eager.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { BatchNorm1d, BatchNorm2d } from '../../../src/nn/batch-norm.ts'
import { ModuleDict, ModuleList } from '../../../src/nn/containers.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Module, Sequential } from '../../../src/nn/module.ts'
import { SyncBatchNorm } from '../../../src/nn/sync-batch-norm.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { uniform } from '../../../src/util/random.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { ifMember } from '../../support/members.ts'
import { ringOf } from '../../support/process-ring.ts'
import { checkSyncBatchNorm, distanceOfPairs, syncCases } from '../../support/sync-batch-norm.ts'
import { updateStep } from '../../support/update-step.ts'

const runtime = new ReferenceRuntime()

const shares = [
  [4, 3],
  [6, 1],
  [3, 2, 2],
  [4, 0, 3],
]
test.each(syncCases.flatMap(([name, one]) => shares.map((share) => [name, share, one] as const)))(
  '%s: ranks with %j rows equal PyTorch with all of them',
  async (_, share, one) => {
    await checkSyncBatchNorm(one, share, runtime)
  },
)

test('statistics of a processGroup: two pairs of 4 ranks are one rank that normalizes two halves', async () => {
  expect(await distanceOfPairs(runtime)).toBeLessThan(1e-5)
})

test("ranks get an error when they disagree about processGroup, or it has ranks outside of the model's", async () => {
  const groups = await ringOf(3)
  const compiled = await Promise.allSettled(
    groups.map(async (processGroup) => {
      // On rank 2 it is undefined: all ranks.
      const some = ifMember(await processGroup.newGroup([0, 1]))
      const model = SyncBatchNorm.convert(new BatchNorm1d(3), some)
      const ddp = new DistributedDataParallel(model, { processGroup, bucketCapMb: 1 })
      const optimizer = new SGD(ddp.parameters(), { lr: 0 })
      return compile(
        updateStep(optimizer, ({ x }) => ddp.forward(x).square().mean()),
        { x: tensorType([2, 3]) },
        { runtime },
      )
    }),
  )
  for (const end of compiled) {
    expect(end).toMatchObject({
      reason: {
        code: 'peer.mismatch',
        message:
          'SyncBatchNorm: ranks disagree about processGroup: [0, 1, 2] on rank 2, [0, 1] on rank 0. Pass each rank the group that it is in.',
      },
    })
  }
  const pairs = await Promise.all(groups.map((group) => group.newGroup([0, 1])))
  const wrapped = new DistributedDataParallel(new SyncBatchNorm(3, { processGroup: groups[0] }), {
    processGroup: ifMember(pairs[0]),
    bucketCapMb: 1,
  })
  const forward = compile(
    ({ x }) => ({ y: wrapped.forward(x) }),
    { x: tensorType([2, 3]) },
    { runtime },
  )
  await expect(forward).rejects.toThrow(
    "processGroup must contain only ranks of the model's group [0, 1], got [0, 1, 2]",
  )
  for (const group of groups) group.destroy()
})

test('statistics of each rank alone are far from that', async () => {
  for (const [, one] of syncCases) {
    expect(await checkSyncBatchNorm(one, [4, 3], runtime, false)).toBeGreaterThan(1000)
  }
})

class Holder extends Module {
  readonly plain = new BatchNorm2d(3, { eps: 0.5, momentum: null })
  readonly list = new ModuleList([new Linear(2, 2), new BatchNorm1d(2, { affine: false })])
  readonly dict = new ModuleDict({ norm: new BatchNorm1d(4, { trackRunningStats: false }) })
  readonly inner = new Sequential(new BatchNorm1d(2), new Linear(2, 1))
  /** The same layer in two places. */
  readonly again = this.plain
  forward(x: Tensor): Tensor {
    return x
  }
}

test('convert takes the place of every batch normalization, with its tensors, settings and mode', async () => {
  const holder = new Holder()
  holder.plain.eval()
  const { plain } = holder
  const keys = Object.keys(await holder.stateDict())
  const tensors = [...holder.parameters(), ...holder.buffers()]
  expect(SyncBatchNorm.convert(holder)).toBe(holder)
  const converted = [holder.plain, holder.list.at(1), holder.dict.get('norm'), holder.inner.at(0)]
  for (const layer of converted) expect(layer).toBeInstanceOf(SyncBatchNorm)
  expect(holder.again).toBe(holder.plain)
  expect(holder.plain).toMatchObject({ eps: 0.5, momentum: null, training: false })
  expect(holder.plain.weight).toBe(plain.weight)
  expect(holder.plain.runningMean).toBe(plain.runningMean)
  expect(holder.list.at(0)).toBeInstanceOf(Linear)
  expect(Object.keys(await holder.stateDict())).toEqual(keys)
  expect([...holder.parameters(), ...holder.buffers()]).toEqual(tensors)
  const again = holder.plain
  SyncBatchNorm.convertSyncBatchnorm(holder)
  expect(holder.plain).toBe(again)
  expect(SyncBatchNorm.convertSyncBatchnorm(plain)).toBeInstanceOf(SyncBatchNorm)
})

test('with one rank, without ranks and in evaluation it is plain batch normalization', async () => {
  const x = uniform(1, 2, 12, -1, 1)
  const types = { x: tensorType([4, 3]) }
  const outputOf = async (model: Module) =>
    (await (await compile(({ x }) => ({ y: model.forward(x) }), types, { runtime })).run({ x })).y
  const expected = await outputOf(new BatchNorm1d(3))
  const [one] = await ringOf(1)
  expect(await outputOf(new SyncBatchNorm(3))).toEqual(expected)
  const single = new DistributedDataParallel(new SyncBatchNorm(3), { processGroup: one })
  expect(await outputOf(single)).toEqual(expected)
  const groups = await ringOf(2)
  const evaluated = await Promise.all(
    groups.map((processGroup) =>
      outputOf(new DistributedDataParallel(new SyncBatchNorm(3).eval(), { processGroup }).eval()),
    ),
  )
  const plain = await outputOf(new BatchNorm1d(3).eval())
  expect(evaluated).toEqual([plain, plain])
})

test('one rank alone may call detectAnomaly; running op by op is refused', async () => {
  const [processGroup] = await ringOf(2)
  const model = new SyncBatchNorm(3)
  const ddp = new DistributedDataParallel(model, { processGroup, bucketCapMb: 1 })
  const step = ({ x }: Record<string, Tensor>) => ({ y: ddp.forward(x).sum() })
  const types = { x: tensorType([2, 3]) }
  await detectAnomaly(runtime, step, types, { x: Float32Array.of(1, 2, 3, 4, 5, 6) })
  const bad = detectAnomaly(runtime, step, types, { x: Float32Array.of(1, 2, 3, 4, 5, Number.NaN) })
  await expect(bad).rejects.toMatchObject({ code: 'train.nan' })
  expect([...(await model.numBatchesTracked!.read())]).toEqual([0])
  const eager = runEagerly(runtime, step, types, { x: new Float32Array(6) })
  await expect(eager).rejects.toThrow(
    'runEagerly: the function needs the other ranks (SyncBatchNorm, fullyShard)',
  )
})

test('a forward without an update, and micro-steps, synchronize with the other ranks too', async () => {
  const groups = await ringOf(2)
  const all = uniform(1, 2, 12, -1, 1)
  const whole = await compile(
    ({ x }) => ({ y: new BatchNorm1d(3).forward(x) }),
    { x: tensorType([4, 3]) },
    { runtime },
  )
  const expected = [...(await whole.run({ x: all })).y]
  await Promise.all(
    groups.map(async (processGroup, rank) => {
      const model = new SyncBatchNorm(3)
      const ddp = new DistributedDataParallel(model, { processGroup, bucketCapMb: 1 })
      const optimizer = new SGD(ddp.parameters(), { lr: 0 })
      const types = { x: tensorType([2, 3]) }
      const step = ({ x }: Record<string, Tensor>) => {
        const y = ddp.forward(x)
        optimizer.zeroGrad()
        y.square().mean().backward()
        optimizer.step()
        return { y }
      }
      const forward = await compile(({ x }) => ({ y: ddp.forward(x) }), types, { runtime })
      const accumulated = await compileAccumulated(step, types, { runtime, steps: 2 })
      const x = all.slice(6 * rank, 6 * rank + 6)
      for (const program of [forward, accumulated, accumulated]) {
        const { y } = await program.run({ x })
        for (const [i, value] of y.entries()) expect(value).toBeCloseTo(expected[6 * rank + i], 6)
      }
      expect([...(await model.numBatchesTracked!.read())]).toEqual([3])
      processGroup.destroy()
    }),
  )
})
