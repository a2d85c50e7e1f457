import { isOf } from '../../util/kind-of.ts'
import type { HostData } from '../memory/host-values.ts'
import type { Trace } from '../trace/trace.ts'
import type { GraphNode, GraphValue } from '../trace/value.ts'

/** Reads the current contents of a value in a run, float16 as f32. */
export type ReadValue = (value: GraphValue) => Promise<HostData>

/** Called after each op of an op-by-op run. An exception ends the run. */
export type OnNode = (node: GraphNode, readValue: ReadValue, trace: Trace) => Promise<void>

export const hasNan = (data: HostData): boolean =>
  isOf(data, Float32Array) && data.some(Number.isNaN)

export const isNotFinite = (data: HostData): boolean =>
  isOf(data, Float32Array) && data.some((value) => !Number.isFinite(value))
