import { ShapeError } from '../../util/errors.ts'
import { formatShape, type TensorType } from '../../util/shape.ts'

/** The cells of torch.nn.RNN (`tanh`, `relu`), GRU and LSTM. */
export type CellKind = 'tanh' | 'relu' | 'gru' | 'lstm'

interface Cell {
  /** Rows of the weights in units of the hidden size, in PyTorch's order: LSTM i f g o, GRU r z n. */
  readonly gates: number
  /** What forward keeps for backward, in the same units: LSTM i f g o c, GRU r z n and the recurrent part of n. */
  readonly saved: number
}

export const cells: Readonly<Record<CellKind, Cell>> = {
  tanh: { gates: 1, saved: 0 },
  relu: { gates: 1, saved: 0 },
  gru: { gates: 3, saved: 4 },
  lstm: { gates: 4, saved: 5 },
}

/** What forward and backward have in common. */
export interface RecurrentAttrs {
  readonly cell: CellKind
  /** From each sequence's last step to its first. */
  readonly isReverse: boolean
  /** Sequences are the first dimension, steps the second; else steps first. */
  readonly batchFirst: boolean
  /**
   * Steps of each sequence: all, numbers fixed at tracing, or the call's last input (i32 [B]). Beyond its length a sequence has
   * neither output nor influence, and its final state is the one at its length.
   */
  readonly lengths: 'all' | 'input' | readonly number[]
}

export interface Sizes {
  readonly T: number
  readonly B: number
  readonly H: number
}

/** Sizes from the gates' input and the recurrent weight. errors: `shape.mismatch`. */
export function sizesOf(
  op: string,
  { cell, batchFirst, lengths }: RecurrentAttrs,
  gates: TensorType,
  weight: TensorType,
): Sizes {
  const H = weight.shape[1]
  const rows = cells[cell].gates * H
  const fits =
    gates.shape.length === 3 &&
    weight.shape.length === 2 &&
    weight.shape[0] === rows &&
    gates.shape[2] === rows &&
    gates.dtype === 'f32' &&
    weight.dtype === 'f32'
  if (!fits) {
    throw new ShapeError(
      'shape.mismatch',
      `${op} (${cell}): expected f32 gates [T, B, ${cells[cell].gates}H] and weight [${cells[cell].gates}H, H], got ${gates.dtype}${formatShape(gates.shape)} and ${weight.dtype}${formatShape(weight.shape)}. Check inputSize and hiddenSize.`,
    )
  }
  const [T, B] = batchFirst ? [gates.shape[1], gates.shape[0]] : gates.shape
  if (typeof lengths !== 'string') {
    const wrong = lengths.find((length) => !Number.isInteger(length) || length < 0 || length > T)
    if (lengths.length !== B || wrong !== undefined) {
      throw new ShapeError(
        'shape.mismatch',
        `${op}: expected ${B} lengths from 0 to ${T}, got ${formatShape(lengths)}. Pass one length per sequence.`,
      )
    }
  }
  return { T, B, H }
}

/** Where row (step t, sequence b) begins, in rows of [T, B] or [B, T]. */
export const rowOf = ({ T, B }: Sizes, batchFirst: boolean, t: number, b: number): number =>
  batchFirst ? b * T + t : t * B + b

/** The step in time of the s-th step of work: reversed within a sequence's length, as it is beyond. */
export const timeOf = (isReverse: boolean, s: number, length: number): number =>
  isReverse && s < length ? length - 1 - s : s

/** Each sequence's steps, kept between 0 and T. */
export function lengthsOf(
  { lengths }: RecurrentAttrs,
  { T, B }: Sizes,
  input: ArrayLike<number> | undefined,
): number[] {
  return Array.from({ length: B }, (_, b) => {
    if (lengths === 'all') return T
    return Math.min(T, Math.max(0, lengths === 'input' ? input![b] : lengths[b]))
  })
}
