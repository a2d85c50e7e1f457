import { useEffect, useRef, useState } from 'preact/hooks'
import { messageOf } from '../../util/errors.ts'
import type { LookAnswer } from '../../worker/api.ts'
import type { ViewProps } from './view-props.ts'

export interface Looked {
  /** The newest answer. */
  readonly answer: LookAnswer | null
  /** Why there is no newer one. */
  readonly failure: string | null
}

/** Answers are at least this far apart, so that looking costs a run little. units: ms. */
const defaultEveryMs = 250

/**
 * Asks for a look again and again as the run goes on, one question at a time; not while the page is hidden, and not while nothing changes.
 *
 * It asks when `step` (or `input`) is another than that of the last answer; where the answer needs nothing of the run's progress, give a
 * constant. An answer that comes after the last step is of the trained model.
 */
export function useLook(
  { look, run }: Pick<ViewProps, 'look' | 'run'>,
  name: string,
  input: unknown,
  { everyMs = defaultEveryMs, step = run ? `${run.epoch} ${run.step} ${run.end?.kind}` : '' } = {},
): Looked {
  const [looked, setLooked] = useState<Looked>({ answer: null, failure: null })
  const state = useRef({ isAsking: false, askedAtMs: 0, asked: '' })
  const [, again] = useState(0)
  const hasModel = run !== null && run.step > 0
  const wanted = hasModel ? `${step} ${JSON.stringify(input)}` : ''
  useEffect(() => {
    const { current } = state
    if (!hasModel || current.isAsking || wanted === current.asked || document.hidden) return
    const ask = () => {
      current.isAsking = true
      current.askedAtMs = performance.now()
      current.asked = wanted
      look(name, input)
        .then(
          (answer) => setLooked({ answer, failure: null }),
          (error) => setLooked((before) => ({ ...before, failure: messageOf(error) })),
        )
        .finally(() => {
          current.isAsking = false
          again((count) => count + 1)
        })
    }
    const waitMs = current.askedAtMs + everyMs - performance.now()
    if (waitMs <= 0) {
      ask()
      return
    }
    const timer = setTimeout(ask, waitMs)
    return () => clearTimeout(timer)
  })
  return looked
}
