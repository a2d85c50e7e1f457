import { alias } from '../../kernels/alias/alias.ts'
import { attention } from '../../kernels/attention/attention.ts'
import type { AttentionAttrs } from '../../kernels/attention/geometry.ts'
import { barrier } from '../../kernels/barrier/barrier.ts'
import { batchNorm } from '../../kernels/batch-norm/batch-norm.ts'
import { cast } from '../../kernels/cast/cast.ts'
import { cat, type SplitAttrs, split } from '../../kernels/cat/cat.ts'
import { type ConstantAttrs, constant } from '../../kernels/constant/constant.ts'
import { cumsum } from '../../kernels/cumsum/cumsum.ts'
import { detach } from '../../kernels/detach/detach.ts'
import { amax, amin } from '../../kernels/extreme/extreme.ts'
import { integerMap } from '../../kernels/integers/integer-map.ts'
import { map } from '../../kernels/map/map.ts'
import { matmul } from '../../kernels/matmul/matmul.ts'
import type { MatmulAttrs, MatmulForm } from '../../kernels/matmul/problem.ts'
import { type NormAttrs, norm } from '../../kernels/norm/norm.ts'
import type { Op } from '../../kernels/op.ts'
import { reshape } from '../../kernels/reshape/reshape.ts'
import { type RotaryAttrs, rotary } from '../../kernels/rotary/rotary.ts'
import { topK } from '../../kernels/select/select.ts'
import { logSoftmax, logSumExp, softmax } from '../../kernels/softmax/softmax.ts'
import { sum } from '../../kernels/sum/sum.ts'
import { transfer } from '../../kernels/transfer/transfer.ts'
import { triangle } from '../../kernels/triangle/triangle.ts'
import { type PlaceAttrs, place, type ViewAttrs, view } from '../../kernels/view/view.ts'
import { countElements, type Shape } from '../../util/shape.ts'
import type { DividedAxis, GraphValue } from './value.ts'

/** Result of an op for a part: the axis of its outputs, undefined where none is known, or a string where the op needs the whole. */
export type AfterOp = DividedAxis | undefined | string

/** A tensor of which ranks have parts, or, without an axis, one that all have. */
export interface Operand {
  readonly value: GraphValue
  readonly shape: Shape
  readonly at: DividedAxis | undefined
  /** True if it is a parameter of which ranks have parts, or a copy. */
  readonly isParameter: boolean
}

const partOfAxis = 'each rank has only a part of this axis, which ColwiseParallel divides'
const isDifferent =
  'each rank has only a part of an axis of one input, which ColwiseParallel divides, but not the same part of the others'

const needsWhole =
  'it may need a whole axis that ColwiseParallel divides, of which each rank has only a part'

/** The first operand has an axis, but in rules of `ofAll`. */
type Rule = (operands: readonly Operand[], attrs: never) => AfterOp

const innerOf = (shape: Shape, axis: number) => countElements(shape.slice(axis + 1))

/** The first input's axis, in outputs of the same shape. */
const same: Rule = ([{ at }]) => at

/** The axis of the one input that has one, or of several that have the same. */
function elementwise(operands: readonly Operand[]): AfterOp {
  const rank = Math.max(...operands.map(({ shape }) => shape.length))
  const fromEnd = operands.flatMap(({ shape, at }) => (at ? [shape.length - at.axis] : []))[0]
  const sizeOf = ({ shape }: Operand) => shape[shape.length - fromEnd] ?? 1
  const divided = operands.filter(({ at }) => at)
  const [{ at: first }] = divided
  const areEqual = divided.every(
    (one) =>
      one.shape.length - one.at!.axis === fromEnd &&
      one.at!.span === first!.span &&
      sizeOf(one) === sizeOf(divided[0]),
  )
  const isFree = (one: Operand) =>
    one.at ||
    sizeOf(one) === 1 ||
    (sizeOf(one) === sizeOf(divided[0]) && repeats(one.value, one.shape.length - fromEnd))
  const whole = operands.find((one) => !isFree(one))?.value.leaf
  if (whole?.kind === 'parameter')
    return `${whole.parameter.title} is not divided, but the other input is, by ColwiseParallel`
  if (!areEqual || !operands.every(isFree)) return isDifferent
  return { axis: rank - fromEnd, span: first!.span }
}

/** Returns whether all elements along the axis are known to be the same. */
function repeats({ node }: GraphValue, axis: number): boolean {
  if (node?.op === (constant as Op)) return (node.attrs as ConstantAttrs).step === 0
  return node?.op === (view as Op) && (node.attrs as ViewAttrs).axes[axis] === -1
}

/** Over axes that are not the divided one. */
const over =
  (isReduced: boolean): Rule =>
  ([{ at }], attrs: { axes?: readonly number[]; axis?: number; keepDims?: boolean }) => {
    const axes = attrs.axes ?? [attrs.axis!]
    if (axes.includes(at!.axis)) return partOfAxis
    const gone = isReduced && !attrs.keepDims ? axes.filter((axis) => axis < at!.axis).length : 0
    return { axis: at!.axis - gone, span: at!.span }
  }

export interface ReshapedAttrs {
  readonly shape: Shape
  /** The dimension that the user gave as -1. */
  readonly inferred?: number
}

/**
 * Elements keep their order, so that a rank has as many in a row as before: `run`. The axis is the one in which such runs begin.
 *
 * Several do where some have size 1: then the one whose size was left open, since that is larger on one rank; else one that is as large as
 * before, or the last.
 */
const reshaped: Rule = ([{ shape: from, at }], { shape, inferred }: ReshapedAttrs) => {
  const run = at!.span * innerOf(from, at!.axis)
  if (run === 0) return undefined
  const all = shape.flatMap((size, axis): DividedAxis[] => {
    const inner = innerOf(shape, axis)
    const begins = run % inner === 0 && (inner * size) % run === 0
    return begins ? [{ axis, span: run / inner }] : []
  })
  const before = (sizes: Shape, axis: number) => countElements(sizes.slice(0, axis))
  const inPlace = all.filter(({ axis }) => before(shape, axis) === before(from, at!.axis))
  const asLarge = (some: readonly DividedAxis[]) =>
    some.findLast(({ axis }) => shape[axis] === from[at!.axis])
  const found = asLarge(inPlace) ?? inPlace.at(-1) ?? asLarge(all) ?? all.at(-1)
  if (!found)
    return 'the new shape does not keep together what each rank has of an axis that ColwiseParallel divides'
  if (inferred === undefined) return found
  const given = all.find(({ axis }) => axis === inferred)
  const asBefore = at!.span === from[at!.axis] && !inPlace.includes(given!) && asLarge(inPlace)
  // Rows of what a rank has.
  if (asBefore && shape.length === 2) return asBefore
  if (given && !asBefore) return given
  return '-1 stands for another dimension than the one that ColwiseParallel divides. Give that one as -1, such as the number of heads, and all others as numbers'
}

const viewed: Rule = ([{ shape: from, at }], { shape, axes, start, step }: ViewAttrs) => {
  const axis = axes.indexOf(at!.axis)
  const isWhole = axis >= 0 && shape[axis] === from[at!.axis] && step[at!.axis] === 1
  const takesRuns =
    axis >= 0 &&
    step[at!.axis] === 1 &&
    start[at!.axis] % at!.span === 0 &&
    shape[axis] % at!.span === 0 &&
    at!.span < from[at!.axis]
  return isWhole || takesRuns ? { axis, span: at!.span } : partOfAxis
}

const placed: Rule = ([{ shape: from, at }], { shape, axes, step }: PlaceAttrs) => {
  const axis = axes[at!.axis]
  return shape[axis] === from[at!.axis] && step[axis] === 1 ? { axis, span: at!.span } : partOfAxis
}

/** Along the divided axis, inputs become blocks. */
const joined: Rule = (operands, { axis }: SplitAttrs) => {
  const first = operands.flatMap(({ at }) => at ?? [])[0]
  const areEqual = operands.every(({ value, at }) =>
    at
      ? at.axis === first.axis && at.span === first.span
      : axis !== first.axis && repeats(value, first.axis),
  )
  return areEqual ? first : isDifferent
}

const cut: Rule = ([{ at }], { axis, sizes }: SplitAttrs) =>
  axis !== at!.axis || sizes.every((size) => size % at!.span === 0) ? at : partOfAxis

/** The same as one element for each matrix. */
const ofMatrices = (one: Operand): Operand => ({ ...one, shape: [...one.shape.slice(0, -2), 1, 1] })

const letters: Record<MatmulForm, readonly [a: string, b: string]> = {
  nn: ['mk', 'kn'],
  nt: ['mk', 'nk'],
  tn: ['km', 'kn'],
}

/** A product of parts: one of them by rows or columns, both by the same batch axis, or one with a parameter over the divided axis. */
const multiplied: Rule = (operands, { form }: MatmulAttrs) => {
  const [a, b] = operands
  const rank = Math.max(a.shape.length, b.shape.length)
  const roles = [a, b].flatMap(({ shape, at }, side) => {
    if (!at) return []
    const fromEnd = shape.length - at.axis
    return [{ fromEnd, name: fromEnd > 2 ? 'batch' : letters[form][side][2 - fromEnd] }]
  })
  if (roles.some(({ name }) => name === 'k')) {
    const areEqual =
      roles.length === 2 && roles[0].name === roles[1].name && a.at?.span === b.at?.span
    return areEqual && (a.isParameter || b.isParameter) ? undefined : partOfAxis
  }
  if (roles.every(({ name }) => name === 'batch')) return elementwise([a, b].map(ofMatrices))
  if (roles.length > 1) return isDifferent
  const [{ name }] = roles
  return { axis: rank - (name === 'n' ? 1 : 2), span: (a.at ?? b.at)!.span }
}

/** By heads: no head is divided, and queries, keys and values are divided the same way; keys and values may have fewer heads. */
const attended: Rule = (operands, { layout, heads, keyHeads = heads }: AttentionAttrs) => {
  const [query, ...others] = operands.slice(0, layout === 'packed' ? 1 : 3)
  const { at, shape } = query
  const isByHead = layout !== 'heads' || at?.axis === shape.length - 3
  const share = isByHead ? keyHeads / heads : 1
  const areEqual = others.every(
    (one) => one.at?.axis === at?.axis && one.at?.span === (at && at.span * share),
  )
  if (!at || !areEqual) return isDifferent
  const mask = operands.at(layout === 'packed' ? 1 : 3)
  if (layout === 'heads') {
    if (at.axis >= shape.length - 2) return partOfAxis
    return mask ? elementwise([query, mask].map(ofMatrices)) : at
  }
  if (mask && (mask.shape.at(-3) ?? 1) > 1 && !repeats(mask.value, mask.shape.length - 3))
    return isDifferent
  const width = shape[shape.length - 1] / (layout === 'packed' ? 3 : 1)
  if (at.axis !== shape.length - 1) return partOfAxis
  return at.span === width
    ? at
    : 'its queries, keys and values are not divided one by one. Give the layer before it ColwiseParallel({ blocks: 3 })'
}

const normalized: Rule = ([{ shape, at }], { size, groups, span }: NormAttrs) =>
  groups === 1 && span === 1 && innerOf(shape, at!.axis) % size === 0 ? at : partOfAxis

const byChannel: Rule = ([{ at }]) => (at?.axis === 1 ? at : partOfAxis)

const turned: Rule = ([{ shape, at }], { width }: RotaryAttrs) =>
  at && (at.span * innerOf(shape, at.axis)) % width === 0 ? at : partOfAxis

const triangular: Rule = ([{ shape, at }]) => (at!.axis < shape.length - 2 ? at : partOfAxis)

const ofFirst = new Map<Op, Rule>([
  [detach, same],
  [alias, same],
  [barrier, same],
  [cast, same],
  [transfer, same],
  [sum, over(true)],
  [amax, over(true)],
  [amin, over(true)],
  [logSumExp, over(true)],
  [softmax, over(false)],
  [logSoftmax, over(false)],
  [cumsum, over(false)],
  [topK, over(false)],
  [reshape, reshaped],
  [view, viewed],
  [place, placed],
  [split, cut],
  [norm, normalized],
  [batchNorm, byChannel],
  [rotary, turned],
  [triangle, triangular],
] as [Op, Rule][])

const ofAll = new Map<Op, Rule>([
  [map, elementwise],
  [integerMap, elementwise],
  [cat, joined],
  [matmul, multiplied],
  [attention, attended],
] as [Op, Rule][])

/** The axis of an op's outputs. Some of the operands have one. */
export function axisAfter(op: Op, operands: readonly Operand[], attrs: unknown): AfterOp {
  const rule = ofAll.get(op) ?? (operands[0].at && ofFirst.get(op))
  return rule ? rule(operands, attrs as never) : needsWhole
}
