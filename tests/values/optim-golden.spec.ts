import { afterEach, describe, expect, test } from 'vitest'
import type { Parameter } from '../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { Adagrad } from '../../src/optim/adagrad.ts'
import { Adam, AdamW } from '../../src/optim/adam.ts'
import { clipGradNorm, clipGradValue } from '../../src/optim/clip.ts'
import { ExponentialMovingAverage } from '../../src/optim/ema.ts'
import { Lion } from '../../src/optim/lion.ts'
import type { Optimizer } from '../../src/optim/optimizer.ts'
import { RMSprop } from '../../src/optim/rmsprop.ts'
import { SGD } from '../../src/optim/sgd.ts'
import { type StateTensor, toCamel } from '../../src/optim/state-dict.ts'
import golden from '../golden/optim.json'
import {
  allowedDistance,
  type GoldenResult,
  type GoldenTensor,
  largestDistance,
  valuesOf,
} from '../support/golden.ts'
import {
  compileGradients,
  type GradientModel,
  goldenGradients,
  goldenSteps,
  gradientModel,
} from '../support/gradient-model.ts'
import { preparedOf } from '../support/prepared-of.ts'
import { testRuntime } from '../support/run-op.ts'

// Whole optimizers, clipping and averaging over 20 steps against PyTorch's float64 results (tests/golden/optim.py): ours must
// stay within 8 times the distance of PyTorch's own float32 results.

afterEach(async () => (await testRuntime()).gpu.check())

type Options = Record<string, unknown>
const camel = (options: Options): Options =>
  Object.fromEntries(Object.entries(options).map(([key, value]) => [toCamel(key), value]))

type Groups = readonly (Options & { params: readonly Parameter[] })[]
const kinds: Record<string, new (groups: Groups, options: Options) => unknown> = {
  SGD,
  Adam,
  AdamW,
  RMSprop,
  Adagrad,
  Lion,
}

function makeOptimizer(
  model: GradientModel,
  kind: string,
  options: object,
  second: object = {},
): Optimizer {
  const groups = [{ params: [model.a] }, { params: [model.b], ...camel(second as Options) }]
  return new kinds[kind](groups, camel(options as Options)) as Optimizer
}

/** The largest share of its allowed distance that any result takes; above 1 is too far. */
function shareOf(got: ArrayLike<number>, expected: ArrayLike<number>, distance: number): number {
  return largestDistance(got, expected) / allowedDistance(distance, expected)
}

const checkpointOf = (result: GoldenTensor, at: number) => {
  const count = result.shape.slice(1).reduce((product, d) => product * d, 1)
  return valuesOf(result).slice(at * count, (at + 1) * count)
}

/** Runs all steps and returns the worst share at any checkpoint, with what each step returned. */
async function runSteps(
  model: GradientModel,
  run: (step: number) => Promise<Record<string, ArrayLike<number>>>,
  checkpoints: Record<string, unknown>,
) {
  let share = 0
  const outputs: Record<string, ArrayLike<number>>[] = []
  for (let step = 0; step < goldenSteps; step++) {
    outputs.push(await run(step))
    const at = golden.at.indexOf(step + 1)
    if (at < 0) continue
    for (const parameter of model.parameters) {
      const expected = checkpoints[parameter.name] as GoldenResult
      const got = await parameter.read()
      share = Math.max(share, shareOf(got, checkpointOf(expected, at), expected.distance))
    }
  }
  return { share, outputs }
}

describe('20 optimizer steps against PyTorch', () => {
  test.each(golden.optimizers.map(({ name }) => name))('%s', async (name) => {
    const found = golden.optimizers.find((one) => one.name === name)!
    const model = gradientModel()
    const optimizer = makeOptimizer(model, found.optimizer, found.options, found.second)
    const program = await compileGradients(model, (loss) => {
      loss.backward()
      optimizer.step()
      return undefined
    })
    const { share } = await runSteps(
      model,
      (step) => program.run(goldenGradients(step)),
      found.checkpoints,
    )
    console.log(`${name}: ${share.toFixed(2)} of what is allowed`)
    expect(share).toBeLessThanOrEqual(1)
    // One dispatch a group, whatever the rule.
    const { plan, computeEnd } = preparedOf(program)
    expect(plan.dispatches.length - computeEnd).toBe(2)

    const { state, param_groups } = await optimizer.stateDict()
    expect(param_groups.map(({ params }) => params)).toEqual([[0], [1]])
    found.state.forEach((tensors, index) => {
      const own = state[index]
      for (const [key, result] of Object.entries(tensors as Record<string, GoldenResult>)) {
        const { shape, data } = own[key] as StateTensor
        expect(shape).toEqual(result.shape)
        expect(shareOf(data, valuesOf(result), result.distance), key).toBeLessThanOrEqual(1)
      }
      const tensorKeys = Object.keys(own).filter((key) => key !== 'step')
      expect(tensorKeys.sort()).toEqual(Object.keys(tensors).sort())
      if ('step' in own) expect(own['step']).toBe(goldenSteps)
    })
    program.destroy()
  })
})

describe('clipping against PyTorch', () => {
  const clips: Record<string, (parameters: readonly Parameter[]) => Tensor | undefined> = {
    'norm 2': (p) => clipGradNorm(p, 1),
    'norm 2, often below': (p) => clipGradNorm(p, 6),
    'norm 1': (p) => clipGradNorm(p, 3, { normType: 1 }),
    'norm infinity': (p) => clipGradNorm(p, 0.5, { normType: Number.POSITIVE_INFINITY }),
    value: (p) => {
      clipGradValue(p, 0.5)
      return undefined
    },
    'value, then norm': (p) => {
      clipGradValue(p, 0.5)
      return clipGradNorm(p, 1)
    },
    'norm, then value': (p) => {
      const norm = clipGradNorm(p, 2)
      clipGradValue(p, 0.3)
      return norm
    },
  }

  test.each(golden.clips.map(({ name }) => name))('%s', async (name) => {
    const found = golden.clips.find((one) => one.name === name)!
    const model = gradientModel()
    const optimizer = makeOptimizer(model, 'SGD', { lr: 0.1, momentum: 0.9 })
    const program = await compileGradients(model, (loss) => {
      loss.backward()
      const norm = clips[name](model.parameters)
      optimizer.step()
      return norm ? { norm } : undefined
    })
    const { share, outputs } = await runSteps(
      model,
      (step) => program.run(goldenGradients(step)),
      found.checkpoints,
    )
    console.log(`${name}: ${share.toFixed(2)} of what is allowed`)
    expect(share).toBeLessThanOrEqual(1)
    outputs.forEach(({ norm }, step) => {
      if (!norm) return
      const expected = found.notes[step]
      expect(Math.abs(norm[0] - expected) / expected).toBeLessThan(1e-6)
    })
    program.destroy()
  })
})

test('a running average against PyTorch, swapped in and out', async () => {
  const { decay, lr, averages } = golden.average
  const model = gradientModel()
  const optimizer = new SGD(model.parameters, { lr })
  const ema = new ExponentialMovingAverage(model.parameters, { decay })
  const program = await compileGradients(model, (loss) => {
    loss.backward()
    optimizer.step()
    ema.update()
    return undefined
  })
  const readAll = async () => {
    const [a, b] = await Promise.all(model.parameters.map((parameter) => parameter.read()))
    return Float32Array.from([...a, ...b])
  }
  for (let step = 0; step < goldenSteps; step++) {
    await program.run(goldenGradients(step))
    const at = golden.at.indexOf(step + 1)
    if (at < 0) continue
    const own = await readAll()
    const averaged = await ema.averageParameters(readAll)
    const expected = checkpointOf(averages as GoldenTensor, at)
    expect(shareOf(averaged, expected, averages.distance)).toBeLessThanOrEqual(1)
    expect(await readAll()).toEqual(own)
  }
  ema.swap()
  await expect(program.run(goldenGradients(0))).rejects.toThrow(/holds its averaged parameters/)
  ema.swap()

  const saved = await ema.stateDict()
  const other = gradientModel()
  const copy = new ExponentialMovingAverage(other.parameters, { decay })
  copy.loadStateDict(saved)
  const otherOptimizer = new SGD(other.parameters, { lr })
  for (const [i, parameter] of other.parameters.entries()) {
    parameter.assign(await model.parameters[i].read())
  }
  const resumed = await compileGradients(other, (loss) => {
    loss.backward()
    otherOptimizer.step()
    copy.update()
    return undefined
  })
  await program.run(goldenGradients(3))
  await resumed.run(goldenGradients(3))
  expect(await copy.stateDict()).toEqual(await ema.stateDict())
  program.destroy()
  resumed.destroy()
})
