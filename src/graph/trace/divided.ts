import { attention } from '../../kernels/attention/attention.ts'
import type { AttentionAttrs } from '../../kernels/attention/geometry.ts'
import { cumsum } from '../../kernels/cumsum/cumsum.ts'
import { detach } from '../../kernels/detach/detach.ts'
import { dropout } from '../../kernels/dropout/dropout.ts'
import { integerMap } from '../../kernels/integers/integer-map.ts'
import { map } from '../../kernels/map/map.ts'
import { type MeetAttrs, meet } from '../../kernels/meet/meet.ts'
import { norm } from '../../kernels/norm/norm.ts'
import type { Op } from '../../kernels/op.ts'
import { amax, amin } from '../../kernels/reduce/extreme.ts'
import { topK } from '../../kernels/select/select.ts'
import { logSoftmax, logSumExp, softmax } from '../../kernels/softmax/softmax.ts'
import { sum } from '../../kernels/sum/sum.ts'
import { type ViewAttrs, view } from '../../kernels/view/view.ts'
import { TabringError } from '../../util/errors.ts'
import type { GraphNode, GraphValue, StoredLeaf } from './value.ts'

const isDivided = ({ sharedBy, isShard }: StoredLeaf): boolean =>
  sharedBy !== undefined && sharedBy.size > 1 && !isShard

const elementwise = new Set<Op>([map, integerMap, detach] as Op[])

const overAxes = new Set<Op>([
  sum,
  amax,
  amin,
  softmax,
  logSoftmax,
  logSumExp,
  cumsum,
  topK,
] as Op[])

/**
 * Which values of a step are this rank's part of a divided layer, or are computed from one: they differ between ranks until these sum them.
 */
export class DividedValues {
  readonly #computed = new WeakSet<GraphValue>()
  /** Those of which the last axis is divided: outputs of ColwiseParallel layers, and elementwise functions of them. */
  readonly #columns = new WeakSet<GraphValue>()

  has(value: GraphValue): boolean {
    const { leaf } = value
    return (leaf?.kind === 'parameter' && isDivided(leaf.parameter)) || this.#computed.has(value)
  }

  addColumns(value: GraphValue): void {
    this.#columns.add(value)
  }

  follow({ op, inputs, outputs, attrs }: GraphNode): void {
    const isSum = op === (meet as Op) && (attrs as MeetAttrs).isOneLoss
    if (isSum || !inputs.some((value) => this.has(value))) return
    for (const value of outputs) this.#computed.add(value)
    const isSameSize = ({ type }: GraphValue) => type.shape.at(-1) === outputs[0].type.shape.at(-1)
    if (elementwise.has(op) && inputs.some((x) => this.#columns.has(x) && isSameSize(x)))
      this.#columns.add(outputs[0])
  }

  /** errors: `graph.misuse` for an op of user code that gives something else for the parts than for the whole. */
  refuseOp(op: Op, inputs: readonly GraphValue[], attrs: unknown): void {
    if (!inputs.some((value) => this.has(value))) return
    const refuse = (what: string) => new TabringError('graph.misuse', what)
    const isAttention = op === (attention as Op)
    if (op === (dropout as Op) || (isAttention && (attrs as AttentionAttrs).dropout))
      throw refuse(
        `${op.name}: all ranks would drop the same elements of their parts of a divided layer. Set dropout to 0 there, or apply it after the RowwiseParallel layer.`,
      )
    if (op.updates?.length)
      throw refuse(
        `${op.name}: it would change buffers by this rank's part of a divided layer, so that ranks differ. Apply it after the RowwiseParallel layer; in a batch normalization set trackRunningStats to false.`,
      )
    const [x] = inputs
    if (!this.#columns.has(x) || !mixesLastAxis(op, x, attrs)) return
    const name = op === (view as Op) ? 'flip' : op === (norm as Op) ? 'normalization' : op.name
    throw refuse(
      `${name}: each rank has only a part of this axis, which ColwiseParallel divides. Apply it after the RowwiseParallel layer, or omit the two layers from the plan of parallelizeModule.`,
    )
  }
}

function mixesLastAxis(op: Op, { type }: GraphValue, attrs: unknown): boolean {
  const last = type.shape.length - 1
  if (op === (view as Op)) return (attrs as ViewAttrs).step[last] < 0
  const { axes, axis } = attrs as { readonly axes?: readonly number[]; readonly axis?: number }
  return op === (norm as Op) || (overAxes.has(op) && (axes ?? [axis]).includes(last))
}

/**
 * Refuses gradients that would let ranks drift apart: of whole parameters, computed from this rank's part of a divided layer.
 *
 * errors: `graph.misuse` naming the parameter, or saying that the loss is of a part.
 */
export function refuseDivided(
  divided: DividedValues,
  loss: GraphValue,
  gradients: ReadonlyMap<StoredLeaf, GraphValue>,
): void {
  const refuse = (what: string) =>
    new TabringError(
      'graph.misuse',
      `backward: ${what}, so the ranks would train different models. Follow each ColwiseParallel layer by a RowwiseParallel one, with only activations and divided layers between them.`,
    )
  if (divided.has(loss)) throw refuse('the loss is computed from a part of a divided layer')
  for (const [parameter, gradient] of gradients) {
    if (isDivided(parameter) || !divided.has(gradient)) continue
    throw refuse(`"${parameter.name}" is not divided, but reads a part of a divided layer`)
  }
}
