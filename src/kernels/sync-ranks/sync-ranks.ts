import { ShapeError } from '../../util/errors.ts'
import { formatShape, tensorType } from '../../util/shape.ts'
import { eachFloat, oneVariant } from '../elements.ts'
import { type Case, caseOf, defineOp, type Op } from '../op.ts'
import { ceilDiv, reads } from '../shader.ts'
import wgsl from './sync-ranks.wgsl?raw'

/**
 * What ranks make of their values. `gather`: a whole tensor of their parts, in rank order. `sum`: their sum. `scatter`: this rank's part of
 * their sum.
 */
export type SyncPoint = 'gather' | 'sum' | 'scatter'

export interface SyncAttrs {
  readonly syncPoint: SyncPoint
  readonly rank: number
  readonly size: number
  /** The number that the step's meetings have for the group of ranks; 0 is all ranks of a data-parallel model. */
  readonly group: number
  /** Where tensors are gathered: the elements of each; what parts have beyond them is padding. Default: those of all parts. */
  readonly totals?: readonly number[]
  /** Of a sum: all ranks use it for one loss, instead of each for its own, so that its gradient is on every rank already. */
  readonly isOneLoss?: boolean
}

/** A tensor in parts of equal length, the last ones of which may be padded or padding alone. units: elements. */
export interface Parts {
  readonly total: number
  readonly length: number
}

/** The parts of the tensor at position `at`; a sum's tensor is one part. */
export function partsOf(count: number, at: number, { syncPoint, size, totals }: SyncAttrs): Parts {
  if (syncPoint === 'sum') return { total: count, length: count }
  if (syncPoint === 'gather') return { total: totals?.[at] ?? count * size, length: count }
  return { total: count, length: ceilDiv(count, size) }
}

/** Elements [start, start + count) of the whole tensor that a rank's part holds. */
export function partOf({ total, length }: Parts, rank: number): { start: number; count: number } {
  const start = Math.min(total, rank * length)
  return { start, count: Math.min(length, total - start) }
}

/** What this rank's kernel copies, where the others have zeros. */
function copyOf(count: number, at: number, attrs: SyncAttrs) {
  const { syncPoint, rank } = attrs
  const parts = partsOf(count, at, attrs)
  const own = partOf(parts, syncPoint === 'sum' ? 0 : rank)
  const isGathered = syncPoint === 'gather'
  return {
    result: isGathered ? parts.total : parts.length,
    count: own.count,
    source: isGathered ? 0 : own.start,
    target: isGathered ? own.start : 0,
  }
}

const gradientOf = { gather: 'scatter', sum: 'sum', scatter: 'gather' } as const

/**
 * What the ranks of a group make of each input, in one exchange for all of them.
 *
 * shape: gather x[n] -> y[total]; sum x[n] -> y[n]; scatter x[total] -> y[n]; n is total / size, rounded up
 * The kernel and the reference are those of ranks of which all others have zeros. A program of several ranks takes the inputs to the host,
 * exchanges them and writes the results over the kernel's; see graph/run/sync-points.ts.
 * cost: a submit, a copy to the host and an exchange of n values a rank, in the middle of a step.
 */
export const syncRanks: Op<SyncAttrs> = defineOp<SyncAttrs>({
  name: 'syncRanks',
  infer(inputs, attrs) {
    return inputs.map((x, at) => {
      const [count] = x.shape
      const parts = partsOf(count, at, attrs)
      const isWhole = attrs.syncPoint === 'sum' || parts.length === ceilDiv(parts.total, attrs.size)
      if (x.shape.length !== 1 || count < 1 || x.dtype !== 'f32' || !isWhole) {
        throw new ShapeError(
          'shape.mismatch',
          `syncRanks: x must be f32[n] with values${isWhole ? '' : ` that are 1/${attrs.size} of ${parts.total}`}, got ${x.dtype}${formatShape(x.shape)}. Reshape it.`,
        )
      }
      return tensorType([copyOf(count, at, attrs).result])
    })
  },
  variants: oneVariant(({ inputs, outputs, attrs }) =>
    inputs.flatMap((x, at) => {
      const { count, source, target } = copyOf(x.shape[0], at, attrs)
      return eachFloat({
        label: `syncRanks ${attrs.syncPoint} ${x.shape[0]}`,
        bindings: [reads('x', { in: at })],
        output: { name: 'y', type: outputs[at], operand: { out: at } },
        constants: { COUNT: count, SOURCE: count > 0 ? source : 0, TARGET: target },
        functions: wgsl,
      })
    }),
  ),
  gradient({ outputs, outputGradients, inputs, attrs, emit }) {
    if (attrs.isOneLoss) return [...outputGradients]
    // What this rank gave is in every rank's loss, and every rank's loss is in the sum.
    const known = outputs.flatMap((_, at) => (outputGradients[at] ? [at] : []))
    if (known.length === 0) return []
    const totals = known.map((at) => inputs[at].type.shape[0])
    const { totals: _, ...others } = attrs
    const syncPoint = gradientOf[attrs.syncPoint]
    const results = emit(
      syncRanks,
      known.map((at) => outputGradients[at]!),
      { ...others, syncPoint, ...(syncPoint === 'gather' && { totals }) },
    )
    return outputs.map((_, at) => results[known.indexOf(at)])
  },
  reference(inputs, { attrs }) {
    return inputs.map((x, at) => {
      const { result, count, source, target } = copyOf(x.length, at, attrs)
      const y = new Float64Array(result)
      y.set((x as Float64Array).subarray(source, source + count), target)
      return y
    })
  },
  tolerance: { absolute: 0, relative: 0, because: 'copies' },
  cases: [
    rankCase('one value of one rank', [1], 'gather', 0, 1),
    rankCase('gathered by the second of 3', [67], 'gather', 1, 3),
    rankCase('two gathered by the last of 2, one padded', [67, 4], 'gather', 1, 2, [133, 8]),
    rankCase('gathered by a rank that has padding alone', [1], 'gather', 3, 4, [3]),
    rankCase('summed', [130], 'sum', 2, 4),
    rankCase('two scattered to the last of 3, one padded', [201, 4], 'scatter', 2, 3),
    { ...rankCase('huge', [5], 'gather', 1, 2), fill: 'huge' },
  ],
})

function rankCase(
  name: string,
  lengths: readonly number[],
  syncPoint: SyncAttrs['syncPoint'],
  rank: number,
  size: number,
  totals?: readonly number[],
): Case<SyncAttrs> {
  const attrs = { syncPoint, rank, size, group: 0, ...(totals && { totals }) }
  return caseOf(
    name,
    lengths.map((length) => [length]),
    attrs,
  )
}
