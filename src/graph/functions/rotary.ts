import { rotary } from '../../kernels/rotary/rotary.ts'
import { checkFlag, checkNumber, checkOptions, isCount } from '../../util/options.ts'
import { checkCount } from '../../util/shape.ts'
import { emit, mustBeTensor, type Tensor } from '../trace/tensor.ts'

export interface RotaryOptions {
  /** True if neighbouring elements are paired; default: element i is paired with i + width / 2. */
  isInterleaved?: boolean
}

/** Returns whether neighbours are paired. errors: `config.invalid` for other options. */
function checkRotary(where: string, options: RotaryOptions): boolean {
  const { isInterleaved = false } = checkOptions(where, options, { isInterleaved: true })
  checkFlag(where, 'isInterleaved', isInterleaved)
  return isInterleaved
}

/**
 * Returns x with pairs of elements rotated by the angles of their position.
 *
 * shape: x [..., T, E], table [>= T, E / 2, 2] of (cos, sin) -> as x
 * source: Su et al., RoFormer, arXiv 2104.09864.
 */
export function rotaryEmbedding(x: Tensor, table: Tensor, options: RotaryOptions = {}): Tensor {
  mustBeTensor('rotaryEmbedding', { x, table })
  const isInterleaved = checkRotary('rotaryEmbedding', options)
  const rank = x.shape.length
  return emit(
    rotary,
    [x, table],
    {
      width: x.shape[rank - 1],
      inner: 1,
      turned: 1,
      positions: x.shape[rank - 2] ?? 1,
      isInterleaved,
      isInverse: false,
    },
    'rotaryEmbedding',
  )
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
  const isInterleaved = checkRotary('packedRotaryEmbedding', options)
  return emit(
    rotary,
    [qkv, table],
    {
      width: qkv.shape[qkv.shape.length - 1] / (3 * heads),
      inner: 3 * heads,
      turned: 2 * heads,
      positions,
      isInterleaved,
      isInverse: false,
    },
    'packedRotaryEmbedding',
  )
}

/**
 * Returns (cos, sin) of position * base^(-2 i / width), [positions, width / 2, 2]; computed in float64, rounded once. errors:
 * `config.invalid` for an odd width.
 */
export function rotaryTable(
  width: number,
  positions: number,
  base = 10_000,
): Float32Array<ArrayBuffer> {
  const isEven = (size: number) => isCount(size) && size % 2 === 0
  checkNumber('rotaryTable', 'width', width, isEven, 'an even number above 0', true)
  checkNumber('rotaryTable', 'base', base, Number.isFinite, 'a number')
  checkNumber('rotaryTable', 'positions', positions, isCount, 'a whole number above 0', true)
  checkCount('rotaryTable', [positions, width], 'positions times width')
  const half = width / 2
  const table = new Float32Array(positions * width)
  for (let position = 0; position < positions; position++) {
    for (let i = 0; i < half; i++) {
      const angle = position * base ** ((-2 * i) / width)
      table.set([Math.cos(angle), Math.sin(angle)], (position * half + i) * 2)
    }
  }
  return table
}
