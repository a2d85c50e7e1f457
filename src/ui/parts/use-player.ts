import { useEffect, useState } from 'preact/hooks'

/** A frame that comes later than this is one after a pause: a tab that was hidden. */
const longestFrameMs = 100
/** Drawn so often at most; without motion, in leaps. */
const frameMs = 30
const leapMs = 700

export interface Player {
  readonly ms: number
  readonly isPlaying: boolean
  /** ms of the run in 1 ms, at this time. */
  readonly rate: number
  /** Plays, from the start again at the end; or pauses. */
  toggle(): void
  /** Pauses, at a time. */
  seek(ms: number): void
  /** Pauses, at the next or the previous time at which something arrives. */
  step(by: 1 | -1): void
}

export interface Played {
  readonly endMs: number
  /** Times at which `step` halts, in order. */
  readonly stops: readonly number[]
  /** ms of the run in 1 ms, at a time. */
  rateAt(ms: number): number
}

/** A clock over a run that is played back. It moves with the browser's frames: not where nobody looks. */
export function usePlayer({ endMs, stops, rateAt }: Played): Player {
  const [share, setShare] = useState(0)
  const [isPlaying, setPlaying] = useState(false)

  useEffect(() => {
    if (!isPlaying) return
    const hasMotion = !matchMedia('(prefers-reduced-motion: reduce)').matches
    let last = Number.NaN
    let dueMs = 0
    let frame = requestAnimationFrame(function tick(now) {
      dueMs += Math.min(longestFrameMs, now - last || 0)
      last = now
      if (dueMs >= (hasMotion ? frameMs : leapMs)) {
        const playedMs = dueMs
        dueMs = 0
        setShare((before) => Math.min(1, before + (playedMs * rateAt(before * endMs)) / endMs))
      }
      frame = requestAnimationFrame(tick)
    })
    return () => cancelAnimationFrame(frame)
  }, [isPlaying, rateAt, endMs])
  useEffect(() => {
    if (isPlaying && share >= 1) setPlaying(false)
  }, [isPlaying, share])

  /** The stop itself, where the share has been rounded. */
  const timeAt = (at: number): number =>
    stops.find((stop) => Math.abs(stop - at * endMs) <= 1e-12 * endMs) ?? at * endMs
  // By what holds then, not by what was drawn last: keys may come faster than frames.
  const seek = (to: (ms: number) => number) => {
    setPlaying(false)
    setShare((before) => Math.min(1, Math.max(0, to(timeAt(before)) / endMs)))
  }
  return {
    ...{ ms: timeAt(share), isPlaying, rate: rateAt(share * endMs) },
    toggle: () => {
      if (!isPlaying && share >= 1) setShare(0)
      setPlaying((before) => !before)
    },
    seek: (ms) => seek(() => ms),
    step: (by) =>
      seek(
        (ms) =>
          (by > 0 ? stops.find((stop) => stop > ms) : stops.findLast((stop) => stop < ms)) ?? ms,
      ),
  }
}
