import { attention } from '../../kernels/attention/attention.ts'
import type { AttentionAttrs } from '../../kernels/attention/geometry.ts'
import { crossEntropy } from '../../kernels/cross-entropy/cross-entropy.ts'
import { crossEntropyRows } from '../../kernels/cross-entropy-rows/cross-entropy-rows.ts'
import { dropout } from '../../kernels/dropout/dropout.ts'
import { type MapAttrs, map } from '../../kernels/map/map.ts'
import { norm } from '../../kernels/norm/norm.ts'
import type { Op } from '../../kernels/op.ts'
import { type SyncAttrs, syncRanks } from '../../kernels/sync-ranks/sync-ranks.ts'
import { transfer } from '../../kernels/transfer/transfer.ts'
import { triangle } from '../../kernels/triangle/triangle.ts'
import { place, type ViewAttrs, view } from '../../kernels/view/view.ts'
import { ShapeError, TabringError } from '../../util/errors.ts'
import { formatShape } from '../../util/shape.ts'
import { type AfterOp, axisAfter, type Operand } from './divided-axis.ts'
import type { DividedAxis, GraphNode, GraphValue, StoredLeaf } from './value.ts'

const isDivided = ({ sharedBy, isShard }: StoredLeaf): boolean =>
  sharedBy !== undefined && sharedBy.size > 1 && !isShard

/** A divided parameter, or a copy of one: in f16, or on another device. */
function isOfParameter({ node, leaf }: GraphValue): boolean {
  if (leaf) return leaf.kind === 'parameter' && isDivided(leaf.parameter)
  const isCopy =
    node?.op === (transfer as Op) ||
    (node?.op === (map as Op) && (node.attrs as MapAttrs).steps.length === 0)
  return isCopy && isOfParameter(node.inputs[0])
}

/**
 * Which values of a step are this rank's part of a divided layer, or are computed from one: they differ between ranks until these sum them.
 */
export class DividedValues {
  readonly #computed = new WeakSet<GraphValue>()
  /** The axes of those of which it is known along which axis they are divided. */
  readonly #axes = new WeakMap<GraphValue, DividedAxis>()

  /** Gradients of which this rank has a part, and what is computed from them. */
  readonly #gradients = new WeakSet<GraphValue>()
  /** Output of the newest op, where it is a part. */
  #newest: GraphValue | undefined

  has(value: GraphValue): boolean {
    const { leaf } = value
    return (leaf?.kind === 'parameter' && isDivided(leaf.parameter)) || this.#computed.has(value)
  }

  axisOf(value: GraphValue): DividedAxis | undefined {
    const { leaf } = value
    return (
      this.#axes.get(value) ??
      (leaf?.kind === 'parameter' ? leaf.parameter.dividedAlong : undefined)
    )
  }

  /** Notes that `gradient` is this rank's part, where it is the gradient by a part. */
  addGradient(value: GraphValue, gradient: GraphValue): void {
    const parameter = value.leaf?.kind === 'parameter' ? value.leaf.parameter : undefined
    const isPart = parameter ? (parameter.sharedBy?.size ?? 1) > 1 : this.#computed.has(value)
    const at = parameter?.isShard ? { axis: 0, span: gradient.type.shape[0] } : this.axisOf(value)
    if (!isPart || !at) return
    this.#computed.add(gradient)
    this.#axes.set(gradient, at)
    this.#gradients.add(gradient)
  }

  follow({ op, inputs, outputs, attrs }: GraphNode): void {
    const isSum = op === (syncRanks as Op) && (attrs as SyncAttrs).isOneLoss
    this.#newest = undefined
    if (isSum || !inputs.some((value) => this.has(value))) return
    this.#newest = outputs[0]
    const after = this.#after(op, inputs, attrs)
    const isGradient = inputs.some((value) => this.#gradients.has(value))
    for (const value of outputs) {
      this.#computed.add(value)
      if (isGradient) this.#gradients.add(value)
      if (after && typeof after !== 'string') this.#axes.set(value, after)
    }
  }

  /** The error for what a traced function threw: sizes of the whole do not fit a part, which a function's own checks do not know. */
  explained(thrown: unknown): unknown {
    if (!(thrown instanceof ShapeError) || !this.#newest) return thrown
    const [problem] = thrown.message.split('. ')
    return new TabringError(
      'graph.misuse',
      `${problem}. The newest tensor, ${formatShape(this.#newest.type.shape)}, is this rank's part of a layer that ColwiseParallel divides. Apply what needs the whole after the RowwiseParallel layer, or omit the two layers from the plan of parallelizeModule. In reshape, write -1 for the divided dimension.`,
      { cause: thrown },
    )
  }

  /** Takes `output` for what `op` makes of `inputs`, where another op made it because the memory layout is the same. errors: as `refuseOp`. */
  followAs(op: Op, inputs: readonly GraphValue[], attrs: unknown, output: GraphValue): void {
    const after = this.refuseOp(op, inputs, attrs)
    if (after) this.#axes.set(output, after)
  }

  /** Returns the divided axis of the outputs, where it is known. errors: `graph.misuse` for an op of user code that gives something else for the parts than for the whole. */
  refuseOp(op: Op, inputs: readonly GraphValue[], attrs: unknown): DividedAxis | undefined {
    if (!inputs.some((value) => this.has(value))) return undefined
    const refuse = (what: string) => new TabringError('graph.misuse', what)
    const after = this.#after(op, inputs, attrs)
    if (inputs.some((value) => this.#gradients.has(value))) {
      if (typeof after !== 'string') return after
      throw refuse(
        `${nameOf(op, attrs)}: each rank has only a part of this gradient, since fullyShard or parallelizeModule divides what it is by. For the norm over all ranks use clipGradNorm after backward; otherwise use elementwise functions, with tensors of its shape here.`,
      )
    }
    const isAttention = op === (attention as Op)
    if (op === (dropout as Op) || (isAttention && (attrs as AttentionAttrs).dropout))
      throw refuse(
        `${op.name}: all ranks would drop the same elements of their parts of a divided layer. Set dropout to 0 there, or apply it after the RowwiseParallel layer.`,
      )
    if (op.updates?.length)
      throw refuse(
        `${op.name}: it would change buffers by this rank's part of a divided layer, so that ranks differ. Apply it after the RowwiseParallel layer; in a batch normalization set trackRunningStats to false.`,
      )
    if (typeof after !== 'string') return after
    if (op === (crossEntropy as Op) || op === (crossEntropyRows as Op))
      throw misuse(op.name, lossOfPart)
    const advice = inputs.some(isOfParameter)
      ? "For weight decay use the optimizer's weightDecay"
      : 'Apply it after the RowwiseParallel layer'
    throw refuse(
      `${nameOf(op, attrs)}: ${after}. ${advice}, or omit the two layers from the plan of parallelizeModule.`,
    )
  }

  #after(op: Op, inputs: readonly GraphValue[], attrs: unknown): AfterOp {
    const operands = inputs.map(
      (value): Operand => ({
        value,
        shape: value.type.shape,
        at: this.has(value) ? this.axisOf(value) : undefined,
        isParameter: isOfParameter(value),
      }),
    )
    return operands.some(({ at }) => at) ? axisAfter(op, operands, attrs) : undefined
  }
}

/** Its name for users. */
function nameOf(op: Op, attrs: unknown): string {
  if (op === (map as Op)) return (attrs as MapAttrs).steps[0]?.fn ?? 'cast'
  if (op === (view as Op)) {
    const { axes, step } = attrs as ViewAttrs
    if (step.some((by) => by < 0)) return 'flip'
    return axes.includes(-1) ? 'expand' : 'slice'
  }
  if (op === (place as Op)) return 'pad'
  if (op === (triangle as Op)) return 'tril'
  return op === (norm as Op) ? 'normalization' : op.name
}

const misuse = (where: string, what: string) =>
  new TabringError(
    'graph.misuse',
    `${where}: ${what}, so the ranks would train different models. Follow each ColwiseParallel layer by a RowwiseParallel one, with only activations and divided layers between them.`,
  )

const lossOfPart = 'the loss is computed from a part of a divided layer'

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
  if (divided.has(loss)) throw misuse('backward', lossOfPart)
  for (const [parameter, gradient] of gradients) {
    if (isDivided(parameter) || parameter.isShard || !divided.has(gradient)) continue
    throw misuse(
      'backward',
      `${parameter.title} is not divided, but reads a part of a divided layer`,
    )
  }
}
