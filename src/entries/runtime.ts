/** What runs a step: GPUs, memory, times, switches, and what looks inside. */

export { type AdapterFacts, type Gpu, type GpuCounters, openGpu } from '../gpu/device.ts'
export { type AnomalyOptions, detectAnomaly } from '../graph/compile/detect-anomaly.ts'
export { type EagerOptions, runEagerly } from '../graph/compile/eager.ts'
export type { OnNode, ReadValue } from '../graph/inside/probe.ts'
export { defaultRuntime, runtimeOf } from '../graph/memory/default-runtime.ts'
export type { StoredData } from '../graph/memory/pool.ts'
export { type AnyRuntime, ReferenceRuntime, Runtime } from '../graph/memory/runtime.ts'
export type { PlanOptions } from '../graph/plan/plan.ts'
export {
  type DeviceMemory,
  type ProgramMemory,
  type RunTimes,
  runTimesOf,
  type StepTimes,
} from '../graph/plan/step-program.ts'
export type { CompilingRanks, RankGroup, RankMessages, StepKey } from '../graph/trace/exchange.ts'
export { randomScalarNames } from '../graph/trace/random.ts'
export type { DividedAxis } from '../graph/trace/value.ts'
export type { KernelLimits, ScalarSlot } from '../kernels/op.ts'
export { exportTrace, type TraceEvent } from '../util/spans.ts'
export {
  type SwitchInputs,
  type SwitchName,
  type SwitchValues,
  setSwitches,
} from '../util/switches.ts'
