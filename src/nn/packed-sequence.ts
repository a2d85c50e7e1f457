import { cat, zeros } from '../graph/functions/shape.ts'
import type { Tensor } from '../graph/tensor.ts'
import { ShapeError } from '../util/errors.ts'
import { formatShape } from '../util/shape.ts'

/** Steps of each sequence: numbers fixed when the program is compiled, or an i32 tensor [B] that each run gives anew. */
export type Lengths = readonly number[] | Tensor

/**
 * A batch of sequences of different lengths.
 *
 * PyTorch packs the steps that exist one after another; here they stay where they are, padded to one length, and layers pass over the padding:
 * a recorded program has fixed shapes, and so serves batches of any lengths. Results are the same numbers.
 */
export interface PackedSequence {
  /** shape: [T, B, F], or [B, T, F] with `batchFirst`; what lies beyond a sequence's length is not used, but must be finite. */
  readonly data: Tensor
  readonly lengths: Lengths
  readonly batchFirst: boolean
}

/**
 * Says how long the padded sequences of `x` are, for a recurrent layer.
 *
 * shape: [T, B, F], or [B, T, F] with `batchFirst`. Sequences may come in any order.
 * errors: `shape.mismatch` unless there is one length from 1 to T for each sequence.
 */
export function packPaddedSequence(
  x: Tensor,
  lengths: Lengths,
  { batchFirst = false }: { batchFirst?: boolean } = {},
): PackedSequence {
  const [T, B] = batchFirst ? [x.shape[1], x.shape[0]] : x.shape
  const fits = Array.isArray(lengths)
    ? lengths.length === B &&
      lengths.every((length) => Number.isInteger(length) && length >= 1 && length <= T)
    : (lengths as Tensor).dtype === 'i32' &&
      (lengths as Tensor).shape.length === 1 &&
      (lengths as Tensor).shape[0] === B
  if (x.shape.length !== 3 || !fits) {
    const got = Array.isArray(lengths)
      ? `[${lengths.join(', ')}]`
      : `${(lengths as Tensor).dtype}${formatShape((lengths as Tensor).shape)}`
    throw new ShapeError(
      'shape.mismatch',
      `packPaddedSequence: expected ${B} lengths from 1 to ${T} (or an i32 tensor [${B}]), got ${got} for x${formatShape(x.shape)}. Give one length a sequence.`,
    )
  }
  return { data: x, lengths, batchFirst }
}

/**
 * The padded sequences and their lengths. Padding is 0 in what a layer gave; sequences that went through none keep theirs.
 *
 * `totalLength` is the number of steps that come out; default: the longest of lengths that are numbers, else all that went in.
 * shape: [T, B, F], or [B, T, F] with `batchFirst`.
 * errors: `shape.mismatch` for a totalLength below the longest sequence.
 */
export function padPackedSequence(
  { data, lengths, batchFirst: isBatchFirst }: PackedSequence,
  { batchFirst = false, totalLength }: { batchFirst?: boolean; totalLength?: number } = {},
): { output: Tensor; lengths: Lengths } {
  const timeAxis = isBatchFirst ? 1 : 0
  const T = data.shape[timeAxis]
  const longest = Array.isArray(lengths) ? Math.max(0, ...lengths) : T
  const total = totalLength ?? longest
  if (!Number.isInteger(total) || total < longest) {
    throw new ShapeError(
      'shape.mismatch',
      `padPackedSequence: expected a totalLength of ${longest} or more, got ${total}. Choose the length that x was padded to.`,
    )
  }
  const cut = total < T ? data.narrow(timeAxis, 0, total) : data
  const after = total - T
  const padded =
    after > 0
      ? cat(
          [cut, zeros(data.shape.map((size, axis) => (axis === timeAxis ? after : size)))],
          timeAxis,
        )
      : cut
  const output = batchFirst === isBatchFirst ? padded : padded.transpose(0, 1)
  return { output, lengths }
}
