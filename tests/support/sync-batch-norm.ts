import { expect } from 'vitest'
import { DistributedDataParallel } from '../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../src/graph/compile/compile.ts'
import { tanh } from '../../src/graph/functions/activations.ts'
import { sampleCount } from '../../src/graph/functions/linear.ts'
import { arange } from '../../src/graph/functions/shape.ts'
import type { AnyRuntime } from '../../src/graph/memory/runtime.ts'
import { Parameter } from '../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { BatchNorm1d } from '../../src/nn/batch-norm.ts'
import { Module } from '../../src/nn/module.ts'
import { SyncBatchNorm } from '../../src/nn/sync-batch-norm.ts'
import { SGD } from '../../src/optim/sgd.ts'
import { uniform } from '../../src/util/random.ts'
import { tensorType } from '../../src/util/shape.ts'
import golden from '../golden/sync-batch-norm.json' with { type: 'json' }
import {
  allowedDistance,
  type GoldenResult,
  type GoldenTensor,
  largestDistance,
  valuesOf,
} from './golden.ts'
import { ifMember } from './members.ts'
import { meshOf, ringOf } from './process-ring.ts'
import { updateStep } from './update-step.ts'

interface SyncCase {
  readonly name: string
  readonly momentum: number | null
  readonly xs: readonly GoldenTensor[]
  readonly factor: GoldenTensor
  readonly weight: GoldenTensor
  readonly bias: GoldenTensor
  readonly outputs: Record<string, GoldenResult>
}
export const syncCases = (golden.cases as unknown as SyncCase[]).map(
  (one) => [one.name, one] as const,
)

const floats = (tensor: GoldenTensor) => Float32Array.from(valuesOf(tensor))

class Scaled extends Module {
  readonly scale: Parameter
  readonly norm: Module
  constructor(shape: readonly number[], norm: Module) {
    super()
    const count = shape.reduce((a, b) => a * b, 1)
    this.scale = new Parameter(shape, new Float32Array(count).fill(1))
    this.norm = norm
  }
  forward(x: Tensor): Tensor {
    return this.norm.forward(x.mul(this.scale))
  }
}

/**
 * Trains ranks with `shares` rows each of PyTorch's big batch, in programs of `rows` rows, and holds all against PyTorch.
 *
 * `make` wraps a rank's model; what it returns is forwarded.
 */
export async function checkSyncBatchNorm(
  { momentum, xs, factor, weight, bias, outputs }: SyncCase,
  shares: readonly number[],
  runtime: AnyRuntime,
  isSynced = true,
): Promise<number> {
  const [total, ...rowShape] = xs[0].shape
  const rowCount = rowShape.reduce((a, b) => a * b, 1)
  const rows = Math.max(...shares)
  const groups = await ringOf(shares.length)
  const factors = floats(factor)
  const ranks = await Promise.all(
    groups.map(async (processGroup, rank) => {
      const plain = new BatchNorm1d(3, { momentum })
      plain.weight!.assign(floats(weight))
      plain.bias!.assign(floats(bias))
      const scaled = new Scaled(rowShape, plain)
      const model = isSynced ? SyncBatchNorm.convertSyncBatchnorm(scaled) : scaled
      const ddp = new DistributedDataParallel(model, { processGroup, bucketCapMb: 1 })
      const optimizer = new SGD(ddp.parameters(), { lr: 0.25 })
      const program = await compile(
        ({ x, f }) => {
          const counts = arange(rows).lt(sampleCount())
          const each = tanh(ddp.forward(x).mul(f)).reshape([rows, rowCount]).sum(1)
          const loss = each.mul(counts).sum().div(counts.sum().clamp(1))
          optimizer.zeroGrad()
          loss.backward()
          const gradient = scaled.scale.grad!
          optimizer.step()
          return { loss, gradient }
        },
        { x: tensorType([rows, ...rowShape]), f: tensorType([rows, ...rowShape]) },
        { runtime },
      )
      const first = shares.slice(0, rank).reduce((a, b) => a + b, 0)
      const part = (all: Float32Array<ArrayBuffer>) => {
        // What does not count is far from what does.
        const own = new Float32Array(rows * rowCount).fill(1000)
        own.set(all.subarray(first * rowCount, (first + shares[rank]) * rowCount))
        return own
      }
      return { scaled, plain, program, part, count: shares[rank] }
    }),
  )
  const losses: number[] = []
  const gradients: number[] = []
  for (const x of xs) {
    const results = await Promise.all(
      ranks.map(({ program, part, count }) =>
        program.run(
          { x: part(floats(x)), f: part(factors) },
          { count, gradientWeight: count / total },
        ),
      ),
    )
    losses.push(results[0].loss[0])
    const sum = results.map(({ gradient }) => [...gradient])
    gradients.push(...sum[0].map((_, i) => sum.reduce((all, one) => all + one[i], 0)))
  }
  let worst = 0
  const hold = (name: string, got: ArrayLike<number>, where: string) => {
    const expected = valuesOf(outputs[name])
    const allowed = allowedDistance(outputs[name].distance, expected)
    const distance = largestDistance(got, expected)
    worst = Math.max(worst, distance / allowed)
    if (isSynced) expect(distance, `${name} ${where}`).toBeLessThanOrEqual(allowed)
  }
  hold('losses', losses, 'of rank 0')
  hold('scaleGradients', gradients, 'of all ranks')
  for (const [rank, { scaled }] of ranks.entries()) {
    const [scale, ownWeight, ownBias] = await Promise.all(
      scaled.parameters().map((parameter) => parameter.read()),
    )
    const [mean, variance, batches] = await Promise.all(
      scaled.buffers().map((buffer) => buffer.read()),
    )
    hold('scale', scale, `of rank ${rank}`)
    hold('weight', ownWeight, `of rank ${rank}`)
    hold('bias', ownBias, `of rank ${rank}`)
    hold('runningMean', mean, `of rank ${rank}`)
    hold('runningVar', variance, `of rank ${rank}`)
    expect([...batches]).toEqual([xs.length])
  }
  for (const [rank, { program }] of ranks.entries()) {
    groups[rank].destroy()
    program.destroy()
  }
  return worst
}

/**
 * Trains a model on 4 ranks whose statistics are those of ranks 0 and 1, and of 2 and 3, and one rank that normalizes the same two halves one
 * after the other; returns how far apart they end.
 */
export async function distanceOfPairs(runtime: AnyRuntime): Promise<number> {
  const [rows, features, steps] = [3, 2, 3]
  const batch = (step: number, rank: number) =>
    uniform(31, 10 * step + rank, rows * features, rank - 2, 2 * rank)
  const make = (norm: Module) => {
    const model = new Scaled([features], norm)
    return { model, optimizer: new SGD(model.parameters(), { lr: 0.3 }) }
  }
  const wanted = make(new BatchNorm1d(features))
  const lossOf = (y: Tensor) => tanh(y.square().add(y)).mean()
  const whole = await compile(
    ({ low, high }) => {
      const halves = [low, high].map((x) => lossOf(wanted.model.forward(x)))
      const loss = halves[0].add(halves[1]).mul(0.5)
      wanted.optimizer.zeroGrad()
      loss.backward()
      wanted.optimizer.step()
      return { loss }
    },
    { low: tensorType([2 * rows, features]), high: tensorType([2 * rows, features]) },
    { runtime },
  )
  const groups = await meshOf(4)
  const ranks = await Promise.all(
    groups.map(async (processGroup, rank) => {
      const pairs = [await processGroup.newGroup([0, 1]), await processGroup.newGroup([2, 3])]
      const own = ifMember(pairs[rank < 2 ? 0 : 1])
      const { model, optimizer } = make(new BatchNorm1d(features))
      SyncBatchNorm.convertSyncBatchnorm(model, own)
      const ddp = new DistributedDataParallel(model, { processGroup, bucketCapMb: 1 })
      const program = await compile(
        updateStep(optimizer, ({ x }) => lossOf(ddp.forward(x))),
        { x: tensorType([rows, features]) },
        { runtime },
      )
      return { model, program }
    }),
  )
  const distances: number[] = []
  const compare = (got: ArrayLike<number>, expected: ArrayLike<number>) =>
    distances.push(...Array.from(got, (value, i) => Math.abs(value - expected[i])))
  for (let step = 0; step < steps; step++) {
    const all = groups.map((_, rank) => batch(step, rank))
    const half = (first: number) => Float32Array.from([...all[first], ...all[first + 1]])
    const expected = await whole.run({ low: half(0), high: half(2) })
    const got = await Promise.all(ranks.map(({ program }, rank) => program.run({ x: all[rank] })))
    for (const { loss } of got) compare(loss, expected.loss)
  }
  const read = (model: Module) => Promise.all(model.parameters().map((one) => one.read()))
  const expected = await read(wanted.model)
  for (const { model } of ranks) {
    for (const [i, values] of (await read(model)).entries()) compare(values, expected[i])
  }
  for (const [rank, { program }] of ranks.entries()) {
    groups[rank].destroy()
    program.destroy()
  }
  whole.destroy()
  return Math.max(...distances)
}
