import { applicable, chooseVariant, variantKey } from '../../kernels/choose.ts'
import type { KernelLimits, Lowering, Op, OpCall, Variant } from '../../kernels/op.ts'
import { clipped } from '../../util/clipped.ts'
import { TabringError } from '../../util/errors.ts'
import { switchValue } from '../../util/switches.ts'
import { callOf, type GraphNode } from '../trace/value.ts'

/** A node with the kernels that compute it. */
export interface LoweredNode {
  readonly node: GraphNode
  readonly lowering: Lowering
}

export interface LoweringChoice {
  readonly limits: KernelLimits
  readonly variants: Readonly<Record<string, string>>
  /** Take the naive variant of every op. */
  readonly useNaiveKernels: boolean
}

/**
 * The variant that the switch `variant` names for a call, where it can run it.
 *
 * errors: `config.invalid` for a name that the op does not have.
 */
function forced(op: Op, call: OpCall, limits: KernelLimits): Variant | undefined {
  const name = switchValue('variant')[op.name]
  if (name === undefined) return undefined
  const names = op.variants.map((variant) => variant.name)
  if (!names.includes(name)) {
    throw new TabringError(
      'config.invalid',
      `switches: variant of ${op.name} must be ${names.join(', ')}, got "${clipped(name)}". Correct the switch "variant".`,
    )
  }
  return applicable(op, call, limits).find((variant) => variant.name === name)
}

const warned = new Set<string>()

/** Says, once for each, which ops of the switch `variant` the nodes do not have. */
function tellUnused(nodes: readonly GraphNode[]): void {
  const names = new Set(nodes.map(({ op }) => op.name))
  for (const name of Object.keys(switchValue('variant'))) {
    if (names.has(name) || warned.has(name)) continue
    warned.add(name)
    console.warn(
      `tabring: the switch variant names ${clipped(name)}, which is no op of the step that is compiled. npx tabring docs ops lists all ops.`,
    )
  }
}

/**
 * Chooses a variant for each node and returns the kernels, with the choice by key for the run's record.
 *
 * Equal calls, as micro-batches and layers make them, are lowered once; each node has dispatches that are its own objects.
 */
export function lowerNodes(
  nodes: readonly GraphNode[],
  { limits, variants, useNaiveKernels }: LoweringChoice,
): { lowered: LoweredNode[]; chosen: Record<string, string> } {
  const chosen: Record<string, string> = {}
  const lowered: LoweredNode[] = []
  const known = new Map<string, { readonly name: string; readonly lowering: Lowering }>()
  for (const node of nodes) {
    if (node.op.isView) continue
    const call = callOf(node)
    const key = variantKey(node.op, call)
    let one = known.get(key)
    if (!one) {
      const variant =
        forced(node.op, call, limits) ??
        chooseVariant(node.op, call, limits, variants, useNaiveKernels)
      one = { name: variant.name, lowering: variant.lower(call) }
      known.set(key, one)
    }
    const { name, lowering } = one
    chosen[key] = name
    const dispatches = lowering.dispatches.map((dispatch) => ({ ...dispatch }))
    lowered.push({ node, lowering: { ...lowering, dispatches } })
  }
  tellUnused(nodes)
  return { lowered, chosen }
}
