import type { HostArray } from '../op.ts'
import { sigmoid } from '../scalar/scalar-function.ts'
import {
  type CellKind,
  cells,
  lengthsOf,
  type RecurrentAttrs,
  rowOf,
  type Sizes,
  timeOf,
} from './cells.ts'

export interface ForwardInputs {
  readonly gates: HostArray
  readonly weight: HostArray
  readonly h0: HostArray
  readonly c0?: HostArray
  readonly bias?: HostArray
  readonly lengths?: HostArray
}

export interface ForwardOutputs {
  readonly y: Float64Array
  readonly hidden: Float64Array
  readonly saved: Float64Array
  readonly hn: Float64Array
  readonly cn: Float64Array
}

/**
 * The definition, in plain loops, after the formulas of torch.nn.RNN, GRU and LSTM.
 *
 * `hidden` is the state before each step.
 */
export function recurrentReference(
  attrs: RecurrentAttrs,
  sizes: Sizes,
  { gates, weight, h0, c0, bias, lengths }: ForwardInputs,
): ForwardOutputs {
  const { T, B, H } = sizes
  const { gates: G, saved: S } = cells[attrs.cell]
  const y = new Float64Array(T * B * H)
  const hidden = new Float64Array(T * B * H)
  const saved = new Float64Array(T * B * S * H)
  const hn = Float64Array.from(h0)
  const cn = Float64Array.from(c0 ?? [])
  lengthsOf(attrs, sizes, lengths).forEach((length, b) => {
    const h = hn.subarray(b * H, (b + 1) * H)
    const c = cn.subarray(b * H, (b + 1) * H)
    for (let s = 0; s < length; s++) {
      const row = rowOf(sizes, attrs.batchFirst, timeOf(attrs.isReverse, s, length), b)
      hidden.set(h, row * H)
      const before = h.slice()
      for (let j = 0; j < H; j++) {
        const own = Array.from({ length: G }, (_, g) => {
          let sum = bias ? bias[g * H + j] : 0
          for (let k = 0; k < H; k++) sum += before[k] * weight[(g * H + j) * H + k]
          return sum
        })
        const x = Array.from({ length: G }, (_, g) => gates[(row * G + g) * H + j])
        const { next, cell, keep } = step(attrs.cell, x, own, before[j], c[j])
        h[j] = next
        if (cell !== undefined) c[j] = cell
        keep.forEach((value, part) => {
          saved[(row * S + part) * H + j] = value
        })
      }
      y.set(h, row * H)
    }
  })
  return { y, hidden, saved, hn, cn }
}

function step(
  kind: CellKind,
  x: readonly number[],
  own: readonly number[],
  before: number,
  c: number,
): { next: number; cell?: number; keep: number[] } {
  switch (kind) {
    case 'tanh':
      return { next: Math.tanh(x[0] + own[0]), keep: [] }
    case 'relu':
      return { next: Math.max(0, x[0] + own[0]), keep: [] }
    case 'gru': {
      const r = sigmoid(x[0] + own[0])
      const z = sigmoid(x[1] + own[1])
      const n = Math.tanh(x[2] + r * own[2])
      return { next: (1 - z) * n + z * before, keep: [r, z, n, own[2]] }
    }
    case 'lstm': {
      const i = sigmoid(x[0] + own[0])
      const f = sigmoid(x[1] + own[1])
      const g = Math.tanh(x[2] + own[2])
      const o = sigmoid(x[3] + own[3])
      const cell = f * c + i * g
      return { next: o * Math.tanh(cell), cell, keep: [i, f, g, o, cell] }
    }
  }
}

export interface BackwardInputs {
  readonly weight: HostArray
  /** y for the plain cells, else what forward saved. */
  readonly saved: HostArray
  readonly hidden?: HostArray
  readonly c0?: HostArray
  readonly lengths?: HostArray
  readonly dy?: HostArray
  readonly dhn?: HostArray
  readonly dcn?: HostArray
}

export interface BackwardOutputs {
  readonly dGates: Float64Array
  /** The gradient by the recurrent sums, where it is another than by the gates' input: GRU. */
  readonly dOwn: Float64Array
  readonly dh0: Float64Array
  readonly dc0: Float64Array
}

/** Backpropagation through time, in plain loops. */
export function recurrentGradReference(
  attrs: RecurrentAttrs,
  sizes: Sizes,
  { weight, saved, hidden, c0, lengths, dy, dhn, dcn }: BackwardInputs,
): BackwardOutputs {
  const { T, B, H } = sizes
  const { gates: G, saved: S } = cells[attrs.cell]
  const dGates = new Float64Array(T * B * G * H)
  const dOwn = new Float64Array(T * B * G * H)
  const dh0 = dhn ? Float64Array.from(dhn) : new Float64Array(B * H)
  const dc0 = dcn ? Float64Array.from(dcn) : new Float64Array(B * H)
  lengthsOf(attrs, sizes, lengths).forEach((length, b) => {
    const dh = dh0.subarray(b * H, (b + 1) * H)
    const dc = dc0.subarray(b * H, (b + 1) * H)
    for (let s = length - 1; s >= 0; s--) {
      const row = rowOf(sizes, attrs.batchFirst, timeOf(attrs.isReverse, s, length), b)
      const previous = rowOf(sizes, attrs.batchFirst, timeOf(attrs.isReverse, s - 1, length), b)
      for (let j = 0; j < H; j++) {
        const kept = (part: number, at = row) => saved[(at * S + part) * H + j]
        const d = dh[j] + (dy ? dy[row * H + j] : 0)
        const byGates: number[] = []
        const byOwn: number[] = []
        dh[j] = 0
        switch (attrs.cell) {
          case 'tanh': {
            const y = saved[row * H + j]
            byGates.push(d * (1 - y * y))
            break
          }
          case 'relu':
            byGates.push(saved[row * H + j] <= 0 ? 0 : d)
            break
          case 'gru': {
            const [r, z, n, own] = [0, 1, 2, 3].map((part) => kept(part))
            const dn = d * (1 - z) * (1 - n * n)
            const dz = d * (hidden![row * H + j] - n) * z * (1 - z)
            const dr = dn * own * r * (1 - r)
            byGates.push(dr, dz, dn)
            byOwn.push(dr, dz, dn * r)
            dh[j] = d * z
            break
          }
          case 'lstm': {
            const [i, f, g, o, c] = [0, 1, 2, 3, 4].map((part) => kept(part))
            const before = s === 0 ? c0![b * H + j] : kept(4, previous)
            const t = Math.tanh(c)
            const dCell = dc[j] + d * o * (1 - t * t)
            byGates.push(
              dCell * g * i * (1 - i),
              dCell * before * f * (1 - f),
              dCell * i * (1 - g * g),
              d * t * o * (1 - o),
            )
            dc[j] = dCell * f
          }
        }
        byGates.forEach((value, part) => {
          dGates[(row * G + part) * H + j] = value
          dOwn[(row * G + part) * H + j] = byOwn[part] ?? value
        })
      }
      for (let j = 0; j < H; j++) {
        for (let g = 0; g < G * H; g++) dh[j] += dOwn[row * G * H + g] * weight[g * H + j]
      }
    }
  })
  return { dGates, dOwn, dh0, dc0 }
}
