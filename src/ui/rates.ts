import { planShares } from '../data/shares.ts'
import { edgesBySize } from '../peer/edges.ts'
import type { AssignedLink, MemberInfo } from '../peer/messages.ts'
import { canFallBack, linkKind } from '../peer/topology.ts'
import { checkDraft } from './settings.ts'
import { isMaker, type Run, type Snapshot } from './state.ts'

/** How fast a run goes. What is not measured yet is NaN. */
export interface Rates {
  /** Of all ranks: nobody steps alone. */
  readonly stepsPerSec: number
  /** Of this rank, as it counted them. */
  readonly ownSamplesPerSec: number
  /** By rank: this rank's measured, the others' from their share of each batch and the common step rate. */
  readonly samplesPerSec: readonly number[]
  readonly totalSamplesPerSec: number
  /** Payload that this rank sends, to all others together. */
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
export function sharesOf({
  config,
  worldSize,
}: Pick<Run, 'config' | 'worldSize'>): readonly number[] {
  return config ? planShares(config.batchSize, worldSize).map(({ rows }) => rows) : []
}

/** How many samples a full step takes, against one rank's part of it. */
export interface StepSamples {
  /** NaN before the settings are known. */
  readonly total: number
  /** `3 ranks × 64`, or `3 ranks: 22 + 2 × 21` where shares differ. */
  readonly words: string
}

/** Of the run; before there is one, of the run that its maker could start now, with the tabs that are in the room. */
export function stepSamples(snapshot: Snapshot): StepSamples {
  const { run, draft, lobby } = snapshot
  if (run) return inWords(sharesOf(run))
  const tabs = lobby?.members.length ?? 0
  const batchSize = isMaker(snapshot) ? checkDraft(draft, tabs).config?.batchSize : undefined
  return inWords(batchSize ? planShares(batchSize, tabs).map(({ rows }) => rows) : [])
}

function inWords(shares: readonly number[]): StepSamples {
  if (shares.length === 0) return { total: Number.NaN, words: 'all ranks' }
  const total = shares.reduce((sum, rows) => sum + rows, 0)
  // Shares differ by one at most.
  const ranksOf = [...new Set(shares)].map((rows) => ({
    rows,
    ranks: shares.filter((other) => other === rows).length,
  }))
  const parts = ranksOf.map(({ rows, ranks }) =>
    ranks > 1 ? `${ranks}\u00a0×\u00a0${rows}` : rows,
  )
  const words =
    shares.length === 1
      ? 'one rank'
      : parts.length === 1
        ? `${shares.length} ranks × ${shares[0]}`
        : `${shares.length} ranks: ${parts.join(' + ')}`
  return { total, words }
}

/** One link; in the ring, in the direction in which its data goes. */
export interface RingEdge {
  readonly from: number
  readonly to: number
  /** `either`: by WebRTC or through the server, which the two tabs alone know. */
  readonly kind: AssignedLink['kind'] | 'either'
}

/**
 * The ring that members form in their order, by the same rule as the server's. Empty for one.
 *
 * `hasRelay`: whether the server relays links. `own`: this tab's place in it, and how its links go, by rank, as far as they are up.
 */
export function ringOf(
  members: readonly MemberInfo[],
  hasRelay: boolean,
  own?: Pick<Run, 'rank' | 'ways'>,
): RingEdge[] {
  if (members.length < 2) return []
  return members.map((_, from) => {
    const to = (from + 1) % members.length
    return { from, to, kind: kindOf(members, hasRelay, own, from, to) }
  })
}

/** The links that members have besides those of the ring: in a small group each to all others. */
export function chordsOf(
  members: readonly MemberInfo[],
  hasRelay: boolean,
  own?: Pick<Run, 'rank' | 'ways'>,
): RingEdge[] {
  const size = members.length
  return edgesBySize(size)
    .filter(([from, to]) => to - from > 1 && to - from < size - 1)
    .map(([from, to]) => ({ from, to, kind: kindOf(members, hasRelay, own, from, to) }))
}

function kindOf(
  members: readonly MemberInfo[],
  hasRelay: boolean,
  own: Pick<Run, 'rank' | 'ways'> | undefined,
  from: number,
  to: number,
): RingEdge['kind'] {
  const way = own?.rank === from ? own.ways[to] : own?.rank === to ? own.ways[from] : undefined
  const mayFallBack = hasRelay && canFallBack(members[from], members[to])
  const planned = mayFallBack ? 'either' : linkKind(members[from], members[to])
  return way ?? planned ?? 'webrtc'
}
