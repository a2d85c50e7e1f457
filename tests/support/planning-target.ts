import type { Runtime } from '../../src/graph/memory/runtime.ts'

/** What tracing, lowering and planning read of a runtime, with WebGPU's default limits: for specs that need no device. */
export const planningTarget = {
  limits: {
    maxInvocations: 256,
    workgroupMemoryBytes: 16_384,
    maxGroupsPerDimension: 65_535,
    isSoftware: true,
  },
  variants: {},
} as Runtime
