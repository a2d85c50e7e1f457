import { useEffect, useMemo, useState } from 'preact/hooks'
import { stopsOf } from './moment.ts'
import type { Story } from './story.ts'

/** How fast the clock goes: `fit` shows a run in some seconds; else ms of the run in 1 ms. */
export const paces = [
  ['fit', 'whole run in 12 s'],
  ['1', 'real time'],
  ['0.1', '10 times slower'],
  ['0.01', '100 times slower'],
  ['0.001', '1,000 times slower'],
] as const
export type Pace = (typeof paces)[number][0]

const fitMs = 12_000
/** A frame that comes later than this is one after a pause: a tab that was hidden. */
const longestFrameMs = 100
/** Drawn so often at most; without motion, in leaps. */
const frameMs = 30
const leapMs = 700

export interface Player {
  readonly ms: number
  readonly isPlaying: boolean
  /** ms of the run in 1 ms. */
  readonly rate: number
  /** Plays, from the start again at the end; or pauses. */
  toggle(): void
  /** Pauses, at a time. */
  seek(ms: number): void
  /** Pauses, at the next or the previous time at which something arrives. */
  step(by: 1 | -1): void
}

/** A clock over a story, which moves with the browser's frames: not where nobody looks. */
export function usePlayer(story: Story | undefined, pace: Pace): Player {
  const [share, setShare] = useState(0)
  const [isPlaying, setPlaying] = useState(false)
  const stops = useMemo(() => (story ? stopsOf(story) : [0]), [story])
  const endMs = story?.endMs || 1
  const rate = pace === 'fit' ? endMs / fitMs : Number(pace)

  useEffect(() => {
    if (!isPlaying) return
    const hasMotion = !matchMedia('(prefers-reduced-motion: reduce)').matches
    let last = Number.NaN
    let dueMs = 0
    let frame = requestAnimationFrame(function tick(now) {
      dueMs += Math.min(longestFrameMs, now - last || 0)
      last = now
      if (dueMs >= (hasMotion ? frameMs : leapMs)) {
        const passed = (dueMs * rate) / endMs
        dueMs = 0
        setShare((before) => Math.min(1, before + passed))
      }
      frame = requestAnimationFrame(tick)
    })
    return () => cancelAnimationFrame(frame)
  }, [isPlaying, rate, endMs])
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
    ...{ ms: timeAt(share), isPlaying, rate },
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
