import type { Memory } from './memory-device.ts'
import { type AnyRuntime, ReferenceRuntime } from './runtime.ts'

/** Where a runtime's programs have their memory. */
export const memoryOf = (runtime: AnyRuntime): Memory =>
  runtime instanceof ReferenceRuntime ? 'host' : runtime.gpu
