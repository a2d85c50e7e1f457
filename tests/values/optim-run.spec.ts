import { afterEach, describe, expect, test } from 'vitest'
import { CosineAnnealingLR, OneCycleLR } from '../../src/entries/optim/lr-scheduler.ts'
import { compileAccumulated } from '../../src/graph/compile/compile-accumulated.ts'
import { crossEntropy, stepScalar } from '../../src/graph/functions/linear.ts'
import { ReferenceRuntime } from '../../src/graph/memory/runtime.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { adam } from '../../src/kernels/adam/adam.ts'
import type { HostArray } from '../../src/kernels/op.ts'
import { AdamW } from '../../src/optim/adam.ts'
import { clipGradNorm, clipGradValue } from '../../src/optim/clip.ts'
import { ExponentialMovingAverage } from '../../src/optim/ema.ts'
import { GradScaler } from '../../src/optim/grad-scaler.ts'
import { RMSprop } from '../../src/optim/rmsprop.ts'
import { SGD } from '../../src/optim/sgd.ts'
import {
  batchOf,
  compileTraining,
  goldenModel,
  goldenRuns,
  losses,
  stepTypes,
} from '../support/formula-model.ts'
import { largestDistance } from '../support/golden.ts'
import {
  compileGradients,
  type GradientModel,
  goldenGradients,
  gradientLoss,
  gradientModel,
  gradientTypes,
  readParameters,
} from '../support/gradient-model.ts'
import { runOp, testRuntime } from '../support/run-op.ts'

// What training runs do with optimizers: change settings, resume, accumulate; and the same steps on the CPU.

afterEach(async () => (await testRuntime()).gpu.check())

describe('settings', () => {
  test('schedules change learning rate, momentum and decay without compiling or creating anything', async () => {
    const { gpu } = await testRuntime()
    const model = gradientModel()
    const optimizer = new SGD(
      [{ params: [model.a] }, { params: [model.b], lr: 0.02, weightDecay: 0.1 }],
      { lr: 0.1, momentum: 0.9 },
    )
    const scheduler = new OneCycleLR(optimizer, [0.2, 0.1], { totalSteps: 20 })
    const program = await compileGradients(model, (loss) => {
      loss.backward()
      optimizer.step()
      return undefined
    })
    // The same in plain numbers.
    const expected = (await readParameters(model)).map((values) => Float64Array.from(values))
    const buffers = expected.map((values) => new Float64Array(values.length))
    await program.run(goldenGradients(0))
    const before = { ...gpu.counters }
    const follow = (step: number) => {
      const gradients = goldenGradients(step)
      ;[gradients.a, gradients.b].forEach((gradient, i) => {
        const { lr, momentum, weightDecay } = optimizer.paramGroups[i]
        gradient.forEach((g, at) => {
          const d = g + weightDecay * expected[i][at]
          buffers[i][at] = step === 0 ? d : momentum * buffers[i][at] + d
          expected[i][at] -= lr * buffers[i][at]
        })
      })
    }
    follow(0)
    for (let step = 1; step < 12; step++) {
      scheduler.step()
      optimizer.paramGroups[1].weightDecay = 0.1 / step
      await program.run(goldenGradients(step))
      follow(step)
    }
    const { buffers: made, bindGroups, pipelines } = gpu.counters
    expect({ made, bindGroups, pipelines }).toEqual({
      made: before.buffers,
      bindGroups: before.bindGroups,
      pipelines: before.pipelines,
    })
    const got = await readParameters(model)
    got.forEach((values, i) => {
      expect(largestDistance(values, expected[i])).toBeLessThan(2e-6)
    })
    program.destroy()
  })

  test('bad settings and parameters are refused by name', () => {
    const { a, parameters } = gradientModel()
    expect(() => new AdamW(parameters, { lr: -1 })).toThrow(/AdamW: lr must be at least 0, got -1/)
    expect(() => new AdamW(parameters, { betas: [0.9, 1] })).toThrow(
      /betas\[1\] must be at least 0/,
    )
    expect(() => new SGD(parameters, { nesterov: true })).toThrow(/nesterov needs a momentum/)
    expect(() => new SGD([{ params: [a] }, { params: [a] }])).toThrow(
      /SGD: parameter .+ is listed twice among 2/,
    )
    expect(() => new RMSprop([])).toThrow(/RMSprop: params has no parameters/)
    expect(() => clipGradNorm(parameters, 1)).toThrow(
      /works only inside a function passed to compile/,
    )
  })

  test('clipping in the wrong place is refused', async () => {
    const model = gradientModel()
    const optimizer = new SGD(model.parameters, { lr: 0.1 })
    const compiled = (finish: Parameters<typeof compileGradients>[1]) =>
      compileGradients(model, finish)
    await expect(
      compiled(() => {
        clipGradNorm(model.parameters, 1)
        return undefined
      }),
    ).rejects.toThrow(/clipGradNorm: no parameter has a gradient/)
    await expect(
      compiled((loss) => {
        loss.backward()
        optimizer.step()
        clipGradValue(model.parameters, 1)
        return undefined
      }),
    ).rejects.toThrow(/called after optimizer.step\(\). Call it between/)
    await expect(
      compiled((loss) => {
        loss.backward()
        clipGradNorm([model.a], 1)
        optimizer.step()
        return undefined
      }),
    ).rejects.toThrow(/all parameters of a group must be passed together, but "b" is missing/)
    await expect(
      compiled((loss) => {
        loss.backward()
        const norm = clipGradNorm(model.parameters, 1)
        optimizer.step()
        return { double: norm.add(norm) }
      }),
    ).rejects.toThrow(/reads a gradient norm/)
  })
})

describe('resuming', () => {
  const kinds = {
    'AdamW with amsgrad': (model: GradientModel) =>
      new AdamW([{ params: [model.a] }, { params: [model.b], lr: 0.05 }], {
        lr: 0.01,
        amsgrad: true,
      }),
    'SGD with dampening': (model: GradientModel) =>
      new SGD(model.parameters, { lr: 0.1, momentum: 0.9, dampening: 0.3 }),
    'RMSprop, centered': (model: GradientModel) =>
      new RMSprop(model.parameters, { lr: 0.01, centered: true, momentum: 0.5, eps: 1e-3 }),
  }

  test.each(Object.entries(kinds))('%s continues bit for bit', async (_name, make) => {
    const start = async (model: GradientModel) => {
      const optimizer = make(model)
      const scheduler = new CosineAnnealingLR(optimizer, 15)
      const compiled = () =>
        compileGradients(model, (loss) => {
          loss.backward()
          clipGradNorm(model.parameters, 3)
          optimizer.step()
          return undefined
        })
      return { optimizer, scheduler, compiled }
    }
    const model = gradientModel()
    const one = await start(model)
    const program = await one.compiled()
    for (let step = 0; step < 6; step++) {
      await program.run(goldenGradients(step))
      one.scheduler.step()
    }
    const saved = structuredClone(await one.optimizer.stateDict())
    const savedScheduler = JSON.parse(JSON.stringify(one.scheduler.stateDict()))
    const weights = await readParameters(model)

    // Loaded before the step is compiled, and after a step of another past.
    for (const isLate of [false, true]) {
      const other = gradientModel()
      const two = await start(other)
      const early = isLate ? await two.compiled() : undefined
      if (early) await early.run(goldenGradients(19))
      two.optimizer.loadStateDict(saved)
      two.scheduler.loadStateDict(savedScheduler)
      expect(await two.optimizer.stateDict()).toEqual(saved)
      other.parameters.forEach((parameter, i) => {
        parameter.assign(weights[i])
      })
      const resumed = early ?? (await two.compiled())
      const reference = gradientModel()
      const three = await start(reference)
      const whole = await three.compiled()
      for (let step = 0; step < 12; step++) {
        await whole.run(goldenGradients(step))
        three.scheduler.step()
        if (step < 6) continue
        await resumed.run(goldenGradients(step))
        two.scheduler.step()
      }
      expect(await readParameters(other)).toEqual(await readParameters(reference))
      expect(await two.optimizer.stateDict()).toEqual(await three.optimizer.stateDict())
      resumed.destroy()
      whole.destroy()
    }
    program.destroy()
  })

  test('a state of another model or optimizer is refused', async () => {
    const model = gradientModel()
    const optimizer = new AdamW(model.parameters)
    const empty = await optimizer.stateDict()
    expect(empty).toEqual({
      state: {},
      param_groups: [
        {
          lr: 1e-3,
          betas: [0.9, 0.999],
          eps: 1e-8,
          weight_decay: 0.01,
          amsgrad: false,
          params: [0, 1],
        },
      ],
    })
    expect(() => optimizer.loadStateDict({ state: {}, param_groups: [] })).toThrow(
      /expected groups of \[2\] parameters, got \[\]/,
    )
    const [group] = empty.param_groups
    expect(() =>
      optimizer.loadStateDict({ state: {}, param_groups: [{ ...group, maximize: true }] }),
    ).toThrow(/AdamW has no setting "maximize"/)
    const data = new Float32Array(2)
    const moment = { shape: [2], data }
    const state = { 0: { step: 1, exp_avg: moment, exp_avg_sq: moment } }
    expect(() => optimizer.loadStateDict({ state, param_groups: [group] })).toThrow(
      /exp_avg of "a" must be \[3, 5\], got \[2\]/,
    )
  })
})

describe('gradient accumulation', () => {
  const [run] = goldenRuns

  test('micro-steps and one update equal one big batch', async () => {
    const big = await compileTraining(run, goldenModel(run), run.batchSize)
    const model = goldenModel(run)
    const optimizer = new AdamW(model.parameters(), { lr: run.options.lr })
    const k = 4
    const rows = run.batchSize / k
    const program = await compileAccumulated(
      ({ x, y }) => {
        const loss = crossEntropy(model.forward(x), y, { count: stepScalar('count') })
        optimizer.zeroGrad()
        loss.backward()
        const norm = clipGradNorm(model.parameters(), 100)
        optimizer.step()
        return { loss, norm }
      },
      stepTypes(run.model, rows),
      { steps: k, runtime: await testRuntime() },
    )
    const expected = await losses(run, big.program, 8)
    for (let step = 0; step < 8; step++) {
      const parts: Promise<number>[] = []
      for (let part = 0; part < k; part++) {
        expect(program.isLast).toBe(part === k - 1)
        const batch = batchOf(step * run.batchSize + part * rows, rows)
        // Not awaited: runs keep their order.
        const outputs = program.run(batch, { count: rows })
        parts.push(
          outputs.then(({ loss, norm }) => {
            expect(norm[0] > 0).toBe(part === k - 1)
            return loss[0]
          }),
        )
      }
      const shares = await Promise.all(parts)
      const loss = shares.reduce((sum, share) => sum + share, 0) / k
      expect(Math.abs(loss - expected[step]) / expected[step]).toBeLessThan(3e-6)
    }
    expect(optimizer.stepCount).toBe(8)
    program.destroy()
    big.program.destroy()
  })

  test('the sums are exact, and an early update uses the runs so far', async () => {
    const model = gradientModel()
    const optimizer = new SGD(model.parameters, { lr: 1 })
    const step = (inputs: Record<string, Tensor>) => {
      const loss = model.a.mul(inputs['a']).sum().add(model.b.mul(inputs['b']).sum())
      loss.backward()
      optimizer.step()
      return { loss }
    }
    const program = await compileAccumulated(step, gradientTypes, {
      steps: 3,
      weight: 1,
      runtime: await testRuntime(),
    })
    const expected = await readParameters(model)
    const take = (first: number, count: number) => {
      const [sumA, sumB] = expected.map((values) => new Float32Array(values.length))
      for (let i = first; i < first + count; i++) {
        const { a, b } = goldenGradients(i)
        a.forEach((g, at) => {
          sumA[at] += g
        })
        b.forEach((g, at) => {
          sumB[at] += g
        })
      }
      ;[sumA, sumB].forEach((sum, i) => {
        sum.forEach((g, at) => {
          expected[i][at] -= g
        })
      })
    }
    for (let i = 0; i < 3; i++) await program.run(goldenGradients(i))
    take(0, 3)
    expect(await readParameters(model)).toEqual(expected)
    await program.run(goldenGradients(3))
    await program.run(goldenGradients(4), {}, { last: true })
    take(3, 2)
    expect(await readParameters(model)).toEqual(expected)
    program.destroy()
  })
})

test('the CPU runs the same steps: clipping, loss scale, average, accumulation', async () => {
  const ends: Float32Array[][] = []
  for (const runtime of [await testRuntime(), new ReferenceRuntime()]) {
    const model = gradientModel()
    const optimizer = new AdamW(model.parameters, { lr: 0.01, amsgrad: true })
    const scaler = new GradScaler({ initScale: 64, growthInterval: 2 })
    const ema = new ExponentialMovingAverage(model.parameters, { decay: 0.7 })
    const program = await compileAccumulated(
      (inputs) => {
        scaler.scale(gradientLoss(model, inputs)).backward()
        scaler.unscale(optimizer)
        clipGradValue(model.parameters, 1)
        const norm = clipGradNorm(model.parameters, 2)
        scaler.step(optimizer)
        scaler.update()
        ema.update()
        return { norm }
      },
      gradientTypes,
      { steps: 2, runtime },
    )
    const norms: number[] = []
    for (let step = 0; step < 12; step++) {
      const gradients = goldenGradients(step)
      if (step === 6) gradients.a[0] = Number.NaN
      const { norm } = await program.run(gradients)
      if (step !== 7) norms.push(norm[0])
    }
    expect(await scaler.getScale()).toBe(128)
    const { state } = await optimizer.stateDict()
    expect(state[0]['step']).toBe(5)
    const averages = await ema.averageParameters(() => readParameters(model))
    ends.push([...(await readParameters(model)), ...averages, Float32Array.from(norms)])
    program.destroy()
  }
  ends[0].forEach((values, i) => {
    expect(largestDistance(values, ends[1][i])).toBeLessThan(2e-6)
  })
})

describe('update kernels', () => {
  const count = 9216
  const names = ['decay', 'l2', 'beta1', 'oneMinusBeta1', 'beta2', 'oneMinusBeta2', 'stepSize']
  const settings = Object.fromEntries([...names, 'eps'].map((name, slot) => [name, { slot }]))
  const scalars = [0.999, 0.01, 0.9, 0.1, 0.99, 0.01, 0.01, 1e-8]
  const contents = Array.from({ length: 4 }, (_, tensor) =>
    Float64Array.from({ length: count }, (_, i) => Math.abs(Math.fround(Math.sin(i + tensor)))),
  )
  const update = async (variant: string, slices: readonly [start: number, length: number][]) => {
    let inputs: HostArray[] = contents
    for (const [start, length] of slices) {
      const call = {
        inputs: contents.map(() => ({ shape: [count], dtype: 'f32' as const })),
        outputs: [],
        attrs: { settings, start, length },
      }
      const named = adam.variants.find(({ name }) => name === variant)!
      const { updated } = await runOp(adam, named, call, inputs, scalars)
      const [param, m, v] = updated.map((words) =>
        Float64Array.from(new Float32Array(words.buffer, words.byteOffset, count)),
      )
      inputs = [param, contents[1], m, v]
    }
    return inputs
  }

  test('every variant, and every cut into slices, gives the same bits', async () => {
    const whole = await update('naive', [[0, count]])
    for (const { name } of adam.variants) {
      expect(await update(name, [[0, count]]), name).toEqual(whole)
    }
    const cut = await update('naive', [
      [0, 13],
      [13, 1000],
      [1013, count - 1013],
    ])
    expect(cut, 'ranks that update their own slices end with the bits of one rank').toEqual(whole)
  })
})
