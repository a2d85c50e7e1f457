import type { BucketNorms } from '../../src/ddp/hooks/left-out.ts'
import { seededRandom } from '../../src/util/virtual-env.ts'

const features = 16
const classes = 4
const rows = 4
const learningRate = 0.1

/**
 * Norms of the gradients of honest ranks that train a softmax regression together, step by step. The last rank updates the bias, the others
 * equal parts of the weights.
 *
 * Nine tenths of a rank's samples are of one class, which differs between neighbours, and one label in twenty is wrong: once the others have
 * learned theirs, such a sample gives a rank a gradient many times as large.
 */
export function* honestNorms(ranks: number, seed: number): Generator<BucketNorms> {
  const random = seededRandom(seed)
  const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random())
  const corners = Array.from({ length: classes * features }, () => 2 * normal())
  const weights = new Float64Array(classes * features)
  const bias = new Float64Array(classes)
  /** Where a rank's range begins. */
  const starts = Array.from({ length: ranks }, (_, owner) =>
    Math.round((owner * weights.length) / (ranks - 1)),
  )
  for (;;) {
    const gradients = Array.from({ length: ranks }, (_, rank) => {
      const gradient = new Float64Array(weights.length + classes)
      for (let row = 0; row < rows; row++) {
        const isOwn = random() < 0.9
        const actual = isOwn ? rank % classes : Math.floor(random() * classes)
        const label = random() < 0.05 ? Math.floor(random() * classes) : actual
        const x = Array.from(
          { length: features },
          (_, i) => corners[actual * features + i]! + normal(),
        )
        const logits = Array.from({ length: classes }, (_, c) =>
          x.reduce((z, value, i) => z + weights[c * features + i]! * value, bias[c]!),
        )
        const top = Math.max(...logits)
        const powers = logits.map((z) => Math.exp(z - top))
        const total = powers.reduce((a, b) => a + b)
        for (let c = 0; c < classes; c++) {
          const error = (powers[c]! / total - (c === label ? 1 : 0)) / rows
          for (let i = 0; i < features; i++) gradient[c * features + i]! += error * x[i]!
          gradient[weights.length + c]! += error
        }
      }
      return gradient
    })
    for (const gradient of gradients) {
      const step = (from: number) => (learningRate * gradient[from]!) / ranks
      for (let i = 0; i < weights.length; i++) weights[i]! -= step(i)
      for (let c = 0; c < classes; c++) bias[c]! -= step(weights.length + c)
    }
    yield {
      claimed: gradients.map((gradient) => Math.hypot(...gradient)),
      measured: starts.map((start, owner) =>
        gradients.map((gradient) => Math.hypot(...gradient.subarray(start, starts[owner + 1]))),
      ),
    }
  }
}
