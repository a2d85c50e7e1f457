import { openGpu } from '../../src/gpu/device.ts'
import { openWasm } from '../../src/gpu/wasm/open.ts'
import { compile } from '../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../src/graph/functions/linear.ts'
import { Runtime } from '../../src/graph/memory/runtime.ts'
import type { StepProgram } from '../../src/graph/plan/step-program.ts'
import type { Module } from '../../src/nn/module.ts'
import { AdamW } from '../../src/optim/adam.ts'
import { type TensorType, tensorType } from '../../src/util/shape.ts'
import {
  adam,
  type Batch,
  gptConfig,
  imageBatch,
  type StepName,
  type Trainer,
  targetsOf,
  textBatch,
  type Weights,
} from './task.ts'

/** Ours, through the parts that `npm run train` uses. */

const open = { webgpu: () => openGpu(), cpu: () => openWasm() }
const opened = new Map<keyof typeof open, Promise<Runtime>>()

export function openRuntime(device: keyof typeof open = 'webgpu'): Promise<Runtime> {
  const known = opened.get(device)
  if (known) return known
  const runtime = open[device]().then((gpu) => new Runtime(gpu))
  opened.set(device, runtime)
  return runtime
}

export interface OurTrainer extends Trainer {
  readonly program: StepProgram
  readonly runtime: Runtime
}

const inputTypes = {
  mlp: tensorType([imageBatch, 784]),
  cnn: tensorType([imageBatch, 1, 28, 28]),
  gpt: tensorType([textBatch, gptConfig.blockSize], 'i32'),
} satisfies Record<StepName, TensorType>

export async function tabringTrainer(
  name: StepName,
  model: Module,
  weights: Weights,
  device: 'webgpu' | 'cpu',
): Promise<OurTrainer> {
  const runtime = await openRuntime(device)
  model.loadStateDict(weights)
  const program = await compileStep(model, inputTypes[name], targetsOf[name], runtime)
  return {
    program,
    runtime,
    readsEveryLoss: true,
    async step({ inputs, targets }: Batch) {
      const { loss } = await program.run({ x: inputs, y: targets })
      return loss[0]
    },
    // The loss is copied out after the update, in the same submit: when it is there, so are the weights.
    settle: () => Promise.resolve(),
  }
}

function compileStep(
  model: Module,
  input: TensorType,
  { rows, classes }: { rows: number; classes: number },
  runtime: Runtime,
): Promise<StepProgram> {
  const optimizer = new AdamW(model.parameters(), {
    lr: adam.lr,
    betas: [adam.beta1, adam.beta2],
    eps: adam.eps,
    weightDecay: 0,
  })
  return compile(
    ({ x, y }) => {
      const loss = crossEntropy(model.forward(x).reshape([rows, classes]), y)
      optimizer.zeroGrad()
      loss.backward()
      optimizer.step()
      return { loss }
    },
    { x: input, y: tensorType([rows], 'i32') },
    { runtime },
  )
}

/** Dispatches that one more layer of the GPT adds to a step, forward and backward. */
export async function dispatchesPerLayer(): Promise<number> {
  const runtime = await openRuntime()
  const { layers } = gptConfig
  const { gpt } = await import('../../src/nn/gpt.ts')
  const [fewer, more] = await Promise.all(
    [layers, layers + 1].map((count) =>
      compileStep(gpt({ ...gptConfig, layers: count }), inputTypes.gpt, targetsOf.gpt, runtime),
    ),
  )
  return more.dispatchCount - fewer.dispatchCount
}
