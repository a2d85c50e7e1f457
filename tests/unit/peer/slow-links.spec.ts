import { describe, expect, test } from 'vitest'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'

// A training step's buckets between two ranks whose link is about as slow as the computing. See "Slow links" in docs/how-it-works/collectives.md.

/** As in the benchmark's MLP of equal layers. */
const bucketBytes = 66_048
const computeMs = 800
/** Forward, and backward until the first bucket is complete; the others follow in equal steps. */
const firstMs = 400
/** From a sum to the parameters of this rank's slice. */
const updateMs = 10

interface Step {
  layers: number
  /** What a step's exchange takes, by its bytes alone, of the computing. */
  share: number
  /** How much later the second rank's buckets are complete. */
  lateMs: number
}

/** The milliseconds of a step, and the least that the link's rate lets them be. */
async function run({ layers, share, lateMs }: Step) {
  const env = new VirtualEnv(1)
  const exchangeMs = computeMs * share
  // Of each bucket a half goes each way for the sum, and a half for the parameters.
  const bytesPerMs = (layers * bucketBytes) / exchangeMs
  const groups = memoryMesh(env, 2, () => ({ bytesPerMs, delayMs: () => 1 }))
  await env.until(Promise.all(groups.map((group) => group.ready())))
  const wait = (ms: number) => new Promise<void>((resolve) => env.after(ms, () => resolve()))
  const beganMs = env.now()
  const backwardMs = computeMs - firstMs
  await env.until(
    Promise.all(
      groups.flatMap((group, rank) =>
        Array.from({ length: layers }, async (_, bucket) => {
          await wait(firstMs + (backwardMs * bucket) / (layers - 1) + rank * lateMs)
          const data = new Float32Array(bucketBytes / 4)
          await group.reduceScatter(data, { sequence: 0, bucket })
          await wait(updateMs)
          await group.allGather(data, { sequence: 0, bucket })
        }),
      ),
    ),
  )
  const oneMs = exchangeMs / layers
  return {
    stepMs: env.now() - beganMs,
    // The link is never idle from the first bucket on, or nothing is left but the last bucket's way when backward has run.
    minMs: Math.max(firstMs + exchangeMs, computeMs + oneMs + updateMs) + lateMs,
  }
}

const steps: Step[] = [8, 16, 48].flatMap((layers) =>
  [0.5, 1, 1.5].flatMap((share) => [0, 150].map((lateMs) => ({ layers, share, lateMs }))),
)

describe('buckets that are exchanged while backward runs', () => {
  test.each(steps)(
    '$layers layers, exchange $share of computing, a rank $lateMs ms late: as soon as the link can',
    async (step) => {
      const { stepMs, minMs } = await run(step)
      expect(stepMs).toBeGreaterThanOrEqual(minMs)
      expect(stepMs).toBeLessThan(1.03 * minMs)
    },
  )
})
