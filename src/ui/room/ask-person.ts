import type { RunEvent } from '../../worker/api.ts'
import { afterOnPage } from './long-tests.ts'

/** Time within which a tab that has woken hears from the server how the run is. units: ms. */
export const askPersonMs = 4000

type Pass = (event: RunEvent, atMs: number) => void

/** Passes events on, and that a person has to decide only once it lasts: the question would come and go. */
export function askOnceItLasts(pass: Pass, after = afterOnPage): Pass {
  /** The newest of those events, passed on or not. */
  let newest: Parameters<Pass> | undefined
  let isAsked = false
  let cancel: () => void = () => undefined
  return (...args) => {
    const [event] = args
    const isQuestion = event.event === 'undecided' && event.missing !== null
    if (event.event === 'undecided' && !isQuestion) {
      cancel()
      newest = undefined
      isAsked = false
    }
    if (!isQuestion || isAsked) {
      pass(...args)
      return
    }
    if (!newest)
      cancel = after(askPersonMs, () => {
        isAsked = true
        pass(...newest!)
      })
    newest = args
  }
}
