import { useEffect, useRef, useState } from 'preact/hooks'
import { messageOf } from '../../src/util/errors.ts'
import type { RingSettings } from './settings.ts'
import { type Story, tellRun } from './story.ts'

export interface Run {
  /** The last one that was told; that of older settings while a new one is under way. */
  readonly story: Story | undefined
  readonly isUnderWay: boolean
  /** Why there is none. */
  readonly error: string
}

/** Tells a run anew when the settings change: one at a time, and of those that wait the newest alone. */
export function useRun(settings: RingSettings): Run {
  const [run, setRun] = useState<Run>({ story: undefined, isUnderWay: true, error: '' })
  const wanted = useRef(settings)
  const isTelling = useRef(false)
  useEffect(() => {
    wanted.current = settings
    if (isTelling.current) return
    isTelling.current = true
    setRun((before) => ({ ...before, isUnderWay: true }))
    void tellWanted().finally(() => {
      isTelling.current = false
    })
    async function tellWanted(): Promise<void> {
      let told: RingSettings | undefined
      while (told !== wanted.current) {
        told = wanted.current
        try {
          const story = await tellRun(told)
          setRun({ story, isUnderWay: told !== wanted.current, error: '' })
        } catch (error) {
          setRun({ story: undefined, isUnderWay: false, error: messageOf(error) })
        }
      }
    }
  }, [settings])
  return run
}
