import { PassClock } from '../../gpu/clock.ts'
import { download } from '../../gpu/readback.ts'
import { bufferUsage } from '../../gpu/usage.ts'
import type { Lowering, OpCall, Operand } from '../../kernels/op.ts'
import { bytesOf, type TensorType } from '../../util/shape.ts'
import type { Runtime } from '../memory/runtime.ts'

/** A lowering with its pipelines compiled and its buffers bound, ready to run again and again. */
export interface PreparedLowering {
  /**
   * Milliseconds that `times` executions take: by the device's clock, and only where it has none from the submit to their end.
   *
   * A browser may need milliseconds to say that a GPU has finished, which would hide what a fast kernel takes (2.4 ms on an H100, measured).
   */
  run(times: number): Promise<number>
  /** `times` executions, each in its own submit. */
  runApart(times: number): Promise<void>
  /** The contents of an output. */
  read(output: number): Promise<ArrayBuffer>
  destroy(): void
}

/** Step scalars that a timed kernel may read: large, so that every row counts. */
const stepScalars = new Float32Array(256).fill(2 ** 20)

/** Compiles a lowering and binds it to its own buffers; inputs without contents are zeros. For timing, not for the step's path. */
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
      bufferUsage.STORAGE | bufferUsage.COPY_DST | bufferUsage.COPY_SRC,
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
  const clock = gpu.facts.hasTimestamps ? new PassClock(gpu, 1) : undefined
  const encode = (times: number): GPUCommandEncoder => {
    const encoder = device.createCommandEncoder()
    const pass = encoder.beginComputePass(clock?.pass(0))
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
    async run(times) {
      const encoder = encode(times)
      const start = performance.now()
      gpu.submit(encoder)
      if (!clock) {
        await gpu.wait(gpu.queue.onSubmittedWorkDone())
        return performance.now() - start
      }
      const [began, ended] = await clock.read()
      // A device may round its clock so that an end comes before its begin.
      return Math.max(0, Number(ended - began) / 1e6)
    },
    async runApart(times) {
      for (let time = 0; time < times; time++) gpu.submit(encode(1))
      await gpu.wait(gpu.queue.onSubmittedWorkDone())
    },
    read: (output) => download(gpu, outs[output], 0, outs[output].size),
    destroy() {
      clock?.destroy()
      for (const buffer of [...ins, ...outs, ...scratch, scalars]) buffer.destroy()
    },
  }
}

/** Executions that together last at least `minMs`: clocks in browsers are coarse. */
export async function repeatsFor(prepared: PreparedLowering, minMs: number): Promise<number> {
  await prepared.run(1)
  let times = 1
  for (;;) {
    // The faster of two: one slow run must not make later ones too short.
    const ms = Math.min(await prepared.run(times), await prepared.run(times))
    if (ms >= minMs || times >= 4096) return times
    times = Math.min(4096, ms < minMs / 8 ? times * 4 : Math.ceil((times * minMs * 1.2) / ms))
  }
}
