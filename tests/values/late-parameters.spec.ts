import { afterEach, describe, expect, test } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import { ReferenceRuntime, type Runtime } from '../../src/graph/memory/runtime.ts'
import type { StepProgram } from '../../src/graph/plan/step-program.ts'
import type { Parameter } from '../../src/graph/trace/parameter.ts'
import { Adagrad } from '../../src/optim/adagrad.ts'
import { Adam, AdamW } from '../../src/optim/adam.ts'
import { GradScaler } from '../../src/optim/grad-scaler.ts'
import type { Optimizer } from '../../src/optim/optimizer.ts'
import { RMSprop } from '../../src/optim/rmsprop.ts'
import { SGD } from '../../src/optim/sgd.ts'
import { toCamel } from '../../src/optim/state-dict.ts'
import golden from '../golden/optim-late.json'
import {
  allowedDistance,
  type GoldenResult,
  type GoldenTensor,
  largestDistance,
  valuesOf,
} from '../support/golden.ts'
import {
  type GradientModel,
  goldenGradients,
  goldenSteps,
  gradientModel,
  gradientTypes,
  readParameters,
} from '../support/gradient-model.ts'
import { preparedOf } from '../support/prepared-of.ts'
import { testRuntime } from '../support/run-op.ts'

// Parameters that join a run late, unfrozen or by addParamGroup, have a separate count of steps, as in PyTorch (tests/golden/optim_late.py).

afterEach(async () => (await testRuntime()).gpu.check())

type Params = readonly Parameter[]
const kinds: Record<string, new (params: Params, options: object) => unknown> = {
  SGD,
  Adam,
  AdamW,
  RMSprop,
  Adagrad,
}

type Found = (typeof golden.cases)[number]

/** The case's optimizer: of `a` alone where `b` is added later. */
function optimizerOf({ optimizer, options, is_added }: Found, model: GradientModel): Optimizer {
  const camel = Object.entries(options).map(([key, value]) => [toCamel(key), value])
  const params = is_added ? [model.a] : model.parameters
  return new kinds[optimizer](params, Object.fromEntries(camel)) as Optimizer
}

/** A step that trains `trained`, whose gradients are the inputs. */
function compileStep(
  trained: Params,
  optimizer: Optimizer,
  scaler: GradScaler,
  runtime: Runtime | ReferenceRuntime,
): Promise<StepProgram> {
  return compile(
    (inputs) => {
      const losses = trained.map((parameter) =>
        parameter.mul(inputs[parameter.name as 'a' | 'b']).sum(),
      )
      scaler.scale(losses.reduce((sum, loss) => sum.add(loss))).backward()
      scaler.step(optimizer)
      scaler.update()
      return {}
    },
    gradientTypes,
    { runtime },
  )
}

const checkpointOf = (result: GoldenTensor, at: number) => {
  const count = result.shape.slice(1).reduce((product, d) => product * d, 1)
  return valuesOf(result).slice(at * count, (at + 1) * count)
}

const stepsOf = async (optimizer: Optimizer) => {
  const { state } = await optimizer.stateDict()
  return [0, 1].map((index) => state[index]?.['step'] ?? null)
}

describe.each(['webgpu', 'reference'])('a parameter joins after 8 steps, on %s', (device) => {
  test.each(golden.cases.map(({ name }) => name))('%s', async (name) => {
    const found = golden.cases.find((one) => one.name === name)!
    const runtime = device === 'reference' ? new ReferenceRuntime() : await testRuntime()
    const model = gradientModel()
    const optimizer = optimizerOf(found, model)
    const enabled = found.left_out.length > 0
    const scaler = new GradScaler({ enabled, initScale: 64 })
    const alone = await compileStep([model.a], optimizer, scaler, runtime)
    let program = alone
    for (let step = 0; step < goldenSteps; step++) {
      if (step === golden.joins) {
        if (found.is_added) optimizer.addParamGroup({ params: [model.b] })
        program = await compileStep(model.parameters, optimizer, scaler, runtime)
      }
      const gradients = goldenGradients(step)
      if ((found.left_out as readonly number[]).includes(step)) gradients.a[0] = Number.NaN
      await program.run(gradients)
      const at = golden.at.indexOf(step + 1)
      if (at < 0) continue
      for (const key of ['a', 'b'] as const) {
        const expected = found.checkpoints[key] as GoldenResult
        const values = checkpointOf(expected, at)
        const allowed = allowedDistance(expected.distance, values)
        const distance = largestDistance(await model[key].read(), values)
        expect(distance, `${key} after ${step + 1}`).toBeLessThanOrEqual(allowed)
      }
    }
    expect(await stepsOf(optimizer)).toEqual(found.steps)
    alone.destroy()
    program.destroy()
  })
})

test('a parameter that joins after many steps moves by the learning rate in its first', async () => {
  const runtime = await testRuntime()
  const model = gradientModel()
  const optimizer = new Adam(model.parameters, { lr: 0.1 })
  const off = new GradScaler({ enabled: false })
  const alone = await compileStep([model.a], optimizer, off, runtime)
  for (let step = 0; step < 1000; step++) await alone.run(goldenGradients(step % goldenSteps))
  const program = await compileStep(model.parameters, optimizer, off, runtime)
  const [, before] = await readParameters(model)
  const gradients = goldenGradients(3)
  gradients.b.fill(0.5)
  await program.run(gradients)
  const [, after] = await readParameters(model)
  // torch.optim.Adam: lr g / (|g| + eps), 0.1 to eps / |g| = 2e-8.
  after.forEach((value, i) => {
    expect(before[i] - value).toBeCloseTo(0.1, 6)
  })
  // One dispatch more than a step of `a` alone, for the bucket that joined.
  const updates = (program: StepProgram) => {
    const { plan, computeEnd } = preparedOf(program)
    return plan.dispatches.length - computeEnd
  }
  expect([updates(alone), updates(program)]).toEqual([1, 2])
  alone.destroy()
  program.destroy()
})

describe('a state with counts by parameter', () => {
  const off = new GradScaler({ enabled: false })
  const make = () => {
    const model = gradientModel()
    const optimizer = new AdamW(model.parameters, { lr: 0.01 })
    return { model, optimizer }
  }
  /** `a` trained for 8 steps, both for 4 more. */
  const begin = async () => {
    const runtime = await testRuntime()
    const { model, optimizer } = make()
    const alone = await compileStep([model.a], optimizer, off, runtime)
    for (let step = 0; step < 8; step++) await alone.run(goldenGradients(step))
    const both = await compileStep(model.parameters, optimizer, off, runtime)
    for (let step = 8; step < 12; step++) await both.run(goldenGradients(step))
    const saved = structuredClone(await optimizer.stateDict())
    return { runtime, model, optimizer, alone, both, saved, weights: await readParameters(model) }
  }

  test('continues bit for bit when it is loaded before the step is compiled', async () => {
    const { runtime, model, optimizer, alone, both, saved, weights } = await begin()
    expect([saved.state[0]['step'], saved.state[1]['step']]).toEqual([12, 4])
    const other = make()
    other.optimizer.loadStateDict(saved)
    expect(await other.optimizer.stateDict()).toEqual(saved)
    other.model.parameters.forEach((parameter, i) => {
      parameter.assign(weights[i])
    })
    const resumed = await compileStep(other.model.parameters, other.optimizer, off, runtime)
    for (let step = 12; step < 20; step++) {
      await both.run(goldenGradients(step))
      await resumed.run(goldenGradients(step))
    }
    expect(await readParameters(other.model)).toEqual(await readParameters(model))
    expect(await other.optimizer.stateDict()).toEqual(await optimizer.stateDict())
    expect(await stepsOf(optimizer)).toEqual([20, 12])
    for (const program of [alone, both, resumed]) program.destroy()
  })

  test('loads into the run that saved it, and from before the parameter joined', async () => {
    const { optimizer, alone, both, saved } = await begin()
    await both.run(goldenGradients(12))
    optimizer.loadStateDict(saved)
    expect(await optimizer.stateDict()).toEqual(saved)
    const { 0: first } = saved.state
    optimizer.loadStateDict({ ...saved, state: { 0: first } })
    expect(await stepsOf(optimizer)).toEqual([12, null])
    await both.run(goldenGradients(12))
    expect(await stepsOf(optimizer)).toEqual([13, 1])
    for (const program of [alone, both]) program.destroy()
  })

  test('is refused by a compiled step that updates these parameters together', async () => {
    const { runtime, alone, both, saved } = await begin()
    const { model, optimizer } = make()
    const together = await compileStep(model.parameters, optimizer, off, runtime)
    await together.run(goldenGradients(0))
    expect(() => optimizer.loadStateDict(saved)).toThrow(
      /the compiled step updates "b" and "a" together, so their step counts must agree, got 4 and 12. Load the state before compiling./,
    )
    expect(await stepsOf(optimizer)).toEqual([1, 1])
    for (const program of [alone, both, together]) program.destroy()
  })
})
