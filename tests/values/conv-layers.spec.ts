import { afterEach, describe, expect, test } from 'vitest'
import { compile } from '../../src/graph/compile/compile.ts'
import { batchNorm } from '../../src/graph/functions/batch-norm.ts'
import { conv1d, conv2d, convTranspose2d } from '../../src/graph/functions/convolution.ts'
import {
  adaptiveAvgPool1d,
  adaptiveAvgPool2d,
  avgPool1d,
  avgPool2d,
  maxPool1d,
} from '../../src/graph/functions/pooling.ts'
import { ModuleBuffer } from '../../src/graph/trace/module-buffer.ts'
import { Parameter } from '../../src/graph/trace/parameter.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { countElements, tensorType } from '../../src/util/shape.ts'
import golden from '../golden/conv-layers.json'
import { hold, shares } from '../support/conv-run-tests.ts'
import { formulaUniform } from '../support/formula-data.ts'
import type { GoldenResult } from '../support/golden.ts'
import { type Seeded, seedCases, titleOf } from '../support/golden-seeds.ts'
import { checkTestRuntime, testRuntime } from '../support/run-op.ts'

// Layers of convolution, pooling and batch normalization through the functions that users call, gradients by autograd, against
// PyTorch (tests/golden/conv_layers.py): at most 8 times PyTorch's own float32 distance from float64.

afterEach(checkTestRuntime)

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

type Layer = (typeof golden.layers)[number] & { readonly dySeed?: number }
const layers: (Layer & Seeded)[] = [...golden.layers, ...seedCases<Layer>('layers')]

describe('layers against PyTorch', () => {
  for (const example of layers) {
    test(titleOf(example), async () => {
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
      const dy = formulaUniform(example.dySeed ?? 2999, countElements(yShape), golden.bound)
      let results = await program.run({ dy })
      for (let step = 1; step < example.steps; step++) results = await program.run({ dy })
      for (const [key, result] of Object.entries(outputs)) {
        hold(`${titleOf(example)}: ${key}`, results[key] ?? (await buffers[key].read()), result)
      }
      program.destroy()
    })
  }

  test('the distances, as shares of what is allowed', () => {
    console.log(shares.join('\n'))
    expect(shares.length).toBeGreaterThan(0)
  })
})
