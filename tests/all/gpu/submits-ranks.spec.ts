import { afterEach, expect, test } from 'vitest'
import { DistributedDataParallel } from '../../../src/ddp/data-parallel/data-parallel.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../../src/graph/trace/tensor.ts'
import { Module } from '../../../src/nn/module.ts'
import { AdamW } from '../../../src/optim/adam.ts'
import { clipGradNorm, clipGradValue } from '../../../src/optim/clip.ts'
import { ExponentialMovingAverage } from '../../../src/optim/ema.ts'
import { GradScaler } from '../../../src/optim/grad-scaler.ts'
import { uniform } from '../../../src/util/random.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { ringOf } from '../../support/process-ring.ts'
import { testRuntime } from '../../support/run-op.ts'

// How often a step of several ranks hands work to its device: 2 x buckets, and a submit for each thing that all of them wait for.

afterEach(async () => (await testRuntime()).gpu.check())

const size = 3

/** Two parameters in separate buckets. */
class Two extends Module {
  readonly a: Parameter
  readonly b: Parameter
  constructor(count: number) {
    super()
    this.a = new Parameter([count], uniform(1, 0, count))
    this.b = new Parameter([count], uniform(2, 0, count))
  }
  forward(x: Tensor): Tensor {
    return this.a.mul(x).sum().add(this.b.mul(x).sum())
  }
}

interface Rules {
  clips?: number
  clipsValues?: boolean
  scales?: boolean
  averages?: boolean
}

/** By rank: submits a step, and the parameters after three of them. */
async function stepsOf(count: number, { clips, clipsValues, scales, averages }: Rules) {
  const runtime = await testRuntime()
  const groups = await ringOf(size)
  const members = await Promise.all(
    groups.map(async (processGroup) => {
      const model = new Two(count)
      const ddp = new DistributedDataParallel(model, { processGroup, bucketCapMb: 0.0001 })
      const parameters = ddp.parameters()
      const optimizer = new AdamW(parameters, { lr: 0.01 })
      const scaler = new GradScaler({ enabled: scales === true, initScale: 256 })
      const ema = new ExponentialMovingAverage(parameters)
      const program = await compile(
        ({ x }) => {
          const loss = ddp.forward(x)
          optimizer.zeroGrad()
          scaler.scale(loss).backward()
          if (clips !== undefined || clipsValues) scaler.unscale(optimizer)
          if (clipsValues) clipGradValue(parameters, 0.4)
          const norm = clips === undefined ? loss : clipGradNorm(parameters, 2, { normType: clips })
          scaler.step(optimizer)
          if (scales) scaler.update()
          if (averages) ema.update()
          return { loss, norm }
        },
        { x: tensorType([count]) },
        { runtime },
      )
      return { model, program, optimizer }
    }),
  )
  expect(members[0].optimizer.buckets).toHaveLength(2)
  const { counters } = runtime.gpu
  const before = counters.submits
  const steps = 3
  for (let step = 0; step < steps; step++) {
    const x = uniform(3, step, count)
    const weight = (rank: number) => ({ gradientWeight: (rank + 1) / 6 })
    await Promise.all(members.map(({ program }, rank) => program.run({ x }, weight(rank))))
  }
  const submits = (counters.submits - before) / (size * steps)
  const parameters = await Promise.all(
    members.map(async ({ model }) => [...(await model.a.read()), ...(await model.b.read())]),
  )
  for (const [rank, { program }] of members.entries()) {
    groups[rank].destroy()
    program.destroy()
  }
  return { submits, parameters }
}

const everything = { clips: 2, scales: true, averages: true }

test.each<[Rules, number]>([
  [{}, 4],
  [{ averages: true }, 5],
  [{ clips: 2 }, 5],
  [{ scales: true }, 5],
  [everything, 6],
  [{ ...everything, clips: 1 }, 6],
  [{ ...everything, clips: Number.POSITIVE_INFINITY }, 6],
  // A norm of gradients that were clipped one by one has to wait for the scaler's word.
  [{ ...everything, clipsValues: true }, 7],
])('%o: %d submits of two buckets', async (rules, expected) => {
  const { submits, parameters } = await stepsOf(512, rules)
  expect(submits).toBe(expected)
  for (const own of parameters) expect(own).toEqual(parameters[0])
  expect(parameters[0].every(Number.isFinite)).toBe(true)
})

test('ranks without a part of any bucket take part in norms and averages all the same', async () => {
  // 64 elements are one unit of alignment: the first rank's. The others submit backward, the norm, what comes of it, the average.
  const { submits, parameters } = await stepsOf(64, everything)
  expect(submits).toBe((6 + 5 + 5) / size)
  for (const own of parameters) expect(own).toEqual(parameters[0])
})

test('a scaled and clipped step ends where one without a scaler does', async () => {
  const scaled = await stepsOf(512, { clips: 2, scales: true })
  const plain = await stepsOf(512, { clips: 2 })
  const distance = scaled.parameters[0].map((value, i) => Math.abs(value - plain.parameters[0][i]))
  expect(Math.max(...distance)).toBeLessThan(1e-6)
})
