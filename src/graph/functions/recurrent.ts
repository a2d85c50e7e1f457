import { type CellKind, cells } from '../../kernels/recurrent/cells.ts'
import { outputsOf, recurrent as recurrentOp } from '../../kernels/recurrent/recurrent.ts'
import { emitAll, type Tensor } from '../trace/tensor.ts'
import { linear } from './linear.ts'

/** The parameters of one direction of one layer, as torch.nn names them. */
export interface RecurrentWeights {
  /** shape: [GH, F]; G is 1 for RNN, 3 for GRU (r z n), 4 for LSTM (i f g o). */
  readonly ih: Tensor
  /** shape: [GH, H] */
  readonly hh: Tensor
  /** shape: [GH] */
  readonly biasIh?: Tensor
  /** shape: [GH] */
  readonly biasHh?: Tensor
}

export interface RecurrentOptions {
  readonly cell: CellKind
  readonly isReverse?: boolean
  /** x and y are [B, T, ..] instead of [T, B, ..]. */
  readonly batchFirst?: boolean
  /** Steps of each sequence: numbers, or an i32 tensor [B]. default: all */
  readonly lengths?: readonly number[] | Tensor
}

/**
 * One direction of one recurrent layer: one matmul for the input side of all gates and steps, one dispatch for the recurrence.
 *
 * shape: x[T, B, F], h0 (and c0, LSTM alone) [B, H] -> y[T, B, H], hn (and cn) [B, H]; beyond a sequence's length y is 0.
 */
export function recurrentLayer(
  x: Tensor,
  { h0, c0 }: { h0: Tensor; c0?: Tensor },
  { ih, hh, biasIh, biasHh }: RecurrentWeights,
  { cell, isReverse = false, batchFirst = false, lengths }: RecurrentOptions,
): { y: Tensor; hn: Tensor; cn: Tensor | undefined } {
  const [first, second, features] = x.shape
  // A GRU's reset gate acts on the recurrent sum with its bias; with other cells all biases are one sum.
  const isBiasInside = cell === 'gru' && biasHh !== undefined
  const product = linear(x.reshape([first * second, features]), ih, biasIh)
  const biased = isBiasInside || !biasHh ? product : product.add(biasHh)
  const gates = biased.reshape([first, second, cells[cell].gates * hh.shape[1]])
  const isGiven = lengths !== undefined && !Array.isArray(lengths)
  const outputs = emitAll(
    recurrentOp,
    [
      gates,
      hh,
      h0,
      ...(cell === 'lstm' ? [c0!] : []),
      ...(isBiasInside ? [biasHh] : []),
      ...(isGiven ? [lengths as Tensor] : []),
    ],
    {
      cell,
      isReverse,
      batchFirst,
      hasBias: isBiasInside,
      lengths: isGiven ? 'input' : ((lengths as readonly number[] | undefined) ?? 'all'),
    },
  )
  const at = outputsOf(cell)
  return {
    y: outputs[at.y],
    hn: outputs[at.hn],
    cn: at.cn === undefined ? undefined : outputs[at.cn],
  }
}
