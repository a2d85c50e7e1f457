import { beforeAll, describe, expect, test } from 'vitest'
import { compile } from '../../../src/graph/compile/compile.ts'
import { scaledDotProductAttention } from '../../../src/graph/functions/attention.ts'
import { einsum } from '../../../src/graph/functions/einsum.ts'
import { layerNorm } from '../../../src/graph/functions/normalization.ts'
import { pad } from '../../../src/graph/functions/pad.ts'
import { avgPool1d } from '../../../src/graph/functions/pooling.ts'
import {
  arange,
  cat,
  chunk,
  cumsum,
  ones,
  repeat,
  roll,
  stack,
  tril,
  zeros,
} from '../../../src/graph/functions/shape.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { Dropout } from '../../../src/nn/dropout.ts'
import { manualSeed } from '../../../src/nn/init.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { Module } from '../../../src/nn/module.ts'
import { LayerNorm } from '../../../src/nn/normalization.ts'
import { SyncBatchNorm } from '../../../src/nn/sync-batch-norm.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { initDeviceMesh } from '../../../src/parallel/mesh/device-mesh.ts'
import { parallelizeModule } from '../../../src/parallel/tensor/parallelize-module.ts'
import { ColwiseParallel, RowwiseParallel } from '../../../src/parallel/tensor/styles.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { onRanks, resultOf } from '../../support/ranks-of-one.ts'

// What computes something else of a rank's part of a layer than of the whole, and what does not.

const [samples, width] = [2, 8]
let length = 3
const inputs = () => ({
  x: Float32Array.from({ length: samples * length * 4 }, (_, i) => Math.sin(i)),
})

type Between = (this: Pair, q: Tensor, k: Tensor, v: Tensor) => Tensor

/** Three layers that ranks divide by their outputs, something of these, and a layer that they divide by its inputs. */
class Pair extends Module {
  readonly q = new Linear(4, width)
  readonly k = new Linear(4, width)
  readonly v = new Linear(4, width)
  readonly own: Module | undefined
  readonly proj: Linear
  readonly #between: Between

  constructor(between: Between, own?: Module, features = width) {
    super()
    this.#between = between
    this.own = own
    this.proj = new Linear(features, 4)
  }

  forward(x: Tensor): Tensor {
    const parts = [this.q, this.k, this.v].map((layer) => layer.forward(x)) as [
      Tensor,
      Tensor,
      Tensor,
    ]
    return x.add(this.proj.forward(this.#between(...parts)))
  }
}

const planOf = (blocks = 1) => ({
  q: new ColwiseParallel({ blocks }),
  k: new ColwiseParallel(),
  v: new ColwiseParallel(),
  proj: new RowwiseParallel(),
})

/** Losses of 3 steps, and the state. */
async function train(
  make: (ranks: number) => Pair,
  processGroup?: ProcessGroup,
  plan = planOf(),
): Promise<number[]> {
  manualSeed(2)
  const model = make(processGroup?.size ?? 1)
  if (processGroup)
    await parallelizeModule(model, await initDeviceMesh('reference', [2], { processGroup }), plan)
  const optimizer = new SGD(model.parameters(), { lr: 0.1 })
  const step = await compile(
    ({ x }) => {
      optimizer.zeroGrad()
      const loss = model.forward(x).square().mean()
      loss.backward()
      optimizer.step()
      return { loss }
    },
    { x: tensorType([samples * length, 4]) },
    { device: 'reference' },
  )
  const losses: number[] = []
  for (let i = 0; i < 3; i++) losses.push((await step.run(inputs())).loss[0])
  step.destroy()
  return [...losses, ...Object.values(await model.stateDict()).flatMap(({ data }) => [...data])]
}

/** [samples * length, heads * 4] -> [samples, heads, length, 4] */
const byHeads = (x: Tensor) => x.reshape([samples, length, -1, 4]).permute(0, 2, 1, 3)
const together = (x: Tensor) => x.permute(0, 2, 1, 3).reshape([samples * length, -1])
/** The same with heads of 2, and this rank's numbers of everything. */
const byNumbers = (x: Tensor) => x.reshape([samples, length, x.shape[1] / 2, 2]).transpose(1, 2)
const ofNumbers = (x: Tensor) => x.transpose(1, 2).reshape([samples * length, 2 * x.shape[1]])
const through: Between = function (q) {
  return this.own!.forward(q)
}

// Once there are as many in a row as features of a rank.
describe.each([3, 4])('between divided layers, in rows of %i,', (rows) => {
  beforeAll(() => {
    length = rows
  })

  test.each<[string, Between, (() => Module) | undefined, string]>([
    [
      'a softmax',
      (q) => q.softmax(-1),
      undefined,
      'softmax: each rank has only a part of this axis',
    ],
    [
      'a softmax',
      (q) => q.relu().add(q).logSoftmax(1),
      undefined,
      'logSoftmax: each rank has only a part of this axis',
    ],
    [
      'a mean',
      (q) => q.sub(q.mean(-1, true)),
      undefined,
      'sum: each rank has only a part of this axis',
    ],
    ['a sum', (q, k) => q.mul(k.sum()), undefined, 'sum: each rank has only a part of this axis'],
    [
      'a largest element',
      (q) => q.div(q.abs().amax(1, true)),
      undefined,
      'amax: each rank has only a part of this axis',
    ],
    [
      'a place',
      (q) => q.mul(q.max(1, true).values),
      undefined,
      'topK: each rank has only a part of this axis',
    ],
    ['flip', (q) => q.flip(1), undefined, 'flip: each rank has only a part of this axis'],
    ['cumsum', (q) => cumsum(q, 1), undefined, 'cumsum: each rank has only a part of this axis'],
    [
      'attention of one head',
      (q, k, v) => q.matmul(k.transpose(0, 1)).softmax(-1).matmul(v),
      undefined,
      'matmul: each rank has only a part of this axis',
    ],
    [
      'attention of one head',
      (...qkv) => {
        const [q, k, v] = qkv.map((x) => x.reshape([samples, 1, length, -1]))
        return scaledDotProductAttention(q, k, v).reshape([samples * length, -1])
      },
      undefined,
      'scaledDotProductAttention: each rank has only a part of this axis',
    ],
    [
      'a product by einsum',
      (q, k) => q.mul(einsum('ij,kj->ik', q, k).sum(1, true)),
      undefined,
      'matmul: each rank has only a part of this axis',
    ],
    [
      'an outer product',
      (q, k) => q.unsqueeze(2).matmul(k.unsqueeze(1)).sum(2),
      undefined,
      'matmul: each rank has only a part of an axis of one input',
    ],
    [
      'a softmax of transposed',
      (q) => q.transpose(0, 1).softmax(0).transpose(0, 1),
      undefined,
      'softmax: each rank has only a part of this axis',
    ],
    [
      'a softmax of stacked',
      (q, k) => stack([q, k]).softmax(-1).sum(0),
      undefined,
      'softmax: each rank has only a part of this axis',
    ],
    [
      'a softmax of padded',
      (q) =>
        pad(q, [0, 0, 1, 0])
          .softmax(-1)
          .narrow(0, 1, samples * length),
      undefined,
      'softmax: each rank has only a part of this axis',
    ],
    [
      'a sum of all elements in a row',
      (q) => q.sub(q.detach().reshape([-1]).mean()),
      undefined,
      'sum: each rank has only a part of this axis',
    ],
    ['roll', (q) => roll(q, 1, 1), undefined, 'slice: each rank has only a part of this axis'],
    ['tril', (q) => tril(q), undefined, 'tril: each rank has only a part of this axis'],
    [
      'pooling',
      (q) => repeat(avgPool1d(q.unsqueeze(1), 2).squeeze(1), [1, 2]),
      undefined,
      'avgPool1d: it may need a whole axis',
    ],
    [
      'a number for each place',
      (q) => q.add(arange(q.shape[1])),
      undefined,
      'add: each rank has only a part of an axis of one input',
    ],
    [
      'heads whose number holds on one rank alone',
      (q) =>
        q
          .reshape([-1, length, 2, 4])
          .softmax(2)
          .reshape([samples * length, -1]),
      undefined,
      'reshape: -1 stands for another dimension',
    ],
    [
      'a softmax of joined rows',
      (q) => {
        const features = q.shape[1]
        const rows = q.reshape([samples, length, features]).reshape([-1, features])
        return rows.softmax(-1)
      },
      undefined,
      'softmax: each rank has only a part of this axis',
    ],
    [
      'a softmax over heads',
      (q) =>
        q
          .reshape([samples, length, q.shape[1] / 2, 2])
          .softmax(2)
          .reshape([samples * length, q.shape[1]]),
      undefined,
      'softmax: each rank has only a part of this axis',
    ],
    [
      'attention with other numbers for each head',
      (...qkv) => {
        const [q, k, v] = qkv.map(byNumbers)
        const slopes = arange(q.shape[1]).reshape([1, q.shape[1], 1, 1])
        const attnMask = slopes.expand([samples, q.shape[1], length, length])
        return ofNumbers(scaledDotProductAttention(q, k, v, { attnMask }))
      },
      undefined,
      'scaledDotProductAttention: each rank has only a part of an axis of one input',
    ],
    [
      'heads whose size is left open',
      (q) =>
        q
          .reshape([samples, length, 2, -1])
          .softmax(2)
          .reshape([samples * length, -1]),
      undefined,
      'reshape: -1 stands for another dimension',
    ],
    [
      'samples as the last axis',
      (q) =>
        q
          .reshape([samples, length, -1])
          .permute(2, 1, 0)
          .reshape([-1, samples * length]),
      undefined,
      '"proj" is divided by RowwiseParallel, but its input is divided along axis 0',
    ],
    [
      'a normalization without parameters',
      through,
      () => new LayerNorm(4, { elementwiseAffine: false }),
      'normalization: each rank has only a part of this axis',
    ],
    [
      'a normalization',
      through,
      () => new LayerNorm(4),
      'normalization: each rank has only a part of this axis',
    ],
    [
      'a normalization of all features',
      through,
      () => new LayerNorm(width),
      `layerNorm: x must end in normalizedShape, [8], got [${samples * rows}, 4]. The newest tensor, [${samples * rows}, 4], is this rank's part`,
    ],
    [
      'a shape of all features',
      (q) => q.reshape([samples, length, width]),
      undefined,
      'In reshape, write -1',
    ],
    ['dropout', through, () => new Dropout(0.5), 'dropout: all ranks would drop the same'],
    [
      'dropout of attention',
      (...qkv) => {
        const [q, k, v] = qkv.map(byHeads)
        return together(scaledDotProductAttention(q, k, v, { dropoutP: 0.1 }))
      },
      undefined,
      'scaledDotProductAttention: all ranks would drop the same',
    ],
    [
      'dropout of probabilities',
      function (...qkv) {
        const [q, k, v] = qkv.map(byHeads)
        return together(this.own!.forward(q.matmul(k.transpose(2, 3)).softmax(-1)).matmul(v))
      },
      () => new Dropout(0.5),
      'dropout: all ranks would drop the same',
    ],
    [
      'running statistics',
      through,
      () => new BatchNorm1d(4, { affine: false }),
      'batchNormTracked: it would change buffers',
    ],
    [
      'running statistics',
      function (q, k) {
        return q.add(this.own!.forward(k))
      },
      () => new SyncBatchNorm(4, { affine: false }),
      'batchNormTracked: it would change buffers',
    ],
  ])('%s is refused', async (_, between, own, message) => {
    const ended = await onRanks(2, (group) => train(() => new Pair(between, own?.()), group))
    for (const one of ended)
      expect(one).toMatchObject({
        reason: { code: 'graph.misuse', message: expect.stringContaining(message) },
      })
  })

  test.each<[string, Between, ((width: number) => Module)?]>([
    ['a gate and a residual', (q, k, v) => q.add(k.sigmoid().mul(v)).half().float()],
    ['a sum over samples', (q, k) => q.mul(k.softmax(0)).sub(q.mean(0, true))],
    [
      'a batch normalization without statistics',
      through,
      (width) => new BatchNorm1d(width, { affine: false, trackRunningStats: false }),
    ],
    [
      'attention with heads that are normalized, one on each rank',
      (...qkv) => {
        const normalized = qkv.map((x) => layerNorm(x.reshape([samples, length, -1, 4]), [4]))
        const [q, k, v] = normalized.map((x) => x.permute(0, 2, 1, 3))
        return together(q.matmul(k.transpose(2, 3)).softmax(-1).matmul(v))
      },
    ],
    [
      'heads that are joined with samples',
      (...qkv) => {
        const [q, k, v] = qkv.map((x) => byHeads(x).reshape([-1, length, 4]))
        const attended = q.matmul(k.transpose(1, 2)).softmax(-1).matmul(v)
        return together(attended.reshape([samples, -1, length, 4]))
      },
    ],
    [
      "attention with this rank's numbers and a mask",
      (...qkv) => {
        const [q, k, v] = qkv.map(byNumbers)
        const attnMask = tril(ones([length, length]))
        return ofNumbers(scaledDotProductAttention(q, k, v, { attnMask }))
      },
    ],
    [
      'rows of zeros before them',
      (q) => {
        const own = q.reshape([samples, length, -1])
        const [, , features] = own.shape
        const shifted = cat([zeros([samples, 1, features]), own.narrow(1, 0, length - 1)], 1)
        return shifted.reshape([samples * length, features])
      },
    ],
    [
      'heads that are repeated',
      (q, k) => {
        const heads = byHeads(k)
        const [, own] = heads.shape
        return together(
          byHeads(q).mul(heads.unsqueeze(2).expand([samples, own, 2, length, 4]).sum(2)),
        )
      },
    ],
    [
      'attention by einsum',
      (...qkv) => {
        const [q, k, v] = qkv.map(byHeads)
        const scores = einsum('bhqd,bhkd->bhqk', q, k).add(tril(ones([length, length])))
        return together(einsum('bhqk,bhkd->bhqd', scores.softmax(-1), v))
      },
    ],
    [
      'blocks that are taken apart',
      (q, k) => {
        const [a, b] = chunk(cat([q, k], -1), 2, -1)
        return a.mul(b)
      },
    ],
    [
      'what reads other axes',
      (q) =>
        cumsum(roll(layerNorm(q.transpose(0, 1), [samples * length]), 1, 1).flip(1), 1).transpose(
          0,
          1,
        ),
    ],
  ])('%s trains as on one rank', async (_, between, own) => {
    const make = (ranks: number) => new Pair(between, own?.(width / ranks))
    const whole = await train(make)
    const ranks = await onRanks(2, (group) => train(make, group))
    for (const numbers of ranks.map(resultOf)) {
      expect(numbers).toHaveLength(whole.length)
      for (const [i, value] of numbers.entries()) expect(value).toBeCloseTo(whole[i], 5)
    }
  })

  test.each<[string, Between, number, number]>([
    ['a layer of two blocks', (q) => q.relu(), 2, width],
    ['two layers side by side', (q, k) => cat([q, k], -1), 1, 2 * width],
    ['a layer twice', (q) => repeat(q, [1, 2]), 1, 2 * width],
  ])('%s, whose parts are in another order, is refused', async (_, between, blocks, features) => {
    const make = () => new Pair(between, undefined, features)
    const ended = await onRanks(2, (group) => train(make, group, planOf(blocks)))
    for (const one of ended)
      expect(one).toMatchObject({
        reason: {
          code: 'graph.misuse',
          message: expect.stringContaining(
            '"proj" is divided by RowwiseParallel, but its input has 2 blocks',
          ),
        },
      })
  })
})
