import { useEffect, useRef, useState } from 'preact/hooks'
import { messageOf } from '../../src/util/errors.ts'
import type { RingSettings } from './settings.ts'
import { type Story, tellRun } from './story.ts'

/** A recorded run, or why there is none. */
interface RunReport {
  readonly of: RingSettings
  readonly story: Story | undefined
  readonly error: string
}

export interface Run {
  /** The last one that was recorded; that of older settings while a new one is under way. */
  readonly story: Story | undefined
  /** From the first frame with new settings, until their run is recorded. */
  readonly isUnderWay: boolean
  /** Why there is none. */
  readonly error: string
}

/** Records a run again when the settings change: one at a time, and of those that wait only the newest. */
export function useRun(settings: RingSettings): Run {
  const [report, setReport] = useState<RunReport>()
  const wanted = useRef(settings)
  const isTelling = useRef(false)
  useEffect(() => {
    wanted.current = settings
    if (isTelling.current) return
    isTelling.current = true
    void tellWanted().finally(() => {
      isTelling.current = false
    })
    async function tellWanted(): Promise<void> {
      let of: RingSettings | undefined
      while (of !== wanted.current) {
        of = wanted.current
        try {
          setReport({ of, story: await tellRun(of), error: '' })
        } catch (error) {
          setReport({ of, story: undefined, error: messageOf(error) })
        }
      }
    }
  }, [settings])
  return { story: report?.story, isUnderWay: report?.of !== settings, error: report?.error ?? '' }
}
