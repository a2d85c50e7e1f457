import { headerBytes } from '../../peer/wire.ts'
import type { Run } from '../state.ts'

/** The link from one rank to the next, as that rank counts it. NaN for what is not known yet. */
export interface LinkUse {
  readonly bytesPerSec: number
  /** The most chunks under way at once in the last second or so. */
  readonly chunks: number
  /** Of its window, the share that was in use at most. */
  readonly fill: number
}

const unknown: LinkUse = { bytesPerSec: Number.NaN, chunks: Number.NaN, fill: Number.NaN }

/** By rank, of its link to the next one: from the counters of the last two samples. */
export function linkUse({
  sampledSteps: samples,
  worldSize,
}: Pick<Run, 'sampledSteps' | 'worldSize'>): LinkUse[] {
  const newest = samples.at(-1)
  const before = samples.at(-2)
  return Array.from({ length: worldSize }, (_, rank) => {
    const now = newest?.[rank]
    const then = before?.[rank]
    if (!now?.link || !then?.link) return unknown
    const seconds = (now.readMs - then.readMs) / 1000
    const bytes = now.link.bytesSent - then.link.bytesSent
    const frames = now.link.framesSent - then.link.framesSent
    // After a lost device ranks meet anew, and count anew.
    if (!(seconds > 0) || bytes < 0 || frames < 0) return unknown
    const { peakInFlightBytes, windowBytes } = now.link
    return {
      bytesPerSec: bytes / seconds,
      chunks: frames > 0 ? Math.ceil(peakInFlightBytes / (bytes / frames + headerBytes)) : 0,
      fill: windowBytes > 0 ? peakInFlightBytes / windowBytes : Number.NaN,
    }
  })
}
