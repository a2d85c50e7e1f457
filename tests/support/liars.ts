import type { GradBucket } from '../../src/ddp/hooks/grad-bucket.ts'

/** Changes a rank's own gradients of a bucket in place. `other`: those of an honest rank, from this step or the one before. */
export type Lie = (
  gradients: Float32Array,
  bucket: GradBucket,
  other: Float32Array | undefined,
) => void

/** Keeps what it was given first, by bucket. */
function stale(): Lie {
  const first = new Map<number, Float32Array>()
  return (gradients, bucket) => {
    const kept = first.get(bucket.index())
    if (kept) gradients.set(kept)
    else first.set(bucket.index(), Float32Array.from(gradients))
  }
}

const times =
  (factor: number): Lie =>
  (gradients) => {
    for (let i = 0; i < gradients.length; i++) gradients[i] *= factor
  }

/** Makes its gradients larger from step to step, up to 9 times, and then reverses them. */
function slowRaise(): Lie {
  const steps = new Map<number, number>()
  return (gradients, bucket, other) => {
    const step = (steps.get(bucket.index()) ?? 0) + 1
    steps.set(bucket.index(), step)
    const factor = Math.min(9, 1.2 ** step)
    times(step > 20 ? -factor : factor)(gradients, bucket, other)
  }
}

/** Sends `value` as its gradients, and `norm` for each that it is to measure. */
const measures =
  (value: number, norm: number): Lie =>
  (gradients, bucket) => {
    gradients.fill(value)
    const gather = bucket.gatherNumbers.bind(bucket)
    bucket.gatherNumbers = (own) => gather(own.fill(norm))
  }

/** One of each kind, new for each run. */
export const liars: Readonly<Record<string, () => Lie>> = {
  zero: () => (gradients) => void gradients.fill(0),
  reversed: () => times(-1),
  'reversed x7': () => times(-7),
  'reversed x9': () => times(-9),
  scale: () => times(1000),
  'slow raise, then reversed': slowRaise,
  stale,
  copy: () => (gradients, _, other) => {
    if (other) gradients.set(other)
  },
  'one large coordinate': () => (gradients) => {
    gradients[0] = 1e4
  },
  'not a number': () => (gradients) => void gradients.fill(Number.NaN),
  'measures no number': () => measures(Number.NaN, Number.NaN),
  'measures far too much': () => measures(1e30, 1e38),
}
