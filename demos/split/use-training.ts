import { useEffect, useRef, useState } from 'preact/hooks'
import { type Trouble, troubleOf } from '../../src/ui/state/trouble.ts'
import { messageOf } from '../../src/util/errors.ts'
import { nextTask } from '../../src/util/next-task.ts'
import { batchOf } from './network.ts'
import type { Settings } from './settings.ts'
import {
  type DeviceBytes,
  makeWay,
  type WatchedStep,
  type Way,
  type WayName,
  ways,
} from './ways.ts'

/** What the page shows of one way. */
export interface WayState {
  readonly name: WayName
  readonly devices: readonly DeviceBytes[]
  readonly loss: number
  /** Mean of the newest steps. units: ms. */
  readonly stepMs: number
  /** The newest step that was watched. */
  readonly watched: WatchedStep | undefined
  /** The largest difference from one device's losses so far, relative to them. */
  readonly off: number
}

export interface Training {
  readonly stage: 'compiling' | 'ready' | 'training' | 'failed'
  readonly step: number
  /** In the order of the page; those that are compiled. */
  readonly states: readonly WayState[]
  readonly error: string
  readonly trouble: Trouble | null
  toggle(): void
}

const names = Object.keys(ways) as WayName[]
/** How often a step is watched and drawn. units: ms. */
const everyMs = 400
/** A slider that moves compiles nothing. units: ms. */
const settleMs = 250

type Shown = Omit<Training, 'toggle'>
const nothing: Shown = { stage: 'compiling', step: 0, states: [], error: '', trouble: null }

/** Trains the network in all ways, step by step in turn; other settings begin again. */
export function useTraining(settings: Settings, isPossible: boolean): Training {
  const [shown, setShown] = useState<Shown>(nothing)
  const wanted = useRef(false)
  const wake = useRef<() => void>(() => undefined)
  const { devices, schedule, split } = settings

  useEffect(() => {
    if (!isPossible) return
    let isOver = false
    const made: Way[] = []
    const run = async () => {
      setShown(nothing)
      await new Promise((resolve) => setTimeout(resolve, settleMs))
      for (const name of names) {
        if (isOver) return
        made.push(await makeWay(name, { devices, schedule, split }))
      }
      const states: WayState[] = names.map((name, i) => ({
        ...{ name, devices: made[i].devices, loss: Number.NaN, stepMs: Number.NaN, off: 0 },
        watched: undefined,
      }))
      let drawnMs = Number.NEGATIVE_INFINITY
      for (let step = 0; !isOver; step++) {
        // The first step runs at once, so that there is something to see.
        if (step > 0 && !wanted.current) {
          setShown({ ...nothing, stage: 'ready', step, states: [...states] })
          await new Promise<void>((resolve) => {
            wake.current = resolve
          })
          if (isOver) return
        }
        const isDrawn = performance.now() - drawnMs > everyMs || step === 0
        for (const [i, way] of made.entries()) {
          const beganMs = performance.now()
          let { watched } = states[i]
          const onWatched = isDrawn
            ? (one: WatchedStep) => {
                watched = one
              }
            : undefined
          const loss = await way.step(batchOf(step), onWatched)
          const ms = performance.now() - beganMs
          const { stepMs, off } = states[i]
          const one = i === 0 ? loss : states[0].loss
          states[i] = {
            ...states[i],
            loss,
            watched,
            stepMs: Number.isNaN(stepMs) ? ms : 0.9 * stepMs + 0.1 * ms,
            off: Math.max(off, Math.abs(loss - one) / one),
          }
          if (isOver) return
        }
        if (isDrawn) {
          drawnMs = performance.now()
          setShown({ ...nothing, stage: 'training', step: step + 1, states: [...states] })
        }
        await nextTask()
      }
    }
    const running = run()
      .catch((thrown) => {
        if (isOver) return
        const isOfDevice =
          thrown instanceof Error && 'code' in thrown && thrown.code === 'gpu.unavailable'
        const trouble = isOfDevice ? troubleOf(thrown) : null
        setShown({ ...nothing, stage: 'failed', error: messageOf(thrown), trouble })
      })
      .finally(() => {
        for (const way of made) way.destroy()
      })
    return () => {
      isOver = true
      wake.current()
      void running
    }
  }, [isPossible, devices, schedule, split])

  return {
    ...shown,
    toggle: () => {
      wanted.current = !wanted.current
      wake.current()
    },
  }
}
