import { download } from '../../gpu/readback.ts'
import type { Lowering, OpCall, Operand } from '../../kernels/op.ts'
import { bytesOf, type TensorType } from '../../util/shape.ts'
import type { Runtime } from '../memory/runtime.ts'

/** A lowering with its pipelines compiled and its buffers bound, ready to run again and again. */
export interface PreparedLowering {
  /** Milliseconds from the first submit of `times` executions to their end; `isApart` gives each a submit of its own. */
  run(times: number, isApart?: boolean): Promise<number>
  /** The contents of an output. */
  read(output: number): Promise<ArrayBuffer>
  destroy(): void
}

/** Step scalars that a timed kernel may read: large, so that every row counts. */
const stepScalars = new Float32Array(256).fill(2 ** 20)

/** Compiles a lowering and binds it to buffers of its own; inputs without contents are zeros. For timing, not for the step's path. */
export async function prepareLowering(
  { gpu, pipelines }: Runtime,
  lowering: Lowering,
  call: OpCall,
  inputs: readonly Float32Array<ArrayBuffer>[] = [],
): Promise<PreparedLowering> {
  const { device } = gpu
  const make = (type: TensorType, label: string) =>
    gpu.createBuffer(
      label,
      Math.max(16, bytesOf(type)),
      GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC,
    )
  const ins = call.inputs.map((type, i) => {
    const buffer = make(type, `timed input ${i}`)
    if (inputs[i]) gpu.write(buffer, inputs[i])
    return buffer
  })
  const outs = call.outputs.map((type, i) => make(type, `timed output ${i}`))
  const scratch = (lowering.scratch ?? []).map((type, i) => make(type, `timed scratch ${i}`))
  const scalars = make({ shape: [stepScalars.length], dtype: 'f32' }, 'timed scalars')
  gpu.write(scalars, stepScalars)
  const bufferOf = (operand: Operand) =>
    operand === 'scalars'
      ? scalars
      : 'in' in operand
        ? ins[operand.in]
        : 'out' in operand
          ? outs[operand.out]
          : scratch[operand.scratch]
  const steps = await Promise.all(
    lowering.dispatches.map(async (step) => {
      const { pipeline, layout } = await pipelines.get(step)
      const entries = step.bindings.map(({ operand }, binding) => ({
        binding,
        resource: { buffer: bufferOf(operand) },
      }))
      return { pipeline, group: device.createBindGroup({ layout, entries }), groups: step.groups }
    }),
  )
  const encode = (times: number): GPUCommandEncoder => {
    const encoder = device.createCommandEncoder()
    const pass = encoder.beginComputePass()
    for (let time = 0; time < times; time++) {
      for (const { pipeline, group, groups } of steps) {
        pass.setPipeline(pipeline)
        pass.setBindGroup(0, group)
        pass.dispatchWorkgroups(...groups)
      }
    }
    pass.end()
    return encoder
  }
  return {
    async run(times, isApart = false) {
      let start = Number.NaN
      for (let submit = 0; submit < (isApart ? times : 1); submit++) {
        const encoder = encode(isApart ? 1 : times)
        if (submit === 0) start = performance.now()
        gpu.submit(encoder)
      }
      await gpu.wait(gpu.queue.onSubmittedWorkDone())
      return performance.now() - start
    },
    read: (output) => download(gpu, outs[output], 0, outs[output].size),
    destroy() {
      for (const buffer of [...ins, ...outs, ...scratch, scalars]) buffer.destroy()
    },
  }
}

/** Executions that together last at least `leastMs`: clocks in browsers are coarse. */
export async function repeatsFor(prepared: PreparedLowering, leastMs: number): Promise<number> {
  await prepared.run(1)
  let times = 1
  for (;;) {
    // The faster of two: one slow run must not make later ones too short.
    const ms = Math.min(await prepared.run(times), await prepared.run(times))
    if (ms >= leastMs || times >= 4096) return times
    times = Math.min(4096, ms < leastMs / 8 ? times * 4 : Math.ceil((times * leastMs * 1.2) / ms))
  }
}
