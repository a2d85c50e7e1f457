import { ShapeError } from '../../util/errors.ts'
import { formatShape, type TensorType, unify } from '../../util/shape.ts'
import type { OpCall, Variant } from '../op.ts'
import { ceilDiv, linearGroups } from '../shader.ts'

/** The part of a flat tensor that an optimizer kernel touches: a rank updates its own slice of every bucket. */
export interface Slice {
  /** First element. */
  readonly start: number
  /** How many elements. */
  readonly length: number
}

export type SliceElement = 'f32' | 'vec4<f32>'

const threads = 64

/** Group counts and constants of an elementwise kernel over a slice, one `element` a thread. */
export function sliceGrid({ start, length }: Slice, element: SliceElement) {
  const width = element === 'f32' ? 1 : 4
  const groups = linearGroups(ceilDiv(length / width, threads))
  return {
    groups,
    constants: {
      START: start / width,
      COUNT: length / width,
      THREADS: threads,
      GROUPS_X: groups[0],
    },
  }
}

/** Whether the slice can be read and written four elements at a time. */
const isAligned = ({ start, length }: Slice): boolean =>
  length > 0 && start % 4 === 0 && length % 4 === 0

/** The two variants of an optimizer kernel: one element a thread, and four where the slice allows it. */
export const sliceVariants = <A extends Slice>(
  lower: (call: OpCall<A>, element: SliceElement) => ReturnType<Variant<A>['lower']>,
): [Variant<A>, ...Variant<A>[]] => [
  { name: 'naive', lower: (call) => lower(call, 'f32') },
  {
    name: 'vec4',
    when: (call) => isAligned(call.attrs),
    lower: (call) => lower(call, 'vec4<f32>'),
  },
]

export const preferredSliceVariant = (call: OpCall<Slice>): string =>
  isAligned(call.attrs) ? 'vec4' : 'naive'

/** errors: `shape.mismatch` unless all tensors are flat f32 of one length that holds the slice. */
export function checkSlice(
  op: string,
  names: readonly string[],
  inputs: readonly TensorType[],
  { start, length }: Slice,
): void {
  const { n } = unify(
    op,
    names.map((name, i) => [name, 'n', inputs[i].shape] as const),
  )
  const wrong = inputs.findIndex(({ dtype }) => dtype !== 'f32')
  if (wrong >= 0) {
    throw new ShapeError(
      'shape.unsupported',
      `${op}: ${names[wrong]} must be f32, got ${inputs[wrong].dtype}${formatShape(inputs[wrong].shape)}. Optimizers keep float parameters only.`,
    )
  }
  const isWhole = Number.isInteger(start) && Number.isInteger(length)
  if (!isWhole || start < 0 || length < 0 || start + length > n) {
    throw new ShapeError(
      'shape.mismatch',
      `${op}: the slice must lie within 0..${n}, got start ${start} and length ${length}. Cut the parameter's own length into slices.`,
    )
  }
}
