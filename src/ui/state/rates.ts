import * as v from 'valibot'
import { batchShares, virtualShares } from '../../data/shares.ts'
import { edgesBySize } from '../../peer/room/edges.ts'
import type { AssignedLink, MemberInfo } from '../../peer/room/messages.ts'
import { canFallBack, linkKind } from '../../peer/room/topology.ts'
import { type TrainConfig, trainConfigSchema } from '../../trainer/settings/config.ts'
import { pipelinesOf } from '../../trainer/settings/parallel.ts'
import { checkDraft } from '../settings/check.ts'
import { isMaker } from './room-facts.ts'
import type { Run } from './run.ts'
import { advances } from './run-facts.ts'
import { meanSamplesPerSec, secondsOf } from './run-time.ts'
import type { Snapshot } from './snapshot.ts'

/** How fast a run goes, the time of its tests included. What is not measured yet is NaN. */
export interface Rates {
  /** Of all ranks: nobody steps alone. */
  readonly stepsPerSec: number
  /** Of this rank. */
  readonly ownSamplesPerSec: number
  readonly totalSamplesPerSec: number
  /** With the tests to come, as long as the last ones took; before the first one there is nothing to go by. */
  readonly secondsLeft: number
}

/**
 * Of the last seconds during a run, NaN while all wait for somebody, then of the whole run, as its row in the run table has it.
 *
 * Tests are seldom or many: a window of seconds would hold none of them, or nothing else. So their time is spread over the steps between them.
 */
export function ratesOf(run: Run): Rates {
  return run.end ? meanRates(run) : ratesNow(run)
}

function meanRates(run: Run): Rates {
  const seconds = secondsOf(run)
  return {
    stepsPerSec: run.loss.length / seconds,
    ownSamplesPerSec: run.samples / seconds,
    totalSamplesPerSec: meanSamplesPerSec(run),
    secondsLeft: Number.NaN,
  }
}

function ratesNow(run: Run): Rates {
  const { recent, tests, resumed, step, totalSteps } = run
  const first = recent.at(0)
  const newest = recent.at(-1)
  const steps = first && newest ? newest.step - first.step : 0
  if (!first || !newest || steps <= 0 || !advances(run)) {
    const none = Number.NaN
    return {
      stepsPerSec: none,
      ownSamplesPerSec: none,
      totalSamplesPerSec: none,
      secondsLeft: none,
    }
  }
  const stepMs = (newest.atMs - first.atMs) / steps
  const { testMs, stepsBetween } = testPace(tests, resumed?.step ?? 0)
  const stepsPerSec = 1000 / (stepMs + testMs / stepsBetween)
  const stepsLeft = totalSteps - step
  // The last step is always tested.
  const testsLeft = Math.max(1, Math.ceil(stepsLeft / stepsBetween))
  return {
    stepsPerSec,
    ownSamplesPerSec: ((newest.samples - first.samples) / steps) * stepsPerSec,
    totalSamplesPerSec: ((newest.globalSamples - first.globalSamples) / steps) * stepsPerSec,
    secondsLeft: (stepsLeft * stepMs + testsLeft * testMs) / 1000,
  }
}

/** How long the last tests took, and how many steps lay between them. */
function testPace(tests: Run['tests'], firstStep: number) {
  const oldest = tests.at(0)
  const newest = tests.at(-1)
  if (!oldest || !newest) return { testMs: 0, stepsBetween: Number.POSITIVE_INFINITY }
  const testMs = tests.reduce((sum, { ms }) => sum + ms, 0) / tests.length
  const stepsBetween =
    tests.length > 1 ? (newest.step - oldest.step) / (tests.length - 1) : newest.step - firstStep
  return { testMs, stepsBetween: Math.max(1, stepsBetween) }
}

/** What a full step of the run takes: as much as the largest one so far; before the first one, what the settings say. NaN before they are known. */
export const samplesOfStep = ({ config, fullestStep }: Pick<Run, 'config' | 'fullestStep'>) =>
  fullestStep || (config?.batchSize ?? Number.NaN)

/** Rows of each rank in a full step; empty before the settings are known. */
export function sharesOf(
  run: Pick<Run, 'config' | 'worldSize' | 'fullestStep' | 'assigned'>,
): readonly number[] {
  if (!run.config) return []
  if (run.assigned) return run.assigned.samples
  return rowsOf(run.config, samplesOfStep(run), run.worldSize)
}

/** Rows of each rank in a batch. */
function rowsOf(
  {
    exact,
    virtualWorkers = v.getDefault(trainConfigSchema.entries.virtualWorkers),
  }: Partial<TrainConfig>,
  batch: number,
  ranks: number,
): number[] {
  if (!exact) return batchShares(batch, ranks).map(({ rows }) => rows)
  return virtualShares(batch, virtualWorkers, ranks).map(({ offset, rows }) =>
    Math.max(0, Math.min(rows, batch - offset)),
  )
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
  const { experiments, run, draft, lobby } = snapshot
  if (run) return inPipelines(inWords(sharesOf(run)), run.config, run.worldSize)
  const tabs = lobby?.members.length ?? 0
  const config = isMaker(snapshot) ? checkDraft(experiments, draft, tabs).config : null
  const samples = inWords(config?.batchSize ? rowsOf(config, config.batchSize, tabs) : [])
  return inPipelines(samples, config, tabs)
}

/** A pipeline takes its samples as a whole. */
function inPipelines(
  samples: StepSamples,
  config: Partial<TrainConfig> | null,
  ranks: number,
): StepSamples {
  const stages = pipelinesOf(config?.parallel ?? '')?.stages
  if (!stages) return samples
  const pipelines = ranks / stages
  return {
    total: samples.total,
    words: `${pipelines === 1 ? 'a pipeline' : `${pipelines} pipelines`} of ${stages} ranks`,
  }
}

function inWords(shares: readonly number[]): StepSamples {
  if (shares.length === 0) return { total: Number.NaN, words: 'all ranks' }
  const total = shares.reduce((sum, rows) => sum + rows, 0)
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
