import { openGpu } from '../../src/gpu/device.ts'
import { download } from '../../src/gpu/readback.ts'
import { compile } from '../../src/graph/compile.ts'
import { crossEntropy } from '../../src/graph/functions.ts'
import { Runtime } from '../../src/graph/runtime.ts'
import type { StepProgram } from '../../src/graph/step-program.ts'
import { chooseVariant, lowerCall } from '../../src/kernels/choose.ts'
import { matmul, plain } from '../../src/kernels/matmul/matmul.ts'
import type { Op, Operand } from '../../src/kernels/op.ts'
import { models } from '../../src/nn/models.ts'
import type { Module } from '../../src/nn/module.ts'
import { AdamW } from '../../src/optim/adam.ts'
import { countElements, type TensorType, tensorType } from '../../src/util/shape.ts'
import {
  adam,
  type Batch,
  gptConfig,
  imageBatch,
  type Matmul,
  type MatmulTask,
  type StepName,
  type Trainer,
  targetsOf,
  textBatch,
  type Weights,
} from './task.ts'

/** Ours, through the parts that `npm run train` uses. */

let opened: Promise<Runtime> | undefined
export function openRuntime(): Promise<Runtime> {
  opened ??= openGpu().then((gpu) => new Runtime(gpu))
  return opened
}

export interface OurTrainer extends Trainer {
  readonly program: StepProgram
  readonly runtime: Runtime
}

const makeModel = {
  mlp: () => models.mlp.make(),
  cnn: () => models.cnn.make(),
  gpt: () => models.gpt(gptConfig),
} satisfies Record<StepName, () => Module>

const inputTypes = {
  mlp: tensorType([imageBatch, ...models.mlp.sampleShape]),
  cnn: tensorType([imageBatch, ...models.cnn.sampleShape]),
  gpt: tensorType([textBatch, gptConfig.blockSize], 'i32'),
} satisfies Record<StepName, TensorType>

export async function tabringTrainer(name: StepName, weights: Weights): Promise<OurTrainer> {
  const runtime = await openRuntime()
  const model = makeModel[name]()
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
    // The loss is copied out behind the update, in the same submit: whoever has it has the weights.
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
  const [fewer, more] = await Promise.all(
    [layers, layers + 1].map((count) =>
      compileStep(
        models.gpt({ ...gptConfig, layers: count }),
        inputTypes.gpt,
        targetsOf.gpt,
        runtime,
      ),
    ),
  )
  return more.dispatchCount - fewer.dispatchCount
}

/** One submit a product, as the other libraries do. */
export async function tabringMatmul(
  task: MatmulTask,
  a: Float32Array<ArrayBuffer>,
  b: Float32Array<ArrayBuffer>,
): Promise<Matmul & { variant: string }> {
  const { gpu, pipelines, limits, variants } = await openRuntime()
  const { form, m, k, n } = task
  const inputs = [
    tensorType(form === 'tn' ? [k, m] : [m, k]),
    tensorType(form === 'nt' ? [n, k] : [k, n]),
  ]
  const call = { inputs, outputs: [tensorType([m, n])], attrs: plain(form) }
  const variant = chooseVariant(matmul as Op, call, limits, variants, false)
  const { dispatches, scratch = [] } = lowerCall(variant, call, limits)
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST
  const make = (label: string, type: TensorType) =>
    gpu.createBuffer(label, countElements(type.shape) * 4, usage)
  const ins = inputs.map((type, i) => make(`operand ${i}`, type))
  const out = make('product', call.outputs[0])
  const scratches = scratch.map((type) => make('scratch', type))
  gpu.write(ins[0], a)
  gpu.write(ins[1], b)
  const bufferOf = (operand: Operand): GPUBuffer => {
    if (operand === 'scalars') throw new Error('a plain product reads no scalars')
    return 'in' in operand ? ins[operand.in] : 'out' in operand ? out : scratches[operand.scratch]
  }
  const recorded = await Promise.all(
    dispatches.map(async (dispatch) => {
      const { pipeline, layout } = await pipelines.get(dispatch)
      const entries = dispatch.bindings.map(({ operand }, binding) => ({
        binding,
        resource: { buffer: bufferOf(operand) },
      }))
      return {
        pipeline,
        group: gpu.device.createBindGroup({ layout, entries }),
        groups: dispatch.groups,
      }
    }),
  )
  const run = async (times: number) => {
    for (let time = 0; time < times; time++) {
      const encoder = gpu.device.createCommandEncoder()
      const pass = encoder.beginComputePass()
      for (const { pipeline, group, groups } of recorded) {
        pass.setPipeline(pipeline)
        pass.setBindGroup(0, group)
        pass.dispatchWorkgroups(...groups)
      }
      pass.end()
      gpu.submit(encoder)
    }
    await gpu.queue.onSubmittedWorkDone()
    gpu.check()
  }
  return {
    variant: variant.name,
    run,
    async result() {
      await run(1)
      return new Float32Array(await download(gpu, out, 0, m * n * 4))
    },
    dispose() {
      for (const buffer of [...ins, out, ...scratches]) buffer.destroy()
    },
  }
}
