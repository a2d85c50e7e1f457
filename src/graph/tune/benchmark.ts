import { tune } from '../../kernels/tune.ts'
import type { Runtime } from '../memory/runtime.ts'
import type { Prepared } from '../plan/prepare.ts'
import { timeLowering } from './time-lowering.ts'
import { environmentOf, openTuneStore } from './tune-store.ts'

let isOn = false
/** Opened at its first use. */
const store = openTuneStore()

export const isBenchmarking = (): boolean => isOn

/** Sets whether `compile` measures the variants of each new kernel call on the adapter and keeps the fastest, instead of the fixed table. */
export function setBenchmarking(value: boolean): void {
  isOn = value
}

/** Adds the fastest variant of every call of a program to the runtime's table; calls that were measured in this browser, on an earlier visit too, are not measured again. */
export async function benchmarkVariants(runtime: Runtime, { calls }: Prepared): Promise<void> {
  const measured = await tune({
    targets: calls,
    limits: runtime.limits,
    time: (lowering, { call }) => timeLowering(runtime, lowering, call),
    store,
    environment: environmentOf(runtime),
  })
  runtime.variants = { ...measured, ...runtime.variants }
}
