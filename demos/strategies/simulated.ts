import { allReduce } from '../ring/demo.ts'
import { defaultSettings } from '../ring/settings.ts'
import type { StepCost } from './strategy-log.ts'

/** Stated, of the links between simulated devices: a network in one room. */
export const links = { latencyMs: 1, rateMb: 100 } as const

/**
 * A step on simulated devices that share nothing.
 *
 * Each computes for as long as one real device took, alone, for a share of the batch (`share`). Then the real all-reduce runs over simulated
 * links, those of demos/ring, with gradients of `gradientBytes`; no computing hides it.
 */
export async function simulatedStep(
  ranks: number,
  share: StepCost,
  gradientBytes: number,
): Promise<StepCost> {
  const length = Math.max(1, Math.round(gradientBytes / 4))
  const inputs = Array.from({ length: ranks }, () => new Float32Array(length))
  let sentBytes = 0
  const { resolvedMs } = await allReduce(
    { ...defaultSettings, ...links, ranks, length, algorithm: 'auto' },
    inputs,
    {
      onlaunch: () => undefined,
      onarrived: () => undefined,
      onsent: ({ bytes }) => {
        sentBytes += bytes.length
      },
    },
  )
  const exchangedMs = Math.max(...resolvedMs)
  const totalMs = share.totalMs + exchangedMs
  return { totalMs, computedMs: share.computedMs, exchangedMs, bytes: sentBytes / ranks }
}
