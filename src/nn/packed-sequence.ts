import { where } from '../graph/functions/elementwise.ts'
import { arange, cat, full as fill } from '../graph/functions/shape.ts'
import { emit, mustBeTensor, Tensor } from '../graph/trace/tensor.ts'
import { longestTable, table } from '../kernels/table/table.ts'
import { ShapeError } from '../util/errors.ts'
import { quoted } from '../util/kind-of.ts'
import { checkList, checkOptions, checkRecord } from '../util/options.ts'
import { byName } from '../util/plain-callers.ts'
import { formatShape } from '../util/shape.ts'

/** Number of steps of each sequence: numbers fixed when the program is compiled, or an i32 tensor [B] that each run passes. */
export type Lengths = readonly number[] | Tensor

/**
 * A batch of sequences of different lengths.
 *
 * PyTorch packs the existing steps one after another. Here they stay in place, padded to one length, and layers skip the padding: a
 * compiled program has fixed shapes, and so works for batches of any lengths. Results are the same numbers.
 */
export interface PackedSequence {
  /** shape: [T, B, F], or [B, T, F] with `batchFirst`; values beyond a sequence's length are ignored, but must be finite. */
  readonly data: Tensor
  readonly lengths: Lengths
  readonly batchFirst: boolean
}

/**
 * Attaches the lengths of the padded sequences of `x`, for a recurrent layer.
 *
 * shape: [T, B, F], or [B, T, F] with `batchFirst`. Sequences may be in any order.
 * errors: `shape.mismatch` unless there is one length from 1 to T for each sequence.
 */
export function packPaddedSequence(
  x: Tensor,
  lengths: Lengths,
  options: { batchFirst?: boolean } = {},
): PackedSequence {
  const known = { batchFirst: 'flag' } as const
  const { batchFirst = false } = checkOptions('packPaddedSequence', options, known)
  mustBeTensor('packPaddedSequence', { x })
  checkLengths('packPaddedSequence', lengths)
  const [T, B] = batchFirst ? [x.shape[1], x.shape[0]] : x.shape
  const fits = Array.isArray(lengths)
    ? lengths.length === B &&
      lengths.every((length) => Number.isInteger(length) && length >= 1 && length <= T)
    : (lengths as Tensor).dtype === 'i32' &&
      (lengths as Tensor).shape.length === 1 &&
      (lengths as Tensor).shape[0] === B
  if (x.shape.length !== 3 || !fits) {
    const got = Array.isArray(lengths)
      ? formatShape(lengths)
      : `${(lengths as Tensor).dtype}${formatShape((lengths as Tensor).shape)}`
    throw new ShapeError(
      'shape.mismatch',
      `packPaddedSequence: expected ${B} lengths from 1 to ${T} (or an i32 tensor [${B}]), got ${got} for x${formatShape(x.shape)}. Pass one length per sequence.`,
    )
  }
  return { data: x, lengths, batchFirst }
}

/** errors: a TypeError for what is neither numbers nor a tensor. */
function checkLengths(where: string, lengths: Lengths): void {
  if (lengths instanceof Tensor) return
  checkList(
    where,
    'lengths',
    lengths as readonly number[],
    (one) => typeof one === 'number',
    'numbers',
  )
}

/** What a layer gave: its padding is 0 already. */
const cleared = new WeakSet<Tensor>()

/** Notes that the padding of `data` is 0, so that `padPackedSequence` need not make it so; returns it. */
export function markCleared(data: Tensor): Tensor {
  cleared.add(data)
  return data
}

/** Notes that what is known of the padding of `from` holds for `to`, of the same contents. */
export function keepCleared(from: Tensor, to: Tensor): void {
  if (cleared.has(from)) cleared.add(to)
}

export interface PadOptions {
  /** True if the output is [B, T, F]; default false. */
  readonly batchFirst?: boolean
  /** Value of the padding; default 0. */
  readonly paddingValue?: number
  /** Number of steps of the output; default: the longest length if lengths are numbers, otherwise the input's. */
  readonly totalLength?: number
}

/**
 * Returns the padded sequences and their lengths; positions beyond a sequence's length contain `paddingValue`.
 *
 * shape: [T, B, F], or [B, T, F] with `batchFirst`.
 * errors: `shape.mismatch` for a totalLength below the longest sequence.
 */
export function padPackedSequence(
  sequence: PackedSequence,
  options: PadOptions = {},
): { output: Tensor; lengths: Lengths } {
  checkRecord('padPackedSequence', 'sequence', sequence)
  const { data, lengths, batchFirst: isBatchFirst } = sequence
  mustBeTensor('padPackedSequence', { 'sequence.data': data })
  checkLengths('padPackedSequence', lengths)
  const known = { batchFirst: 'flag', paddingValue: true, totalLength: true } as const
  const checked = checkOptions('padPackedSequence', options, known)
  const { batchFirst = false, paddingValue = 0, totalLength } = checked
  const timeAxis = isBatchFirst ? 1 : 0
  const T = data.shape[timeAxis]
  const longest = Array.isArray(lengths) ? Math.max(0, ...lengths) : T
  const total = totalLength ?? longest
  if (!Number.isInteger(total) || total < longest) {
    throw new ShapeError(
      'shape.mismatch',
      `padPackedSequence: totalLength must be at least ${longest}, got ${quoted(total)}. Use the length that x was padded to.`,
    )
  }
  const isCleared = cleared.has(data) && paddingValue === 0
  const full = isCleared ? data : where(exists(data, lengths, timeAxis), data, paddingValue)
  const cut = total < T ? full.narrow(timeAxis, 0, total) : full
  const after = total - T
  const padded =
    after > 0
      ? cat(
          [
            cut,
            fill(
              data.shape.map((size, axis) => (axis === timeAxis ? after : size)),
              paddingValue,
            ),
          ],
          timeAxis,
        )
      : cut
  const output = batchFirst === isBatchFirst ? padded : padded.transpose(0, 1)
  return byName('padPackedSequence', { output, lengths })
}

/** 1 for steps before their sequence's length, else 0. shape: [T, B, 1] or [B, T, 1] */
function exists({ shape }: Tensor, lengths: Lengths, timeAxis: 0 | 1): Tensor {
  const steps = arange(0, shape[timeAxis], 1, { dtype: 'i32' })
  const ends = Array.isArray(lengths) ? integers(lengths) : (lengths as Tensor)
  return timeAxis === 0
    ? steps.reshape([-1, 1, 1]).lt(ends.reshape([1, -1, 1]))
    : steps.reshape([1, -1, 1]).lt(ends.reshape([-1, 1, 1]))
}

/** The numbers as a tensor of the program. shape: i32 [N] */
function integers(values: readonly number[]): Tensor {
  const count = Math.ceil(values.length / longestTable)
  const parts = Array.from({ length: count }, (_, i) =>
    emit(table, [], { values: values.slice(i * longestTable, (i + 1) * longestTable) }),
  )
  return parts.length === 1 ? parts[0] : cat(parts, 0)
}
