import type { Shape } from '../../util/shape.ts'
import { dropThreshold, keeps, type MaskKey } from '../random/masks.ts'
import { broadcastOffset } from '../steps.ts'
import {
  type AttentionAttrs,
  type AttentionSizes,
  outputPlace,
  projectionPlace,
  type RowPlace,
} from './geometry.ts'

// The definition of attention and its gradient, as plain loops in f64.

type Numbers = ArrayLike<number>

/** What both directions need: rows of the projections and the weight of each pair. */
interface Problem {
  readonly attrs: AttentionAttrs
  readonly sizes: AttentionSizes
  /** Queries, keys, values; the same array thrice where packed. */
  readonly projections: readonly [Numbers, Numbers, Numbers]
  readonly mask: { readonly values: Numbers; readonly shape: Shape } | undefined
  readonly maskKey: MaskKey | undefined
}

const rowStart = (place: RowPlace, b: number, h: number, t: number, d: number) =>
  (b * place.batch + Math.floor(h / place.group) * place.head + t * place.position + place.first) *
  d

/** Scores below this count as masked. */
export const lowestScore = -1e30

/** The score of a pair; undefined where the key is not seen. */
function scoreOf(problem: Problem, b: number, h: number, i: number, j: number): number | undefined {
  const { attrs, sizes, projections, mask } = problem
  const { batch, heads, tq, tk, d } = sizes
  if (attrs.isCausal && j > i) return undefined
  let added = 0
  if (mask) {
    const flat = ((b * heads + h) * tq + i) * tk + j
    const value = mask.values[broadcastOffset([batch, heads, tq, tk], mask.shape, flat)]
    if (attrs.mask === 'boolean' && value === 0) return undefined
    if (attrs.mask === 'hidden' && value !== 0) return undefined
    if (attrs.mask === 'additive') {
      if (!(value > lowestScore)) return undefined
      added = value
    }
  }
  const q = rowStart(projectionPlace(attrs, sizes, 0), b, h, i, d)
  const k = rowStart(projectionPlace(attrs, sizes, 1), b, h, j, d)
  let sum = 0
  for (let c = 0; c < d; c++) sum += projections[0][q + c] * projections[1][k + c]
  return sum * attrs.scale + added
}

/** What dropout multiplies a probability by. */
function dropFactor(problem: Problem, b: number, h: number, i: number, j: number): number {
  const { attrs, sizes, maskKey } = problem
  if (!attrs.dropout || !maskKey) return 1
  const { p, layer } = attrs.dropout
  const at = ((h * sizes.tq + i) * Math.ceil(sizes.tk / 4) + Math.floor(j / 4)) * 4 + (j % 4)
  return keeps(maskKey, layer, b, at, dropThreshold(p)) ? 1 / (1 - p) : 0
}

function eachRow(
  { batch, heads, tq }: AttentionSizes,
  body: (b: number, h: number, i: number) => void,
) {
  for (let b = 0; b < batch; b++)
    for (let h = 0; h < heads; h++) for (let i = 0; i < tq; i++) body(b, h, i)
}

/** The output and the logarithm of each row's sum of exponentials (0 for a row that sees nothing, whose output is 0). */
export function attentionReference(problem: Problem): [o: Float64Array, lse: Float64Array] {
  const { attrs, sizes, projections } = problem
  const { batch, heads, tq, tk, d } = sizes
  const o = new Float64Array(batch * heads * tq * d)
  const lse = new Float64Array(batch * heads * tq)
  const outputs = outputPlace(attrs, sizes)
  const values = projectionPlace(attrs, sizes, 2)
  eachRow(sizes, (b, h, i) => {
    const scores = Array.from({ length: tk }, (_, j) => scoreOf(problem, b, h, i, j))
    const seen = scores.filter((score) => score !== undefined)
    if (seen.length === 0) return
    const top = seen.reduce((a, score) => Math.max(a, score), Number.NEGATIVE_INFINITY)
    const sum = seen.reduce((total, score) => total + Math.exp(score - top), 0)
    const row = top + Math.log(sum)
    lse[(b * heads + h) * tq + i] = row
    const at = rowStart(outputs, b, h, i, d)
    scores.forEach((score, j) => {
      if (score === undefined) return
      const weight = Math.exp(score - row) * dropFactor(problem, b, h, i, j)
      const v = rowStart(values, b, h, j, d)
      for (let c = 0; c < d; c++) o[at + c] += weight * projections[2][v + c]
    })
  })
  return [o, lse]
}

/** Adds the gradients by queries, keys and values to `targets` (the same array thrice where packed). */
export function attentionGradReference(
  problem: Problem,
  dy: Numbers,
  o: Numbers,
  lse: Numbers,
  targets: readonly [Float64Array, Float64Array, Float64Array],
): void {
  const { attrs, sizes, projections } = problem
  const { heads, tq, tk, d } = sizes
  const places = [0, 1, 2].map((n) => projectionPlace(attrs, sizes, n))
  const outputs = outputPlace(attrs, sizes)
  eachRow(sizes, (b, h, i) => {
    const at = rowStart(outputs, b, h, i, d)
    let delta = 0
    for (let c = 0; c < d; c++) delta += dy[at + c] * o[at + c]
    const q = rowStart(places[0], b, h, i, d)
    for (let j = 0; j < tk; j++) {
      const score = scoreOf(problem, b, h, i, j)
      if (score === undefined) continue
      const p = Math.exp(score - lse[(b * heads + h) * tq + i])
      const factor = dropFactor(problem, b, h, i, j)
      const k = rowStart(places[1], b, h, j, d)
      const v = rowStart(places[2], b, h, j, d)
      let dp = 0
      for (let c = 0; c < d; c++) dp += dy[at + c] * projections[2][v + c]
      const ds = p * (dp * factor - delta) * attrs.scale
      for (let c = 0; c < d; c++) {
        targets[0][q + c] += ds * projections[1][k + c]
        targets[1][k + c] += ds * projections[0][q + c]
        targets[2][v + c] += p * factor * dy[at + c]
      }
    }
  })
}
