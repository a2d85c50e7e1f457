import type { Run } from '../state/run.ts'

/** The link from one rank to the next, as that rank counts it. NaN for what is not known yet. */
export interface LinkUse {
  readonly bytesPerSec: number
  /** The most chunks under way at once in the last second or so; 0 where gradients are not exchanged, and only short reports travel. */
  readonly chunks: number
  /** Of its window, the share that was in use at most. */
  readonly fill: number
}

const unknown: LinkUse = { bytesPerSec: Number.NaN, chunks: Number.NaN, fill: Number.NaN }

/** By rank, of its link to the next one: from the counters of the last two samples. */
export function linkUse({
  sampledSteps: samples,
  worldSize,
  config,
}: Pick<Run, 'sampledSteps' | 'worldSize' | 'config'>): LinkUse[] {
  const isApart = config?.strategy === 'alone'
  const newest = samples.at(-1)
  const before = samples.at(-2)
  return Array.from({ length: worldSize }, (_, rank) => {
    const now = newest?.[rank]
    const then = before?.[rank]
    if (!now?.link || !then?.link) return unknown
    const seconds = (now.readMs - then.readMs) / 1000
    const bytes = now.link.bytesSent - then.link.bytesSent
    // After a lost device ranks form a new group, and count from 0.
    if (!(seconds > 0) || bytes < 0) return unknown
    const { peakInFlightBytes, peakInFlightFrames, windowBytes } = now.link
    return {
      bytesPerSec: bytes / seconds,
      chunks: isApart ? 0 : peakInFlightFrames,
      fill: windowBytes > 0 ? peakInFlightBytes / windowBytes : Number.NaN,
    }
  })
}

/** Bytes/s from each rank (row) to each other, by what they had sent at the last two samples; NaN for what is not known. */
export function ratesOfLinks({
  sampledSteps: samples,
  worldSize,
}: Pick<Run, 'sampledSteps' | 'worldSize'>): number[][] {
  const newest = samples.at(-1)
  const before = samples.at(-2)
  const ranks = Array.from({ length: worldSize }, (_, rank) => rank)
  return ranks.map((from) => {
    const now = newest?.[from]
    const then = before?.[from]
    const seconds = now && then ? (now.readMs - then.readMs) / 1000 : 0
    return ranks.map((to) => {
      const bytes = (now?.sentTo[to] ?? Number.NaN) - (then?.sentTo[to] ?? Number.NaN)
      return seconds > 0 && bytes >= 0 ? bytes / seconds : Number.NaN
    })
  })
}
