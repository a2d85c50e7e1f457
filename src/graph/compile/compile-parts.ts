import { sameDevice } from '../../util/device.ts'
import { TabringError } from '../../util/errors.ts'
import { type AnyRuntime, CpuRuntime, runtimeOf } from '../memory/runtime.ts'
import { partsOf } from '../plan/parts.ts'
import { type PrepareOptions, planStep, type TracedStep } from '../plan/prepare.ts'
import { crossingBytes } from '../run/crossings.ts'
import { SplitProgram } from '../run/split-program.ts'
import { checkDevices } from './check-devices.ts'
import { createProgram } from './create-program.ts'

/**
 * Compiles a step whose tensors move between devices: one program for each device.
 *
 * `runtime`: the device of what was not moved to one. errors: those of `partsOf` and of each device; `graph.misuse` for what works on one
 * device only.
 */
export async function compileParts(
  runtime: AnyRuntime,
  step: TracedStep,
  options: PrepareOptions & { readonly detectAnomaly?: boolean },
): Promise<SplitProgram> {
  const { trace } = step
  if (trace.exchange || trace.forwarded) throw refused('with DistributedDataParallel')
  if (trace.accumulation) throw refused('with compileAccumulated')
  if (options.detectAnomaly) throw refused('with detectAnomaly')
  // All of them are planned before any allocates.
  const parts = await Promise.all(
    partsOf(step).map(async ({ device, step: own }) => {
      const there = sameDevice(device, runtime.device) ? runtime : await runtimeOf(device)
      const isCpu = there instanceof CpuRuntime
      const prepared = planStep(there, own, { ...options, ...(isCpu && { useNaiveKernels: true }) })
      checkDevices(prepared, isCpu ? 'host' : there.gpu)
      return { device, there, prepared }
    }),
  )
  const programs = await Promise.all(
    parts.map(async ({ device, there, prepared }) => ({
      device,
      sentBytes: prepared.crossings
        .filter(({ kind }) => kind === 'send')
        .reduce((sum, crossing) => sum + crossingBytes(crossing), 0),
      program: await createProgram(there, prepared),
    })),
  )
  return new SplitProgram(step.inputs, programs)
}

const refused = (where: string) =>
  new TabringError(
    'graph.misuse',
    `compile: a step over several devices does not work ${where} yet. Keep the step on one WebGPU device there.`,
  )
