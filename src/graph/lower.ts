import { chooseVariant, variantKey } from '../kernels/choose.ts'
import { withNativeHalf } from '../kernels/half.ts'
import type { KernelLimits, Lowering, OpCall } from '../kernels/op.ts'
import type { GraphNode } from './value.ts'

/** A node with the kernels that compute it. */
export interface LoweredNode {
  readonly node: GraphNode
  readonly lowering: Lowering
}

export interface LoweringChoice {
  readonly limits: KernelLimits
  readonly variants: Readonly<Record<string, string>>
  /** Take the naive variant of every op. */
  readonly isNaive: boolean
}

/** A node's use of its op, as kernels see it. */
export const callOf = ({ inputs, outputs, attrs }: GraphNode): OpCall => ({
  inputs: inputs.map(({ type }) => type),
  outputs: outputs.map(({ type }) => type),
  attrs,
})

/** The same kernels with loads of f16 by the adapter's own instructions. */
const inNativeHalf = (lowering: Lowering): Lowering => ({
  ...lowering,
  dispatches: lowering.dispatches.map((dispatch) => ({
    ...dispatch,
    wgsl: withNativeHalf(dispatch.wgsl),
  })),
})

/** Chooses a variant for each node and returns the kernels, with the choice by key for the run's record. */
export function lowerNodes(
  nodes: readonly GraphNode[],
  { limits, variants, isNaive }: LoweringChoice,
): { lowered: LoweredNode[]; chosen: Record<string, string> } {
  const chosen: Record<string, string> = {}
  const lowered: LoweredNode[] = []
  for (const node of nodes) {
    if (node.op.isView) continue
    const call = callOf(node)
    const variant = chooseVariant(node.op, call, limits, variants, isNaive)
    chosen[variantKey(node.op, call)] = variant.name
    const lowering = variant.lower(call)
    lowered.push({ node, lowering: limits.hasF16 ? inNativeHalf(lowering) : lowering })
  }
  return { lowered, chosen }
}
