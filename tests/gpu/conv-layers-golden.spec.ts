import { afterEach, describe, expect, test } from 'vitest'
import { compile } from '../../src/graph/compile.ts'
import { runEagerly } from '../../src/graph/eager.ts'
import { batchNorm } from '../../src/graph/functions/batch-norm.ts'
import { conv1d, conv2d, convTranspose2d } from '../../src/graph/functions/convolution.ts'
import {
  adaptiveAvgPool1d,
  adaptiveAvgPool2d,
  avgPool1d,
  avgPool2d,
  maxPool1d,
} from '../../src/graph/functions/pooling.ts'
import { ModuleBuffer } from '../../src/graph/module-buffer.ts'
import { Parameter } from '../../src/graph/parameter.ts'
import type { Tensor } from '../../src/graph/tensor.ts'
import type { Module } from '../../src/nn/module.ts'
import { countElements, tensorType } from '../../src/util/shape.ts'
import golden from '../golden/conv-layers.json'
import {
  compileConvRun,
  convModel,
  convOptimizer,
  convRecipes,
  convRuns,
  convRuntime,
  convStep,
  convTypes,
} from '../support/conv-models.ts'
import { formulaUniform } from '../support/formula-data.ts'
import { allowedDistance, type GoldenResult, largestDistance, valuesOf } from '../support/golden.ts'
import { testRuntime } from '../support/run-op.ts'

// Layers of convolution, pooling and batch normalization through the functions that users call, gradients by autograd, against
// PyTorch (tests/golden/conv_layers.py): at most 5 times PyTorch's own float32 distance from float64.

afterEach(async () => (await testRuntime()).gpu.check())

// biome-ignore lint/suspicious/noExplicitAny: options come from a file.
type Options = any
type Tensors = Record<string, Tensor>

const functions: Record<string, (given: Tensors, options: Options) => Tensor> = {
  conv1d: ({ x, w, b }, options) => conv1d(x, w, b, options),
  conv2d: ({ x, w, b }, options) => conv2d(x, w, b, options),
  convTranspose2d: ({ x, w, b }, options) => convTranspose2d(x, w, b, options),
  avgPool1d: ({ x }, { kernel, ...options }) => avgPool1d(x, kernel, options),
  avgPool2d: ({ x }, { kernel, ...options }) => avgPool2d(x, kernel, options),
  adaptiveAvgPool1d: ({ x }, { kernel }) => adaptiveAvgPool1d(x, kernel),
  adaptiveAvgPool2d: ({ x }, { kernel }) => adaptiveAvgPool2d(x, kernel),
  maxPool1d: ({ x }, { kernel, ...options }) => maxPool1d(x, kernel, options),
  batchNorm: ({ x, weight, bias, running_mean: mean, running_var: variance }, options) =>
    batchNorm(x, weight, bias, {
      ...options,
      running: { mean, variance, batches: new ModuleBuffer([], Int32Array.of(0)) },
    }),
}

const shares: string[] = []

function hold(what: string, got: ArrayLike<number>, result: GoldenResult): void {
  const expected = valuesOf(result)
  const distance = largestDistance(got, expected)
  const allowed = allowedDistance(result.distance, expected)
  shares.push(`${what} ${(distance / allowed).toFixed(2)}`)
  expect(distance, `${what}: PyTorch's own distance is ${result.distance}`).toBeLessThanOrEqual(
    allowed,
  )
}

describe('layers against PyTorch', () => {
  for (const example of golden.layers) {
    test(example.name, async () => {
      const outputs = example.outputs as unknown as Record<string, GoldenResult>
      const parameters: Record<string, Parameter> = {}
      const buffers: Record<string, ModuleBuffer> = {}
      for (const [key, { shape, seed }] of Object.entries(example.inputs)) {
        const drawn = formulaUniform(seed, countElements(shape), golden.bound)
        const data = key === 'running_var' ? drawn.map((value) => Math.abs(value) + 1) : drawn
        if ((example.state as string[]).includes(key)) buffers[key] = new ModuleBuffer(shape, data)
        else parameters[key] = new Parameter(shape, data)
      }
      const yShape = outputs.y.shape
      const program = await compile(
        ({ dy }) => {
          const y = functions[example.fn]({ ...parameters, ...buffers }, example.options)
          y.mul(dy).sum().backward()
          const gradients = Object.entries(parameters).map(([key, parameter]) => [
            `d${key}`,
            parameter.grad,
          ])
          return { y, ...Object.fromEntries(gradients) }
        },
        { dy: tensorType(yShape) },
        { runtime: await testRuntime() },
      )
      const dy = formulaUniform(2999, countElements(yShape), golden.bound)
      let results = await program.run({ dy })
      for (let step = 1; step < example.steps; step++) results = await program.run({ dy })
      for (const [key, result] of Object.entries(outputs)) {
        hold(`${example.name}: ${key}`, results[key] ?? (await buffers[key].read()), result)
      }
      program.destroy()
    })
  }

  test('the distances, as shares of what is allowed', () => {
    console.log(shares.join('\n'))
    expect(shares.length).toBeGreaterThan(0)
  })
})

const bitsOf = (values: ArrayLike<number>) => [...new Uint32Array(Float32Array.from(values).buffer)]

/** Parameters and buffers as raw words, by key. */
async function stateBits(model: Module): Promise<Record<string, string>> {
  const state = await model.stateDict()
  return Object.fromEntries(
    Object.entries(state).map(([key, { data }]) => [key, bitsOf(data).join()]),
  )
}

for (const run of convRuns) {
  const { batch, evaluation, sampleShape } = convRecipes[run.name]
  const timeout = 240_000

  test(`${run.name}: ${run.steps} losses, running statistics and evaluated logits stay within 5x of PyTorch's own distance`, {
    timeout,
  }, async () => {
    const model = await convModel(run)
    const began = performance.now()
    const program = await compileConvRun(run, model)
    const compiled = performance.now()
    let distance = 0
    let share = 0
    for (let step = 0; step < run.steps; step++) {
      const { loss } = await program.run(batch(step, run.batchSize))
      distance = Math.max(distance, run.distances[step])
      const allowed = allowedDistance(distance, [run.losses[step]])
      share = Math.max(share, Math.abs(loss[0] - run.losses[step]) / allowed)
      expect(
        Math.abs(loss[0] - run.losses[step]),
        `step ${step + 1}: ours ${loss[0]}, PyTorch ${run.losses[step]}`,
      ).toBeLessThanOrEqual(allowed)
    }
    const seconds = (from: number) => ((performance.now() - from) / 1000).toFixed(1)
    const { peakBytes, lowerBoundBytes } = program.prepared.plan
    console.log(
      `${run.name}: ${program.dispatchCount} dispatches, compiled in ${((compiled - began) / 1000).toFixed(1)} s, ${run.steps} steps in ${seconds(compiled)} s, losses took ${share.toFixed(2)} of the allowed distance, peak ${peakBytes} bytes, bound ${lowerBoundBytes}`,
    )
    const state = await model.stateDict()
    for (const [key, result] of Object.entries(run.finalState)) {
      hold(key, state[key].data, result as GoldenResult)
    }
    const counts = Object.keys(state).filter((key) => key.endsWith('num_batches_tracked'))
    expect(counts.length).toBeGreaterThan(0)
    for (const key of counts) expect([...state[key].data]).toEqual([run.steps])

    model.eval()
    const { rows, x } = evaluation()
    const forward = await compile(
      (given) => ({ logits: model.forward(given.x) }),
      { x: tensorType([rows, ...sampleShape]) },
      { runtime: await convRuntime(run) },
    )
    const { logits } = await forward.run({ x })
    hold('final logits', logits, run.finalLogits as GoldenResult)
    console.log(shares.slice(-5).join('\n'))
    program.destroy()
    forward.destroy()
  })

  // Long to compile, for kernels that the other runs replay as well.
  if (['resnet18 of full width', 'resnet50 of width 4'].includes(run.name)) continue
  test(`${run.name}: replay equals eager bit for bit, buffers included`, { timeout }, async () => {
    const steps = run.name.startsWith('resnet') ? 4 : run.steps
    const replayed = await convModel(run)
    const program = await compileConvRun(run, replayed)
    const fromReplay: number[] = []
    const { gpu } = await testRuntime()
    let before = { ...gpu.counters }
    for (let step = 0; step < steps; step++) {
      if (step === 1) before = { ...gpu.counters }
      fromReplay.push((await program.run(batch(step, run.batchSize))).loss[0])
    }
    expect(gpu.counters.buffers - before.buffers).toBe(0)
    expect(gpu.counters.bindGroups - before.bindGroups).toBe(0)

    const eager = await convModel(run)
    const optimizer = convOptimizer(run, eager)
    const fromEager: number[] = []
    for (let step = 0; step < steps; step++) {
      const outputs = await runEagerly(
        await convRuntime(run),
        convStep(eager, optimizer),
        convTypes(run),
        batch(step, run.batchSize),
      )
      fromEager.push(outputs.loss[0])
    }
    expect(bitsOf(fromReplay)).toEqual(bitsOf(fromEager))
    expect(await stateBits(replayed)).toEqual(await stateBits(eager))
    program.destroy()
  })
}
