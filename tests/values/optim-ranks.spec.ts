import { afterEach, expect, test } from 'vitest'
import { DistributedDataParallel } from '../../src/ddp/data-parallel/data-parallel.ts'
import { compileAccumulated } from '../../src/graph/compile/compile-accumulated.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { Module } from '../../src/nn/module.ts'
import { AdamW } from '../../src/optim/adam.ts'
import { clipGradNorm, clipGradValue } from '../../src/optim/clip.ts'
import { ExponentialMovingAverage } from '../../src/optim/ema.ts'
import { GradScaler } from '../../src/optim/grad-scaler.ts'
import type { StateTensor } from '../../src/optim/state-dict.ts'
import { largestDistance } from '../support/golden.ts'
import {
  compileGradients,
  type GradientModel,
  goldenGradients,
  gradientLoss,
  gradientModel,
  gradientTypes,
} from '../support/gradient-model.ts'
import { ringOf } from '../support/process-ring.ts'
import { testRuntime } from '../support/run-op.ts'

// Clipping, loss scaling, averages and accumulation over several ranks: what all gradients together decide is decided the same on all.

afterEach(async () => (await testRuntime()).gpu.check())

const size = 3

class Wrapped extends Module {
  readonly a
  readonly b
  constructor({ a, b }: GradientModel) {
    super()
    this.a = a
    this.b = b
  }
  forward(x: Tensor): Tensor {
    return x
  }
}

/** Three ranks whose gradients' mean is the golden one; each parameter has a separate bucket. */
async function ranks() {
  const groups = await ringOf(size)
  return groups.map((group) => {
    const model = gradientModel()
    new DistributedDataParallel(new Wrapped(model), { processGroup: group, bucketCapMb: 0.0001 })
    return { group, model, optimizer: new AdamW(model.parameters, { lr: 0.01 }) }
  })
}

const shareOf = (step: number, rank: number) => {
  const { a, b } = goldenGradients(step)
  const weight = (rank + 1) / 2
  return { a: a.map((g) => g * weight), b: b.map((g) => g * weight) }
}

const readAll = async ({ parameters }: GradientModel) => {
  const all = await Promise.all(parameters.map((parameter) => parameter.read()))
  return all.flatMap((values) => [...values])
}

test('three ranks clip and average as one rank does', async () => {
  const members = await ranks()
  const alone = gradientModel()
  const aloneOptimizer = new AdamW(alone.parameters, { lr: 0.01 })
  const make = (model: GradientModel, optimizer: AdamW) => {
    const ema = new ExponentialMovingAverage(model.parameters, { decay: 0.8 })
    const program = compileGradients(model, (loss) => {
      loss.backward()
      clipGradValue(model.parameters, 1.5)
      const norm = clipGradNorm(model.parameters, 2)
      optimizer.step()
      ema.update()
      return { norm }
    })
    return { ema, program }
  }
  const one = make(alone, aloneOptimizer)
  const reference = await one.program
  const made = members.map(({ model, optimizer }) => make(model, optimizer))
  const programs = await Promise.all(made.map(({ program }) => program))
  expect(members[0].optimizer.buckets.length).toBe(2)
  for (let step = 0; step < 10; step++) {
    const outputs = await Promise.all(
      programs.map((program, rank) => program.run(shareOf(step, rank))),
    )
    const expected = await reference.run(goldenGradients(step))
    const norms = outputs.map(({ norm }) => norm[0])
    expect(new Set(norms).size, 'every rank sees the same norm').toBe(1)
    expect(Math.abs(norms[0] - expected.norm[0]) / expected.norm[0]).toBeLessThan(1e-6)
    expect(new Set(outputs.map(({ loss }) => loss[0])).size).toBe(1)
  }
  const expected = await readAll(alone)
  const averaged = await one.ema.averageParameters(() => readAll(alone))
  for (const [rank, { model }] of members.entries()) {
    expect(await readAll(model)).toEqual(await readAll(members[0].model))
    expect(largestDistance(await readAll(model), expected)).toBeLessThan(1e-6)
    const own = await made[rank].ema.averageParameters(() => readAll(model))
    expect(largestDistance(own, averaged)).toBeLessThan(1e-6)
  }
  for (const { group } of members) group.destroy()
  for (const program of [...programs, reference]) program.destroy()
})

test('three ranks save one state, in the layout of one rank, and continue from it bit for bit', async () => {
  const compileSteps = (model: GradientModel, optimizer: AdamW) =>
    compileGradients(model, (loss) => {
      loss.backward()
      optimizer.step()
      return undefined
    })
  const runSteps = async (members: Awaited<ReturnType<typeof ranks>>, steps: readonly number[]) => {
    const programs = await Promise.all(
      members.map(({ model, optimizer }) => compileSteps(model, optimizer)),
    )
    for (const step of steps) {
      await Promise.all(programs.map((program, rank) => program.run(shareOf(step, rank))))
    }
    for (const program of programs) program.destroy()
  }
  const members = await ranks()
  await runSteps(members, [0, 1, 2])
  const saved = await Promise.all(members.map(({ optimizer }) => optimizer.stateDict()))
  expect(saved[1]).toEqual(saved[0])
  expect(saved[2]).toEqual(saved[0])

  const alone = gradientModel()
  const optimizer = new AdamW(alone.parameters, { lr: 0.01 })
  const program = await compileSteps(alone, optimizer)
  for (const step of [0, 1, 2]) await program.run(goldenGradients(step))
  program.destroy()
  const expected = await optimizer.stateDict()
  expect(saved[0].param_groups).toEqual(expected.param_groups)
  expect(Object.keys(saved[0].state)).toEqual(['0', '1'])
  for (const [index, { step, ...tensors }] of Object.entries(expected.state)) {
    const own = saved[0].state[Number(index)]
    expect(own.step).toBe(step)
    expect(Object.keys(own).sort()).toEqual(['exp_avg', 'exp_avg_sq', 'step'])
    for (const [name, tensor] of Object.entries(tensors)) {
      const [got, wanted] = [own[name], tensor] as StateTensor[]
      expect(got.shape).toEqual(wanted.shape)
      expect(wanted.data.some((value) => value !== 0)).toBe(true)
      expect(largestDistance(got.data, wanted.data)).toBeLessThan(1e-6)
    }
  }

  const resumed = await ranks()
  await Promise.all(resumed.map(({ model }) => model.a.exchange?.ready))
  for (const [rank, { model, optimizer }] of resumed.entries()) {
    for (const [i, parameter] of model.parameters.entries())
      parameter.assign(await members[rank].model.parameters[i].read())
    optimizer.loadStateDict(saved[rank])
  }
  await runSteps(members, [3, 4])
  await runSteps(resumed, [3, 4])
  for (const [rank, { model }] of resumed.entries()) {
    expect(await readAll(model)).toEqual(await readAll(members[rank].model))
  }
  for (const { group } of [...members, ...resumed]) group.destroy()
})

test('an infinite gradient on one rank leaves the step out on all', async () => {
  const members = await ranks()
  const scalers = members.map(() => new GradScaler({ initScale: 256, growthInterval: 2 }))
  const programs = await Promise.all(
    members.map(({ model, optimizer }, rank) =>
      compileGradients(model, (loss) => {
        scalers[rank].scale(loss).backward()
        scalers[rank].unscale(optimizer)
        const norm = clipGradNorm(model.parameters, 2)
        scalers[rank].step(optimizer)
        scalers[rank].update()
        return { norm }
      }),
    ),
  )
  const scales: number[] = []
  for (let step = 0; step < 5; step++) {
    const before = await readAll(members[0].model)
    await Promise.all(
      programs.map((program, rank) => {
        const share = shareOf(step, rank)
        if (step === 1 && rank === 2) share.a[3] = Number.NEGATIVE_INFINITY
        return program.run(share)
      }),
    )
    const after = await Promise.all(members.map(({ model }) => readAll(model)))
    expect(after[1]).toEqual(after[0])
    expect(after[2]).toEqual(after[0])
    if (step === 1) expect(after[0]).toEqual(before)
    else expect(after[0]).not.toEqual(before)
    const all = await Promise.all(scalers.map((scaler) => scaler.getScale()))
    expect(new Set(all).size).toBe(1)
    scales.push(all[0])
  }
  expect(scales).toEqual([256, 128, 128, 256, 256])
  for (const { group } of members) group.destroy()
  for (const program of programs) program.destroy()
})

test('micro-steps exchange nothing; the last one exchanges their sum', async () => {
  const members = await ranks()
  const alone = gradientModel()
  const aloneOptimizer = new AdamW(alone.parameters, { lr: 0.01 })
  const make = async (model: GradientModel, optimizer: AdamW) =>
    compileAccumulated(
      (inputs) => {
        const loss = gradientLoss(model, inputs)
        loss.backward()
        clipGradNorm(model.parameters, 2)
        optimizer.step()
        return { loss }
      },
      gradientTypes,
      { steps: 2, runtime: await testRuntime() },
    )
  const reference = await make(alone, aloneOptimizer)
  const programs = await Promise.all(members.map(({ model, optimizer }) => make(model, optimizer)))
  const sent = () => members.map(({ group }) => group.stats().payloadBytesSent)
  for (let step = 0; step < 8; step++) {
    const before = sent()
    const expected = await reference.run(goldenGradients(step))
    const outputs = await Promise.all(
      programs.map((program, rank) => program.run(shareOf(step, rank))),
    )
    if (step % 2 === 0) expect(sent()).toEqual(before)
    else {
      expect(sent()[0]).toBeGreaterThan(before[0])
      // The loss of the last share is the ranks' mean, not weighed by the accumulation.
      expect(outputs[0].loss[0]).toBeCloseTo(expected.loss[0], 4)
    }
  }
  const expected = await readAll(alone)
  for (const { model } of members) {
    expect(await readAll(model)).toEqual(await readAll(members[0].model))
    expect(largestDistance(await readAll(model), expected)).toBeLessThan(2e-6)
  }
  for (const { group } of members) group.destroy()
  for (const program of [...programs, reference]) program.destroy()
})
