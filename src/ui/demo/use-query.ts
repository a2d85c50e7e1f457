import { createContext } from 'preact'
import { useContext, useEffect, useRef, useState } from 'preact/hooks'
import { messageOf } from '../../util/errors.ts'
import type { QueryAnswer, Whose } from '../../worker/api.ts'
import type { ViewProps } from './view-props.ts'

export interface Queried {
  /** The newest answer. */
  readonly answer: QueryAnswer | null
  /** Why there is no newer one. */
  readonly failure: string | null
}

/** Resolves when the page is next drawn, as `Store.nextDraw`; at once on a page without a store. */
export const NextDraw = createContext<() => Promise<void>>(async () => undefined)

const nothingQueried = {
  runId: '',
  /** By the model that was asked. */
  answers: {} as Partial<Record<Whose, QueryAnswer>>,
  failure: null as string | null,
  turn: 0,
}

/** Answers are at least this far apart, so that looking costs a run little. units: ms. */
const defaultEveryMs = 250
/** After a failure it is so long until the next try. units: ms. */
const retryMs = 1000

/**
 * Repeats a query during the run, one at a time; not while the page is hidden, and not while nothing changes.
 *
 * An answer to another `input` is shown at once, one that only follows the run with the next picture of the page.
 *
 * It asks when `step` (or `input`) is another than that of the last answer; where the answer is of the data alone, give `once`. An answer
 * that comes after the last step is of the trained model. A model that lags behind the run is asked again and again. Nothing is asked while it
 * `isIdle`.
 */
export function useQuery(
  { query, run, whose }: Pick<ViewProps, 'query' | 'run' | 'whose'>,
  name: string,
  input: unknown,
  {
    everyMs = defaultEveryMs,
    step = run ? `${run.epoch} ${run.step} ${run.end?.kind}` : '',
    isIdle = false,
  } = {},
): Queried {
  // An answer and the turn it ends are one change: the view is drawn once for both.
  const [queried, setQueried] = useState(nothingQueried)
  const nextDraw = useContext(NextDraw)
  const state = useRef({ isAsking: false, askedAtMs: 0, asked: '', input: '' })
  const hasModel = run !== null && run.step > 0
  const asks = step === 'once' ? 'all' : whose
  const runId = run?.id ?? ''
  const answer = (queried.runId === runId && queried.answers[asks]) || null
  const question = `${asks} ${JSON.stringify(input)}`
  const isBehind = asks === 'others' && answer !== null && Number(answer.step) < (run?.step ?? 0)
  const wanted = hasModel ? `${runId} ${step} ${isBehind ? queried.turn : ''} ${question}` : ''
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
          setQueried(({ answers, turn, ...before }) => ({
            runId,
            answers: { ...(before.runId === runId && answers), [asks]: answer },
            failure: null,
            turn: turn + 1,
          }))
        },
        (error) => {
          current.isAsking = false
          // It may be too early, or the worker busy: the same is asked again, though not at once.
          current.asked = ''
          current.askedAtMs = performance.now() + retryMs - everyMs
          setQueried((before) => ({
            ...before,
            failure: messageOf(error),
            turn: before.turn + 1,
          }))
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
  return { answer, failure: queried.failure }
}
