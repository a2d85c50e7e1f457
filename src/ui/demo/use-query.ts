import { createContext } from 'preact'
import { useContext, useEffect, useRef, useState } from 'preact/hooks'
import { messageOf } from '../../util/errors.ts'
import type { QueryAnswer } from '../../worker/api.ts'
import type { ViewProps } from './view-props.ts'

export interface Queried {
  /** The newest answer. */
  readonly answer: QueryAnswer | null
  /** Why there is no newer one. */
  readonly failure: string | null
}

/** Resolves when the page is next drawn, as `Store.nextDraw`; at once on a page without a store. */
export const NextDraw = createContext<() => Promise<void>>(async () => undefined)

const nothingQueried = { answer: null, failure: null, turn: 0 }

/** Answers are at least this far apart, so that looking costs a run little. units: ms. */
const defaultEveryMs = 250
/** After a failure it is so long until the next try. units: ms. */
const retryMs = 1000

/**
 * Repeats a query during the run, one at a time; not while the page is hidden, and not while nothing changes.
 *
 * An answer to another `input` is shown at once, one that only follows the run with the next picture of the page.
 *
 * It asks when `step` (or `input`) is another than that of the last answer; where the answer needs nothing of the run's progress, give a
 * constant. An answer that comes after the last step is of the trained model. Nothing is asked while it `isIdle`.
 */
export function useQuery(
  { query, run }: Pick<ViewProps, 'query' | 'run'>,
  name: string,
  input: unknown,
  {
    everyMs = defaultEveryMs,
    step = run ? `${run.epoch} ${run.step} ${run.end?.kind}` : '',
    isIdle = false,
  } = {},
): Queried {
  // An answer and the turn it ends are one change: the view is drawn once for both.
  const [queried, setQueried] = useState<Queried & { turn: number }>(nothingQueried)
  const nextDraw = useContext(NextDraw)
  const state = useRef({ isAsking: false, askedAtMs: 0, asked: '', input: '' })
  const hasModel = run !== null && run.step > 0
  const question = JSON.stringify(input)
  const wanted = hasModel ? `${step} ${question}` : ''
  useEffect(() => {
    const { current } = state
    if (!hasModel || isIdle || current.isAsking || wanted === current.asked || document.hidden)
      return
    const ask = () => {
      current.isAsking = true
      current.askedAtMs = performance.now()
      current.asked = wanted
      const isFollowing = current.input === question
      current.input = question
      query(name, input).then(
        async (answer) => {
          if (isFollowing) await nextDraw()
          current.isAsking = false
          setQueried(({ turn }) => ({ answer, failure: null, turn: turn + 1 }))
        },
        (error) => {
          current.isAsking = false
          // It may be too early, or the worker busy: the same is asked again, though not at once.
          current.asked = ''
          current.askedAtMs = performance.now() + retryMs - everyMs
          setQueried(({ answer, turn }) => ({ answer, failure: messageOf(error), turn: turn + 1 }))
        },
      )
    }
    const waitMs = current.askedAtMs + everyMs - performance.now()
    if (waitMs <= 0) {
      ask()
      return
    }
    const timer = setTimeout(ask, waitMs)
    return () => clearTimeout(timer)
  }, [name, wanted, isIdle, queried.turn, document.hidden])
  return queried
}
