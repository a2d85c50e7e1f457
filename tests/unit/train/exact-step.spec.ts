import { describe, expect, test, vi } from 'vitest'
import { ExactStep } from '../../../src/ddp/exact/exact-step.ts'
import { LossScale } from '../../../src/ddp/exact/loss-scale.ts'
import { crossEntropy, sampleCount } from '../../../src/graph/functions/linear.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { autocast } from '../../../src/graph/trace/autocast.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { ExactOptimizer } from '../../../src/optim/exact/exact-optimizer.ts'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import { VirtualWorkers } from '../../../src/trainer/evaluate/virtual-workers.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { setSwitches } from '../../../src/util/switches.ts'
import { seededRandom } from '../../../src/util/virtual-env.ts'
import { onRanks, resultOf } from '../../support/ranks-of-one.ts'

const virtualWorkers = 4
const batchSize = 8
const types = { x: tensorType([2, 3]), y: tensorType([2], 'i32') }
const settings = { kind: 'sgd', lr: 0.5, momentum: 0 } as const

/** A layer of zeros in four virtual workers of two rows each. */
async function exactStep(group: ProcessGroup, activate = (x: Tensor) => x, lossScale?: LossScale) {
  const model = new Linear(3, 2)
  for (const [name, parameter] of model.namedParameters()) {
    parameter.name = name
    parameter.assign(new Float32Array(parameter.count))
  }
  const optimizer = new ExactOptimizer(model.parameters(), settings)
  const config = { seed: 0, batchSize, virtualWorkers }
  const workersIn = ({ rank, size }: ProcessGroup) =>
    new VirtualWorkers(config, batchSize, rank, size)
  let workers = workersIn(group)
  const step = await ExactStep.create({
    runtime: new ReferenceRuntime(),
    group,
    optimizer,
    workers,
    virtualWorkers,
    lossScale,
    forward: ({ x, y }) =>
      autocast({ enabled: lossScale !== undefined }, () => ({
        loss: crossEntropy(activate(model.forward(x)), y, { count: sampleCount() }),
      })),
    types,
    stepsDone: 6,
  })
  const run = (x: Float32Array<ArrayBuffer>) => {
    const count = workers.count * workers.rows
    const begin = workers.first * workers.rows
    const own = x.subarray(3 * begin, 3 * (begin + count))
    return step.run({ x: own, y: new Int32Array(count) }, { count })
  }
  const enter = (group: ProcessGroup, stepsDone: number) => {
    workers = workersIn(group)
    step.enter({ group, workers, stepsDone })
  }
  return { model, optimizer, step, run, workers, enter }
}

const inputs = (value: number) => new Float32Array(3 * batchSize).fill(value)

const errorsOf = async (work: (group: ProcessGroup) => Promise<unknown>) =>
  (await onRanks(2, work)).map((one) => (one.status === 'rejected' ? one.reason : undefined))

describe('ExactStep', () => {
  test('names the virtual workers whose losses are not finite, on all ranks, in the first attempt', async () => {
    const x = inputs(1)
    x[0] = Number.NaN
    x[3 * 7] = Number.NaN
    const repeats: number[] = []
    const errors = await errorsOf(async (group) => {
      const { step, run } = await exactStep(group)
      const beganMs = performance.now()
      await run(inputs(1))
      const tookMs = performance.now() - beganMs
      for (const partMs of Object.values(step.times)) {
        expect(partMs).toBeGreaterThanOrEqual(0)
        expect(partMs).toBeLessThanOrEqual(tookMs)
      }
      const before = step.repeats
      await run(x).finally(() => repeats.push(step.repeats - before))
    })
    expect(repeats).toEqual([0, 0])
    for (const error of errors)
      expect(error).toMatchObject({
        code: 'train.nan',
        message: expect.stringMatching(
          /^step 8: expected finite losses, got NaN from virtual worker 0 \(rank 0\), NaN from virtual worker 3 \(rank 1\)\. /,
        ),
      })
  })

  test('names the parameter whose gradient is not finite and the virtual worker, in the first attempt', async () => {
    const x = inputs(1).fill(0, 3 * 4, 3 * 6)
    const repeats: number[] = []
    const errors = await errorsOf(async (group) => {
      const { model, step, run } = await exactStep(group, (x) => x.sqrt())
      model.weight.assign(new Float32Array(6).fill(1))
      await run(x).finally(() => repeats.push(step.repeats))
    })
    expect(repeats).toEqual([0, 0])
    for (const error of errors)
      expect(error).toMatchObject({
        code: 'train.nan',
        message: expect.stringMatching(
          /^step 7: the gradient of "weight" from virtual worker 2 \(rank 1\) is not finite, with a loss of 0\.69/,
        ),
      })
  })

  test.each([
    ['model (parameters and running statistics)', 'model'],
    ['optimizer state (moments, exponents and loss scale)', 'moments'],
    ['optimizer state (moments, exponents and loss scale)', 'exponents'],
  ])('compare names the %s when the %s differ', async (name, what) => {
    const compared: number[] = []
    const errors = await errorsOf(async (group) => {
      const { optimizer, step, run } = await exactStep(group)
      await step.compare(group, 6)
      await run(inputs(1))
      await step.compare(group, 7)
      compared.push(group.rank)
      if (group.rank === 1) {
        if (what === 'model') (await optimizer.read())[0][2] = 5
        if (what === 'moments') optimizer.moments[1][0] += 1
        if (what === 'exponents') optimizer.exponents![0]++
      }
      await step.compare(group, 8)
    })
    expect(compared).toHaveLength(2)
    for (const error of errors) {
      expect(error.code).toBe('train.diverged')
      expect(error.message).toContain(`replicas: after step 8 the ${name} hashes to `)
      expect(error.message).toMatch(/ on rank 0, but to \w{16} on rank 1\. A device computed/)
    }
  })

  test('assigns virtual workers by speed, and computes what it would with even shares', async () => {
    const runs = async (size: number) => {
      const ends = await onRanks(size, async (group) => {
        // A simulated device, ten times slower.
        const { env } = group
        if (group.rank === 1)
          vi.spyOn(group, 'env', 'get').mockReturnValue({ ...env, now: () => 10 * env.now() })
        const { run, workers } = await exactStep(group)
        const losses = []
        for (let i = 0; i < 25; i++) losses.push((await run(inputs(1 + i))).loss[0])
        return { losses, counts: workers.assignment.counts }
      })
      return ends.map(resultOf)
    }
    const [alone] = await runs(1)
    const both = await runs(2)
    for (const { losses, counts } of both) {
      expect(counts).toEqual([4, 0])
      expect(losses).toEqual(alone.losses)
    }
  })

  test('gives the same weights when each step assigns virtual workers to random ranks', async () => {
    const random = seededRandom(9)
    const deals = Array.from({ length: 12 }, () => {
      const counts = [0, 0, 0]
      for (let i = 0; i < virtualWorkers; i++) counts[Math.floor(3 * random())]++
      return counts
    })
    const weightsOf = async (size: number) => {
      const ends = await onRanks(size, async (group) => {
        const { run, model, workers } = await exactStep(group)
        const rest = [...deals]
        if (size === 3)
          vi.spyOn(workers.assignment, 'take').mockImplementation(() => {
            workers.assignment.counts = rest.shift()!
            return true
          })
        for (let i = 0; i < deals.length; i++) await run(inputs(1 + i))
        return model.weight.read()
      })
      return ends.map(resultOf)
    }
    const [alone] = await weightsOf(1)
    for (const weights of await weightsOf(3)) expect(weights).toEqual(alone)
  })

  test.each(['float32', 'float16'])(
    'in %s continues with other ranks from an earlier state that is loaded, as one rank does',
    async (precision) => {
      const trained = async (sizes: readonly number[]) => {
        const ranks: Awaited<ReturnType<typeof ofRank>>[] = []
        const ofRank = async (group: ProcessGroup) => {
          const norm = new BatchNorm1d(2, { affine: false })
          const scale = precision === 'float16' ? new LossScale(batchSize) : undefined
          return { norm, scale, ...(await exactStep(group, (x) => norm.forward(x), scale)) }
        }
        const keep = async ({ model, norm, optimizer, scale }: (typeof ranks)[number]) => ({
          model: await model.stateDict(),
          norm: await norm.stateDict(),
          optimizer: await optimizer.stateDict(),
          scale: await scale?.stateDict(),
        })
        let kept: Awaited<ReturnType<typeof keep>> | undefined
        for (const [i, size] of sizes.entries()) {
          const ends = await onRanks(size, async (group) => {
            ranks[group.rank] ??= await ofRank(group)
            const own = ranks[group.rank]
            own.enter(group, i)
            if (kept) {
              own.model.loadStateDict(kept.model)
              own.norm.loadStateDict(kept.norm)
              own.optimizer.loadStateDict(kept.optimizer)
              if (kept.scale) own.scale?.loadStateDict(kept.scale)
            }
            await own.run(inputs(1).map((_, at) => Math.sin(at + i)))
            await own.step.compare(group, i + 1)
            const now = await keep(own)
            // Nothing of this step is to stay.
            await own.run(inputs(9).map((value, at) => value * Math.cos(at)))
            return now
          })
          ;[kept] = ends.map(resultOf)
        }
        return kept
      }
      expect(await trained([1, 3, 2, 1, 3])).toEqual(await trained([1, 1, 1, 1, 1]))
    },
  )

  test('logs how many attempts were repeated at its end when debug is on', async () => {
    const info = vi.spyOn(console, 'info').mockImplementation(() => undefined)
    setSwitches({ debug: 1 })
    try {
      const ends = await onRanks(1, async (group) => {
        const { step, run } = await exactStep(group)
        await run(inputs(1))
        await run(inputs(1))
        step.destroy()
      })
      ends.forEach(resultOf)
      const received = info.mock.calls.flat().filter((text) => String(text).includes('exact'))
      expect(received).toEqual(['tabring exact: 2 steps, 1 of their attempts repeated'])
    } finally {
      setSwitches({ debug: 0 })
      info.mockRestore()
    }
  })

  test('in float16 a step whose gradients are not finite changes nothing and halves the scale, on all ranks', async () => {
    const ends = await onRanks(2, async (group) => {
      const lossScale = new LossScale(batchSize)
      // An output's gradient is 1/16 of the scale, and below 2^16 in float16.
      const state = await lossScale.stateDict()
      lossScale.loadStateDict({ ...state, scale: 2 ** 24 })
      const { model, optimizer, run } = await exactStep(group, undefined, lossScale)
      const seen: { scale: number; isZero: boolean; exponents: number | undefined }[] = []
      for (let step = 0; step < 10; step++) {
        await run(inputs(1))
        const [scale] = lossScale.state
        const isZero = (await model.weight.read()).every((value) => value === 0)
        seen.push({ scale, isZero, exponents: optimizer.exponents?.[0] })
      }
      return { seen, weight: await model.weight.read() }
    })
    const [{ seen, weight }, other] = ends.map(resultOf)
    expect(other).toEqual({ seen, weight })
    const skipped = seen.filter(({ isZero }) => isZero)
    expect(skipped.map(({ scale }) => Math.log2(scale))).toEqual([23, 22, 21, 20, 19])
    for (const { scale } of seen.slice(5)) expect(scale).toBe(2 ** 19)
    const plain = await onRanks(1, async (group) => {
      const { model, run } = await exactStep(group)
      for (let step = 0; step < 5; step++) await run(inputs(1))
      return model.weight.read()
    })
    for (const [i, value] of resultOf(plain[0]).entries()) expect(weight[i]).toBeCloseTo(value, 2)
  })

  test('in float16 a gradient that no scale makes finite ends the run and names the virtual worker', async () => {
    const x = inputs(1).fill(0, 3 * 4, 3 * 6)
    const [error] = await errorsOf(async (group) => {
      const lossScale = new LossScale(batchSize)
      lossScale.loadStateDict({ ...(await lossScale.stateDict()), scale: 1 })
      const { model, run } = await exactStep(group, (x) => x.sqrt(), lossScale)
      model.weight.assign(new Float32Array(6).fill(1))
      await run(x)
    })
    expect(error).toMatchObject({
      code: 'train.nan',
      message: expect.stringMatching(/from virtual worker 2 \(rank 1\) is not finite/),
    })
  })

  test.each([
    ['1e-8 to 1', [1, ...Array(30).fill(1e-8), 1]],
    ['0 to 1', [1, ...Array(40).fill(0), 1]],
    ['1e-30 to 1e30', [...Array(100).fill(1e-30), 1e30]],
  ] as const)('takes a step whose gradients grow from %s', async (_, values) => {
    const ends = await onRanks(2, async (group) => {
      const { model, run } = await exactStep(group)
      for (const value of values) await run(inputs(value))
      return model.weight.read()
    })
    // By the last step alone; the bias, which had every step, has made it smaller.
    const largest = values.at(-1)!
    for (const end of ends)
      for (const weight of resultOf(end)) {
        expect(Math.abs(weight)).toBeGreaterThan(largest / 1000)
        expect(Math.abs(weight)).toBeLessThan(largest)
      }
  })

  test.each([1, 1e6, 1e12])('takes a first step with gradients of about %d', async (value) => {
    const ends = await onRanks(2, async (group) => {
      const { model, step, run } = await exactStep(group)
      await run(inputs(value))
      expect(step.repeats).toBeLessThanOrEqual(3)
      return model.weight.read()
    })
    for (const end of ends)
      for (const weight of resultOf(end)) expect(Math.abs(weight) / (value / 4)).toBeCloseTo(1, 6)
  })
})
