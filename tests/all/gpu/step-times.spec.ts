import { afterEach, expect, test } from 'vitest'
import { task } from '../../../demos/digits/demo.ts'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { DataLoader } from '../../../src/data/loader/data-loader.ts'
import type { Sample } from '../../../src/data/samples.ts'
import { AverageMeter } from '../../../src/ddp/metrics/average-meter.ts'
import { StagedUploads } from '../../../src/gpu/staging.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { square } from '../../../src/graph/functions/elementwise.ts'
import { matmul } from '../../../src/graph/functions/matmul.ts'
import { mean } from '../../../src/graph/functions/reductions.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { runTimesOf, type StepTimes } from '../../../src/graph/plan/step-program.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import { SGD } from '../../../src/optim/sgd.ts'
import { Trainer } from '../../../src/trainer/loop/trainer.ts'
import type { StepParts } from '../../../src/trainer/watch/run-events.ts'
import { uniform } from '../../../src/util/random.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { setSwitches } from '../../../src/util/switches.ts'
import { ringOf } from '../../support/process-ring.ts'
import { testRuntime } from '../../support/run-op.ts'
import { updateStep } from '../../support/update-step.ts'

// Each step's time by part: that the parts add up to the step, and that each holds what it says.

afterEach(async () => (await testRuntime()).gpu.check())

const sumOf = ({ forward, backward, wait, wire, optimizer }: StepTimes) =>
  forward + backward + wait + wire + optimizer

/** The built-in experiment; by rank, the parts of each step. `before` runs on a rank before each of its steps but the first. */
async function partsOf(
  size: number,
  before?: (rank: number) => Promise<unknown>,
): Promise<StepParts[][]> {
  const runtime = await testRuntime()
  const config = parseTrainConfig({ steps: 6, batchSize: 24, bucketCapMb: 0.3, hashEvery: 100 })
  return Promise.all(
    (await ringOf(size)).map(async (group, rank) => {
      const parts: StepParts[] = []
      const trainer = new Trainer({
        task,
        runtime,
        group,
        config,
        baseUrl: location.href,
        onEvent: (event) => {
          if (event.event !== 'step') return
          parts.push(event.times)
          const { program } = trainer
          const run = program!.run.bind(program)
          program!.run = async (...given) => {
            program!.run = run
            await before?.(rank)
            return run(...given)
          }
        },
      })
      await trainer.run()
      trainer.destroy()
      group.destroy()
      return parts
    }),
  )
}

test('the parts of each step add up to it within 2 %, on one rank and on three', async () => {
  for (const size of [1, 3]) {
    const ranks = await partsOf(size)
    for (const parts of ranks) {
      expect(parts).toHaveLength(6)
      for (const { data, total, ...device } of parts) {
        expect(Math.abs(data + sumOf(device) - total)).toBeLessThan(0.02 * total + 0.01)
        expect(device.forward).toBeGreaterThan(0)
        expect(device.backward).toBeGreaterThan(0)
        expect(device.optimizer).toBeGreaterThan(0)
        if (size === 1) expect([device.wait, device.wire]).toEqual([0, 0])
        else expect(device.wire).toBeGreaterThan(0)
      }
    }
  }
})

test('what a loader kept waiting and the times of awaited runs add up to the loop within 2 %', async () => {
  const runtime = await testRuntime()
  const weight = new Parameter([64, 64], uniform(1, 0, 64 * 64, -0.1, 0.1))
  const optimizer = new SGD([weight], { lr: 1e-3 })
  const program = await compile(
    updateStep(optimizer, ({ x }) => mean(square(matmul(matmul(x, weight), weight)))),
    { x: tensorType([256, 64]) },
    { runtime },
  )
  const row = uniform(2, 0, 64)
  for (const pinMemory of [undefined, new StagedUploads(runtime.gpu)]) {
    const loader = new DataLoader<Sample>(
      {
        length: 256 * 12,
        get: async (index) => {
          if (index % 256 === 0) await new Promise((resolve) => setTimeout(resolve, 8))
          return { x: { shape: [64], data: row.map((value) => value * (index % 7)) } }
        },
      },
      { batchSize: 256, pinMemory },
    )
    const batchTime = new AverageMeter('Time', ':6.3f', 'sum')
    const dataTime = new AverageMeter('Data', ':6.3f', 'sum')
    const deviceTime = new AverageMeter('Device', ':6.3f', 'sum')
    let end = performance.now()
    for await (const batch of loader) {
      await program.run(batch)
      dataTime.update(loader.waitedMs)
      deviceTime.update(sumOf(program.times))
      const now = performance.now()
      batchTime.update(now - end)
      end = now
    }
    expect(batchTime.count).toBe(12)
    expect(dataTime.avg).toBeGreaterThan(7)
    expect(deviceTime.sum).toBeGreaterThan(0.02 * batchTime.sum)
    const known = dataTime.sum + deviceTime.sum
    expect(Math.abs(known - batchTime.sum)).toBeLessThan(0.02 * batchTime.sum)
    pinMemory?.destroy()
  }
  program.destroy()
})

test.each([3, 4])(
  '%d ranks: all wait for one that comes late, wherever it is in the ring',
  async (size) => {
    const lateMs = 1000
    const ranks = await partsOf(
      size,
      async (rank) => rank === 1 && new Promise((resolve) => setTimeout(resolve, lateMs)),
    )
    for (const [rank, parts] of ranks.entries()) {
      // The middle of five steps: on a busy machine other ranks are late in some of them.
      const [wait, wire] = (['wait', 'wire'] as const).map(
        (part) =>
          parts
            .slice(1)
            .map((one) => one[part])
            .sort((a, b) => a - b)[2],
      )
      if (rank === 1) expect(wait).toBeLessThan(0.5 * lateMs)
      else expect(wait, `rank ${rank}`).toBeGreaterThan(0.5 * lateMs)
      expect(wire, `rank ${rank}`).toBeLessThan(0.5 * lateMs)
    }
  },
)

test('with trace on, parts are those of the kernels and add up too; a program without backward is all forward', async () => {
  setSwitches({ trace: true })
  try {
    const [parts] = await partsOf(1)
    for (const { data, total, ...device } of parts.slice(1)) {
      expect(Math.abs(data + sumOf(device) - total)).toBeLessThan(0.02 * total + 0.01)
      expect(device.forward).toBeGreaterThan(0)
      expect(device.optimizer).toBeGreaterThan(0)
    }
  } finally {
    setSwitches({ trace: false })
  }
  for (const runtime of [await testRuntime(), new ReferenceRuntime()]) {
    const types = { a: tensorType([8, 8]) }
    const program = await compile(({ a }) => ({ y: matmul(a, a) }), types, { runtime })
    const outputs = await program.run({ a: new Float32Array(64) })
    const { parts, beganMs, endedMs } = runTimesOf(outputs)
    expect(parts.forward).toBeGreaterThan(0)
    expect(parts.backward).toBe(0)
    expect(sumOf(parts)).toBeCloseTo(endedMs - beganMs, 6)
    program.destroy()
  }
})

test('each of several runs under way keeps its own times', async () => {
  const types = { a: tensorType([64, 64]) }
  const runtime = await testRuntime()
  const program = await compile(({ a }) => ({ y: matmul(a, a) }), types, { runtime })
  const a = new Float32Array(64 * 64)
  await program.run({ a })
  const began = performance.now()
  const runs = await Promise.all([1, 2, 3].map(() => program.run({ a })))
  const took = performance.now() - began
  const each = runs.map((outputs) => sumOf(runTimesOf(outputs).parts))
  // One after the other they fill the whole time, and none is counted twice.
  expect(each.reduce((sum, ms) => sum + ms, 0)).toBeLessThan(took + 0.5)
  expect(new Set(runs.map((outputs) => runTimesOf(outputs))).size).toBe(3)
  program.destroy()
})

test('what forward computes counts as forward, on the GPU and on the cpu', async () => {
  const runtime = await testRuntime()
  const size = 160
  for (const where of [runtime, new ReferenceRuntime()]) {
    const weight = new Parameter([1], new Float32Array([0.5]))
    const optimizer = new SGD([weight], { lr: 1e-3 })
    const program = await compile(
      ({ a }) => {
        let product = a
        for (let i = 0; i < 8; i++) product = matmul(product, a)
        const loss = mean(product).mul(weight)
        optimizer.zeroGrad()
        loss.backward()
        optimizer.step()
        return { loss }
      },
      { a: tensorType([size, size]) },
      { runtime: where },
    )
    const a = new Float32Array(size * size).fill(1 / size)
    await program.run({ a })
    const began = performance.now()
    await program.run({ a })
    const took = performance.now() - began
    const { times } = program
    expect(times.forward).toBeGreaterThan(5 * times.backward)
    expect(sumOf(times)).toBeGreaterThan(0.9 * took - 1)
    expect(sumOf(times)).toBeLessThan(took + 0.1)
    program.destroy()
  }
})
