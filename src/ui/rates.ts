import { planShares } from '../data/shares.ts'
import { linkKind } from '../peer/topology.ts'
import type { Run } from './state.ts'

/** How fast a run goes. What is not measured yet is NaN. */
export interface Rates {
  /** Of all ranks: nobody steps alone. */
  readonly stepsPerSec: number
  /** Of this rank, as it counted them. */
  readonly ownSamplesPerSec: number
  /** By rank: this rank's measured, the others' from their share of each batch and the common step rate. */
  readonly samplesPerSec: readonly number[]
  readonly totalSamplesPerSec: number
  /** Payload that this rank sends to the next one. */
  readonly bytesPerSec: number
  /** Without the tests to come. */
  readonly secondsLeft: number
}

export function ratesOf(run: Run): Rates {
  const first = run.recent.at(0)
  const newest = run.recent.at(-1)
  const seconds = first && newest ? (newest.atMs - first.atMs) / 1000 : 0
  const perSec = (key: 'step' | 'samples' | 'bytesSent') =>
    first && newest && seconds > 0 ? (newest[key] - first[key]) / seconds : Number.NaN
  const stepsPerSec = perSec('step')
  const ownSamplesPerSec = perSec('samples')
  const samplesPerSec = sharesOf(run).map((rows, rank) =>
    rank === run.rank ? ownSamplesPerSec : rows * stepsPerSec,
  )
  return {
    stepsPerSec,
    ownSamplesPerSec,
    samplesPerSec,
    totalSamplesPerSec:
      samplesPerSec.length > 0 ? samplesPerSec.reduce((sum, rate) => sum + rate, 0) : Number.NaN,
    bytesPerSec: run.worldSize > 1 ? perSec('bytesSent') : 0,
    secondsLeft: (run.totalSteps - run.step) / stepsPerSec,
  }
}

/** Rows of each rank in a full batch; empty before the settings are known. */
export function sharesOf({ config, worldSize }: Run): readonly number[] {
  return config ? planShares(config.batchSize, worldSize).map(({ rows }) => rows) : []
}

/** What all ranks together take in a step: `64 a step: 22, 21, 21`, or `64 a step: 4 × 16` where shares are equal. */
export function stepWords(run: Run): string {
  const shares = sharesOf(run)
  if (shares.length === 0) return 'before the settings'
  const total = shares.reduce((sum, rows) => sum + rows, 0)
  const isEqual = shares.every((rows) => rows === shares[0])
  const parts = isEqual ? `${shares.length} × ${shares[0]}` : shares.slice(0, 4).join(', ')
  return `${total} a step: ${parts}${!isEqual && shares.length > 4 ? ' …' : ''}`
}

/** One link of the ring, in the direction in which data goes. */
export interface RingEdge {
  readonly from: number
  readonly to: number
  readonly kind: 'webrtc' | 'port' | 'relay'
}

/** The ring that members form in their order, by the same rule as the server's. Empty for one. */
export function ringOf(members: readonly Parameters<typeof linkKind>[0][]): RingEdge[] {
  if (members.length < 2) return []
  return members.map((member, from) => {
    const to = (from + 1) % members.length
    return { from, to, kind: linkKind(member, members[to]) ?? 'webrtc' }
  })
}
