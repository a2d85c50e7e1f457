import type { Lowering, OpCall, Operand } from '../kernels/op.ts'
import { countElements, type TensorType } from '../util/shape.ts'
import type { Runtime } from './runtime.ts'

/** A sample lasts at least this long, because clocks of pages are coarse. */
const sampleMs = 2
const samples = 3
const mostRepeats = 256
const scalarSlots = 256

/**
 * The milliseconds that one execution of a lowering takes on this device: the least of three samples of at least 2 ms each.
 *
 * Tensors are zeros, whose values do not matter to these kernels' time; step scalars are large, so that every row counts. Makes and frees buffers: not for the step's path.
 */
export async function timeLowering(
  runtime: Runtime,
  lowering: Lowering,
  call: OpCall,
): Promise<number> {
  const { gpu, pipelines } = runtime
  const make = ({ shape }: TensorType) =>
    gpu.createBuffer('timing', countElements(shape) * 4, GPUBufferUsage.STORAGE)
  const inputs = call.inputs.map(make)
  const outputs = call.outputs.map(make)
  const scratch = (lowering.scratch ?? []).map(make)
  const scalars = gpu.createBuffer(
    'timing',
    scalarSlots * 4,
    GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST,
  )
  gpu.write(scalars, new Float32Array(scalarSlots).fill(2 ** 20))
  const bufferOf = (operand: Operand): GPUBuffer =>
    operand === 'scalars'
      ? scalars
      : 'in' in operand
        ? inputs[operand.in]
        : 'out' in operand
          ? outputs[operand.out]
          : scratch[operand.scratch]
  const steps = await Promise.all(
    lowering.dispatches.map(async (dispatch) => {
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
  const run = async (repeats: number): Promise<number> => {
    const encoder = gpu.device.createCommandEncoder()
    const pass = encoder.beginComputePass()
    for (let i = 0; i < repeats; i++) {
      for (const { pipeline, group, groups } of steps) {
        pass.setPipeline(pipeline)
        pass.setBindGroup(0, group)
        pass.dispatchWorkgroups(...groups)
      }
    }
    pass.end()
    const began = performance.now()
    gpu.submit(encoder)
    await gpu.wait(gpu.queue.onSubmittedWorkDone())
    return performance.now() - began
  }
  let repeats = 1
  while ((await run(repeats)) < sampleMs && repeats < mostRepeats) repeats *= 2
  let least = Number.POSITIVE_INFINITY
  for (let i = 0; i < samples; i++) least = Math.min(least, (await run(repeats)) / repeats)
  for (const buffer of [...inputs, ...outputs, ...scratch, scalars]) buffer.destroy()
  return least
}
