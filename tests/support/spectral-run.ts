import { compile } from '../../src/graph/compile/compile.ts'
import type { AnyRuntime } from '../../src/graph/memory/runtime.ts'
import type { RunOutputs } from '../../src/graph/plan/step-program.ts'
import { Conv2d, ConvTranspose2d } from '../../src/nn/convolution.ts'
import { Linear } from '../../src/nn/layers.ts'
import type { Module } from '../../src/nn/module.ts'
import { spectralNorm } from '../../src/nn/spectral-norm.ts'
import { SGD } from '../../src/optim/sgd.ts'
import { countElements, tensorType } from '../../src/util/shape.ts'
import golden from '../golden/modules.json'
import { formulaUniform } from './formula-data.ts'
import { drawnState } from './hook-run.ts'

type SpectralCase = (typeof golden.spectral.cases)[number]

/** The modules of modules.py. */
export const spectralModules: Readonly<Record<string, () => Module>> = {
  Linear: () => spectralNorm(new Linear(6, 5)),
  'Linear, 3 iterations along dim 1': () =>
    spectralNorm(new Linear(6, 5), { nPowerIterations: 3, dim: 1 }),
  'Linear, bias alone': () => spectralNorm(new Linear(6, 5), { name: 'bias' }),
  Conv2d: () => spectralNorm(new Conv2d(3, 4, [3, 2], { bias: false })),
  ConvTranspose2d: () => spectralNorm(new ConvTranspose2d(4, 3, 3, { stride: 2 })),
  'Linear, eps': () => spectralNorm(new Linear(6, 5), { eps: 2 }),
}

/** The case's steps with PyTorch's names for what comes out of them. */
export async function runSpectral(
  { name, x: shape, weights }: SpectralCase,
  options: { runtime: AnyRuntime; useNaiveKernels?: boolean },
): Promise<RunOutputs> {
  const { steps, evalAfter, lr } = golden.spectral
  const module = spectralModules[name]()
  module.loadStateDict(drawnState(weights))
  const optimizer = new SGD(module.parameters(), { lr, momentum: 0.9 })
  const types = { x: tensorType(shape) }
  const training = await compile(
    ({ x }) => {
      const y = module.forward(x)
      const loss = y.square().mean().add(y.mean())
      loss.backward()
      optimizer.step()
      return { loss }
    },
    types,
    options,
  )
  module.eval()
  const evaluation = await compile(({ x }) => ({ y: module.forward(x) }), types, options)
  const input = (seed: number) => ({ x: formulaUniform(seed, countElements(shape), 1) })
  const evaluate = async () => (await evaluation.run(input(250))).y
  const results: RunOutputs = {}
  const losses: number[] = []
  for (let step = 0; step < steps; step++) {
    if (step === evalAfter) results['eval midway'] = await evaluate()
    losses.push((await training.run(input(300 + step))).loss[0])
  }
  results['eval'] = await evaluate()
  results['losses'] = Float32Array.from(losses)
  for (const [key, { data }] of Object.entries(await module.stateDict())) {
    results[key] = data
  }
  training.destroy()
  evaluation.destroy()
  return results
}
