import { meet } from '../../kernels/meet/meet.ts'
import type { Op } from '../../kernels/op.ts'
import { TabringError } from '../../util/errors.ts'
import { type GraphValue, nodesBehind, type StoredLeaf } from './value.ts'

const isDivided = ({ sharedBy }: StoredLeaf): boolean => sharedBy !== undefined && sharedBy.size > 1

/**
 * Refuses gradients that would let ranks drift apart: of whole parameters, computed from this rank's part of a divided layer.
 *
 * What a divided parameter takes part in differs between ranks until they meet: sum or gather it.
 * errors: `graph.misuse` naming the parameter, or saying that the loss is of a part.
 */
export function refuseDivided(
  loss: GraphValue,
  gradients: ReadonlyMap<StoredLeaf, GraphValue>,
): void {
  const computed = new Set<GraphValue>()
  const differs = (value: GraphValue) =>
    computed.has(value) || (value.leaf?.kind === 'parameter' && isDivided(value.leaf.parameter))
  for (const { op, inputs, outputs } of nodesBehind([loss, ...gradients.values()])) {
    if (op === (meet as Op) || !inputs.some(differs)) continue
    for (const value of outputs) computed.add(value)
  }
  const refuse = (what: string) =>
    new TabringError(
      'graph.misuse',
      `backward: ${what}, so the ranks would train different models. Follow each ColwiseParallel layer by a RowwiseParallel one, with only activations and divided layers between them.`,
    )
  if (differs(loss)) throw refuse('the loss is computed from a part of a divided layer')
  for (const [parameter, gradient] of gradients) {
    if (isDivided(parameter) || !differs(gradient)) continue
    throw refuse(`"${parameter.name}" is not divided, but reads a part of a divided layer`)
  }
}
