import { rotary } from '../../kernels/rotary/rotary.ts'
import { checkFlag, checkNumber, checkOptions, isCount } from '../../util/options.ts'
import { checkCount } from '../../util/shape.ts'
import { emit, mustBeTensor, type Tensor } from '../trace/tensor.ts'

export interface RotaryOptions {
  /** True if neighbouring elements are paired; default: element i is paired with i + width / 2. */
  isInterleaved?: boolean
}

/** Slower angles for sequences longer than those of pretraining: transformers' rope type `llama3`. */
export interface RopeScaling {
  /** What the angles of the longest waves are divided by. */
  factor: number
  /** Waves that fit less often than this into the positions of pretraining are slowed by `factor`. */
  lowFreqFactor: number
  /** Waves that fit more often than this are not slowed; those between are slowed by less than `factor`. */
  highFreqFactor: number
  /** Positions of pretraining. */
  originalMaxPositionEmbeddings: number
}

const scalingNames = {
  factor: true,
  lowFreqFactor: true,
  highFreqFactor: true,
  originalMaxPositionEmbeddings: true,
} as const

/** errors: `config.invalid`. */
export function checkRopeScaling(where: string, scaling: RopeScaling | undefined): void {
  if (scaling === undefined) return
  checkOptions(where, scaling, scalingNames, 'scaling')
  const isAbove0 = (value: number) => value > 0 && Number.isFinite(value)
  for (const name of Object.keys(scalingNames) as (keyof RopeScaling)[])
    checkNumber(where, name, scaling[name], isAbove0, 'a finite number above 0', true)
  const isLarger = (value: number) => value > scaling.lowFreqFactor
  checkNumber(where, 'highFreqFactor', scaling.highFreqFactor, isLarger, 'above lowFreqFactor')
}

/** An angle per position, after scaling. source: transformers' modeling_rope_utils. */
function scaled(angle: number, scaling: RopeScaling): number {
  const { factor, lowFreqFactor: low, highFreqFactor: high } = scaling
  const fitting = (scaling.originalMaxPositionEmbeddings * angle) / (2 * Math.PI)
  const kept = Math.min(1, Math.max(0, (fitting - low) / (high - low)))
  return angle * (kept + (1 - kept) / factor)
}

/** Returns whether neighbours are paired. errors: `config.invalid` for other options. */
function checkRotary(where: string, options: RotaryOptions): boolean {
  const { isInterleaved = false } = options
  checkFlag(where, 'isInterleaved', isInterleaved)
  return isInterleaved
}

/**
 * Returns x with pairs of elements rotated by the angles of their position.
 *
 * `heads`: how many lie side by side in a row, each of which is rotated; default 1.
 * shape: x [..., T, heads * E], table [>= T, E / 2, 2] of (cos, sin) -> as x
 * source: Su et al., RoFormer, arXiv 2104.09864.
 */
export function rotaryEmbedding(
  x: Tensor,
  table: Tensor,
  options: RotaryOptions & { heads?: number } = {},
): Tensor {
  const where = 'rotaryEmbedding'
  mustBeTensor(where, { x, table })
  const { heads = 1 } = checkOptions(where, options, { isInterleaved: true, heads: 'size' })
  const sizes = { positions: x.shape.at(-2) ?? 1, inner: heads, turned: heads }
  return rotated(where, x, table, sizes, checkRotary(where, options))
}

/** Applies `rotaryEmbedding` to the queries and keys of a packed projection. shape: qkv [batch * T, 3 * heads * E] */
export function packedRotaryEmbedding(
  qkv: Tensor,
  table: Tensor,
  sizes: { positions: number; heads: number },
  options: RotaryOptions = {},
): Tensor {
  mustBeTensor('packedRotaryEmbedding', { qkv, table })
  const known = { positions: 'size', heads: 'size' } as const
  const { positions, heads } = checkOptions('packedRotaryEmbedding', sizes, known, 'sizes')
  checkOptions('packedRotaryEmbedding', options, { isInterleaved: true })
  const rows = { positions, inner: 3 * heads, turned: 2 * heads }
  const isInterleaved = checkRotary('packedRotaryEmbedding', options)
  return rotated('packedRotaryEmbedding', qkv, table, rows, isInterleaved)
}

/** `inner`: rows of a position, which are side by side in the last dimension. */
function rotated(
  where: string,
  x: Tensor,
  table: Tensor,
  rows: { positions: number; inner: number; turned: number },
  isInterleaved: boolean,
): Tensor {
  const width = (x.shape.at(-1) ?? 1) / rows.inner
  return emit(rotary, [x, table], { width, ...rows, isInterleaved, isInverse: false }, where)
}

/**
 * Returns (cos, sin) of position * base^(-2 i / width), [positions, width / 2, 2]; computed in float64, rounded once.
 *
 * `scaling`: slows the angles. errors: `config.invalid` for an odd width.
 */
export function rotaryTable(
  width: number,
  positions: number,
  base = 10_000,
  scaling?: RopeScaling,
): Float32Array<ArrayBuffer> {
  const isEven = (size: number) => isCount(size) && size % 2 === 0
  checkNumber('rotaryTable', 'width', width, isEven, 'an even number above 0', true)
  checkNumber('rotaryTable', 'base', base, Number.isFinite, 'a number')
  checkNumber('rotaryTable', 'positions', positions, isCount, 'a whole number above 0', true)
  checkCount('rotaryTable', [positions, width], 'positions times width')
  checkRopeScaling('rotaryTable', scaling)
  const half = width / 2
  const angles = Array.from({ length: half }, (_, i) => {
    const angle = base ** ((-2 * i) / width)
    return scaling ? scaled(angle, scaling) : angle
  })
  const table = new Float32Array(positions * width)
  for (let position = 0; position < positions; position++) {
    for (let i = 0; i < half; i++) {
      const angle = position * angles[i]
      table.set([Math.cos(angle), Math.sin(angle)], (position * half + i) * 2)
    }
  }
  return table
}
