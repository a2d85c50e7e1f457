import { compile } from '../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../src/graph/functions/linear.ts'
import { Runtime } from '../../src/graph/memory/runtime.ts'
import { prepare, type TracedFunction } from '../../src/graph/plan/prepare.ts'
import type { RunInputs, StepProgram } from '../../src/graph/plan/step-program.ts'
import { variantKey } from '../../src/kernels/choose.ts'
import { BatchNorm2d } from '../../src/nn/batch-norm.ts'
import { Conv2d } from '../../src/nn/convolution.ts'
import { Flatten, Linear, ReLU } from '../../src/nn/layers.ts'
import { type Module, Sequential } from '../../src/nn/module.ts'
import { AvgPool2d, MaxPool2d } from '../../src/nn/pooling.ts'
import { resnet18, resnet50 } from '../../src/nn/resnet.ts'
import type { Optimizer } from '../../src/optim/optimizer.ts'
import { SGD } from '../../src/optim/sgd.ts'
import { countElements, type Shape, tensorType } from '../../src/util/shape.ts'
import golden from '../golden/conv-layers.json'
import deep from '../golden/resnet50.json'
import { formulaUniform, formulaWord } from './formula-data.ts'
import { batchOf, goldenEvaluation } from './formula-model.ts'
import { testRuntime } from './run-op.ts'

/** The models, data and steps of the trajectories in tests/golden; conv_layers.py holds the same. */
export type ConvRun = (typeof golden.trajectories)[number] | (typeof deep.trajectories)[number]

export const convRuns: readonly ConvRun[] = [...golden.trajectories, ...deep.trajectories]

interface Recipe {
  sampleShape: Shape
  make(): Module
  batch(step: number, size: number): RunInputs
  evaluation(): { rows: number; x: Float32Array<ArrayBuffer> }
}

function colours(step: number, size: number, side = 32): RunInputs {
  const pixels = 3 * side * side
  const x = formulaUniform(8000 + step, size * pixels, 1)
  const y = Int32Array.from({ length: size }, (_, n) => formulaWord(7000, step * size + n) >>> 29)
  return { x: x.map((value, i) => value + (y[Math.floor(i / pixels)] % 4) * 0.25), y }
}

export const convRecipes: Readonly<Record<string, Recipe>> = {
  'cnn with batch norm': {
    sampleShape: [1, 28, 28],
    make: () =>
      new Sequential(
        new Conv2d(1, 8, 3, { padding: 1, bias: false }),
        new BatchNorm2d(8),
        new ReLU(),
        new MaxPool2d(2),
        new Conv2d(8, 16, 3, { padding: 1 }),
        new BatchNorm2d(16),
        new ReLU(),
        new AvgPool2d(2),
        new Flatten(),
        new Linear(784, 10),
      ),
    batch: (step, size) => batchOf(step * size, size),
    evaluation: () => {
      const { first, count } = goldenEvaluation
      return { rows: count, x: batchOf(first, count).x }
    },
  },
  'resnet18 on 32x32': {
    sampleShape: [3, 32, 32],
    make: () => resnet18({ numClasses: 8, smallInputs: true, width: 8 }),
    batch: colours,
    evaluation: () => ({ rows: 4, x: formulaUniform(9000, 4 * 3072, 1) }),
  },
  'resnet18 of full width': {
    sampleShape: [3, 32, 32],
    make: () => resnet18({ numClasses: 8 }),
    batch: colours,
    evaluation: () => ({ rows: 4, x: formulaUniform(9000, 4 * 3072, 1) }),
  },
  'resnet50 of width 4': {
    sampleShape: [3, 128, 128],
    make: () => resnet50({ numClasses: 8, width: 4 }),
    batch: (step, size) => colours(step, size, 128),
    evaluation: () => ({ rows: 2, x: formulaUniform(9000, 2 * 49_152, 1) }),
  },
}

/** The run's model with the weights that PyTorch began with. */
export async function convModel(run: ConvRun): Promise<Module> {
  const model = convRecipes[run.name].make()
  const state = await model.stateDict()
  for (const { key, shape, seed, bound } of run.weights) {
    state[key] = { shape, data: formulaUniform(seed, countElements(shape), bound) }
  }
  model.loadStateDict(state)
  return model
}

export const convTypes = (run: ConvRun, rows = run.batchSize) => ({
  x: tensorType([rows, ...convRecipes[run.name].sampleShape]),
  y: tensorType([rows], 'i32'),
})

export const convOptimizer = (run: ConvRun, model: Module): Optimizer =>
  new SGD(model.parameters(), run.options)

export const convStep =
  (model: Module, optimizer: Optimizer): TracedFunction =>
  ({ x, y }) => {
    const loss = crossEntropy(model.forward(x), y)
    loss.backward()
    optimizer.step()
    return { loss }
  }

const runtimes = new Map<string, Promise<Runtime>>()

/**
 * The runtime for a run's programs. A ResNet has a hundred different shaders, so its convolutions take small tiles, which compile in a
 * third of the time; every-op.spec.ts and the other run see the large ones.
 */
export function convRuntime(run: ConvRun): Promise<Runtime> {
  const made = runtimes.get(run.name) ?? makeRuntime(run)
  runtimes.set(run.name, made)
  return made
}

const smallTiles: Readonly<Record<string, string>> = {
  conv2d: 'tile4x2x2',
  conv2dGradInput: 'tile4x2x2',
  conv2dGradWeight: 'split4x1',
}

async function makeRuntime(run: ConvRun): Promise<Runtime> {
  const shared = await testRuntime()
  if (!run.name.startsWith('resnet')) return shared
  const runtime = new Runtime(shared.gpu)
  const model = convRecipes[run.name].make()
  const { calls } = prepare(runtime, convStep(model, convOptimizer(run, model)), convTypes(run))
  runtime.variants = Object.fromEntries(
    calls.flatMap(({ op, call }) =>
      op.name in smallTiles ? [[variantKey(op, call), smallTiles[op.name]]] : [],
    ),
  )
  return runtime
}

export async function compileConvRun(run: ConvRun, model: Module): Promise<StepProgram> {
  const optimizer = convOptimizer(run, model)
  return compile(convStep(model, optimizer), convTypes(run), { runtime: await convRuntime(run) })
}
