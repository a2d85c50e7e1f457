import { ShapeError } from '../../util/errors.ts'
import { countElements, formatShape, tensorType } from '../../util/shape.ts'
import { defineOp, type Op, type OpCall } from '../op.ts'
import { reshape } from '../reshape/reshape.ts'
import { ceilDiv, dispatch, linearGroups, reads, writes } from '../shader.ts'
import { view } from '../view/view.ts'
import { narrowed } from '../view/views.ts'
import wgsl from './meet.wgsl?raw'

export interface MeetAttrs {
  /** `gather`: every rank's values, in rank order. `sum`: their sum. */
  readonly meeting: 'gather' | 'sum'
  readonly rank: number
  readonly size: number
  /** Which ranks meet, where it is not all: a number that the program's exchange has for them. */
  readonly group?: number
}

const sizesOf = ({ inputs: [x], attrs }: Pick<OpCall<MeetAttrs>, 'inputs' | 'attrs'>) => {
  if (x.shape.length !== 1 || x.shape[0] < 1 || x.dtype !== 'f32') {
    throw new ShapeError(
      'shape.mismatch',
      `meet: x must be f32[n] with values, got ${x.dtype}${formatShape(x.shape)}. Reshape it.`,
    )
  }
  const count = x.shape[0]
  const isGathered = attrs.meeting === 'gather'
  return { count, total: isGathered ? attrs.size * count : count, own: isGathered ? attrs.rank : 0 }
}

/**
 * What all ranks' values make: gathered [size, n], or summed [n].
 *
 * The kernel and the reference are those of ranks of which all others have zeros. A program of several ranks takes x to the host, meets the
 * others and writes what they make over y.
 * cost: a submit, a copy to the host and an exchange of n values a rank, in the middle of a step.
 */
export const meet: Op<MeetAttrs> = defineOp<MeetAttrs>({
  name: 'meet',
  infer(inputs, attrs) {
    const { count } = sizesOf({ inputs, attrs })
    return [tensorType(attrs.meeting === 'gather' ? [attrs.size, count] : [count])]
  },
  variants: [
    {
      name: 'naive',
      lower(call) {
        const { count, total, own } = sizesOf(call)
        const groups = linearGroups(ceilDiv(total, 64))
        return {
          dispatches: [
            dispatch({
              label: `meet ${call.attrs.meeting} ${count}`,
              bindings: [reads('x', { in: 0 }), writes('y', { out: 0 })],
              constants: { COUNT: count, TOTAL: total, OWN: own, GROUPS_X: groups[0] },
              body: wgsl,
              groups,
            }),
          ],
        }
      },
    },
  ],
  gradient({ outputGradients: [dy], attrs, emit }) {
    if (!dy) return []
    // What this rank gave went into every rank's loss.
    const [total] = emit(reshape, [dy], { shape: [countElements(dy.type.shape)] })
    const [sums] = emit(meet, [total], { ...attrs, meeting: 'sum' as const })
    if (attrs.meeting === 'sum') return [sums]
    const count = countElements(dy.type.shape) / attrs.size
    return emit(view, [sums], narrowed(sums.type.shape, 0, attrs.rank * count, count))
  },
  reference([x], call) {
    const { count, total, own } = sizesOf(call)
    const y = new Float64Array(total)
    for (let i = 0; i < count; i++) y[own * count + i] = x[i]
    return [y]
  },
  tolerance: { absolute: 0, relative: 0, because: 'copies' },
  cases: [
    {
      name: 'one value of one rank',
      inputs: [tensorType([1])],
      attrs: { meeting: 'gather', rank: 0, size: 1 },
    },
    {
      name: 'gathered by the second of 3',
      inputs: [tensorType([67])],
      attrs: { meeting: 'gather', rank: 1, size: 3 },
    },
    {
      name: 'summed',
      inputs: [tensorType([130])],
      attrs: { meeting: 'sum', rank: 2, size: 4 },
    },
    {
      name: 'huge',
      inputs: [tensorType([5])],
      attrs: { meeting: 'gather', rank: 1, size: 2 },
      fill: 'huge',
    },
  ],
})
