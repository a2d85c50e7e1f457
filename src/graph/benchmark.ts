import { tune } from '../kernels/tune.ts'
import type { Prepared } from './prepare.ts'
import type { Runtime } from './runtime.ts'
import { timeLowering } from './time-lowering.ts'

let isOn = false

export const isBenchmarking = (): boolean => isOn

/** Whether `compile` measures the variants of each new kernel call on the adapter and keeps the fastest, instead of the fixed table. */
export function setBenchmarking(value: boolean): void {
  isOn = value
}

/** Adds the fastest variant of every call of a program to the runtime's table; calls that are in it are not measured again. */
export async function benchmarkVariants(runtime: Runtime, { calls }: Prepared): Promise<void> {
  const measured = await tune({
    targets: calls,
    limits: runtime.limits,
    time: (lowering, { call }) => timeLowering(runtime, lowering, call),
    store: {
      get: async (key) => winners(runtime).get(key),
      set: async (key, variant) => {
        winners(runtime).set(key, variant)
      },
    },
  })
  runtime.variants = { ...measured, ...runtime.variants }
}

const kept = new WeakMap<Runtime, Map<string, string>>()

function winners(runtime: Runtime): Map<string, string> {
  const known = kept.get(runtime) ?? new Map<string, string>()
  kept.set(runtime, known)
  return known
}
