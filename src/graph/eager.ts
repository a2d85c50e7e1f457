import { download } from '../gpu/readback.ts'
import { TabringError } from '../util/errors.ts'
import { countElements } from '../util/shape.ts'
import { type InputTypes, type PrepareOptions, prepare, type TracedFunction } from './prepare.ts'
import { ProgramBuffers, type RunInputs, type RunOutputs } from './program.ts'
import type { Runtime } from './runtime.ts'

/**
 * Runs a function the slow way: traced anew each time, each kernel in a submit of its own, on buffers made for this run, one for
 * each intermediate: no memory plan.
 *
 * The kernels and fused groups are those of the recorded program, so on one adapter the results are the same bits.
 * `onKernel` is called with a kernel's label before its results are waited for: a debugger's view of what is submitted.
 * errors: as StepProgram.run; `graph.misuse` with several ranks, which only recorded programs serve.
 */
export async function runEagerly(
  runtime: Runtime,
  fn: TracedFunction,
  types: InputTypes,
  inputs: RunInputs,
  scalars: Readonly<Record<string, number>> = {},
  options: PrepareOptions & { onKernel?: (label: string) => void } = {},
): Promise<RunOutputs> {
  const { gpu, pipelines } = runtime
  const prepared = prepare(runtime, fn, types, { sharesBuffers: false, ...options })
  if (prepared.trace.exchange && prepared.trace.exchange.size > 1) {
    throw new TabringError(
      'graph.misuse',
      'eager: one rank only, got a model wrapped for several. Compile the step, or debug on one rank.',
    )
  }
  for (const { update } of prepared.updates) update.bucket.allocate(gpu)
  const buffers = new ProgramBuffers(gpu, prepared)
  try {
    buffers.write(gpu, prepared, inputs, scalars)
    for (const { dispatch, bindings } of prepared.plan.dispatches) {
      const { pipeline, layout } = await pipelines.get(dispatch)
      const entries = bindings.map(({ place, sizeBytes }, binding) => {
        const { buffer, offset } = buffers.locate(gpu, place)
        return { binding, resource: { buffer, offset, size: sizeBytes || buffer.size } }
      })
      gpu.counters.bindGroups++
      gpu.counters.dispatches++
      const encoder = gpu.device.createCommandEncoder({ label: dispatch.label })
      const pass = encoder.beginComputePass()
      pass.setPipeline(pipeline)
      pass.setBindGroup(0, gpu.device.createBindGroup({ layout, entries }))
      pass.dispatchWorkgroups(...dispatch.groups)
      pass.end()
      gpu.submit(encoder)
      options.onKernel?.(dispatch.label)
    }
    const outputs: RunOutputs = {}
    for (const [i, { name, type }] of prepared.outputs.entries()) {
      const array = { f32: Float32Array, i32: Int32Array, u32: Uint32Array }[type.dtype]
      const bytes = await download(gpu, buffers.outputs[i], 0, countElements(type.shape) * 4)
      outputs[name] = new array(bytes)
    }
    return outputs
  } finally {
    buffers.destroy()
  }
}
