import type { RandomStream } from '../util/random.ts'
import type { TokenChoice } from './generate-options.ts'

/** Tokens with their logits, the best first; of equal ones the lower token. */
function best(logits: Float32Array, count: number): [token: number, logit: number][] {
  const order = (a: number, b: number) => logits[b] - logits[a] || a - b
  return [...logits.keys()]
    .sort(order)
    .slice(0, count)
    .map((token) => [token, logits[token]])
}

/** The token that follows. `seen`: those so far; `stream`: what it is drawn from. Changes `logits`. */
export function chooseToken(
  logits: Float32Array,
  seen: ReadonlySet<number>,
  { temperature, topK, topP, repetitionPenalty }: TokenChoice,
  stream: RandomStream,
): number {
  for (const token of seen)
    logits[token] *= logits[token] < 0 ? repetitionPenalty : 1 / repetitionPenalty
  if (temperature === 0)
    return logits.reduce((top, logit, token) => (logit > logits[top] ? token : top), 0)
  const candidates = best(logits, topK)
  const [[, top]] = candidates
  const weights = candidates.map(([, logit]) => Math.exp((logit - top) / temperature))
  const all = weights.reduce((sum, weight) => sum + weight)
  let kept = 0
  let sum = 0
  while (kept < weights.length && (kept === 0 || sum < topP * all)) sum += weights[kept++]
  let left = stream.unit() * sum
  for (let i = 0; i < kept; i++) {
    left -= weights[i]
    if (left < 0) return candidates[i][0]
  }
  return candidates[kept - 1][0]
}
