import { useEffect, useRef, useState } from 'preact/hooks'
import type { ViewProps } from '../../src/ui/demo/view-props.ts'
import { messageOf } from '../../src/util/errors.ts'

/** What one model has written behind a prompt. */
export interface Line {
  readonly id: number
  readonly prompt: string
  readonly text: string
  /** Behind which it was that model. */
  readonly step: number
}

/** Characters of a line while the model learns, and of one that it writes when it has learned. */
export const duringRun = 56
const afterRun = 240
/** From one line of a run to the question for the next. units: ms. */
const pauseMs = 400
const maxLines = 60

interface Written {
  /** The newest first. */
  readonly lines: readonly Line[]
  readonly failure: string | null
}

const nothing: Written = { lines: [], failure: null }

/** Leaves a line out where there are too many: the one with the smallest gap around it, so that the rest cover the whole run. The newest is the first. */
export function thinned(lines: readonly Line[], max = maxLines): readonly Line[] {
  if (lines.length <= max) return lines
  const gapAround = (at: number) => lines[at - 1].step - lines[at + 1].step
  let min = 1
  for (let at = 2; at < lines.length - 1; at++) if (gapAround(at) < gapAround(min)) min = at
  return lines.filter((_, at) => at !== min)
}

/**
 * Lets the model write line after line during a run, each of them by the model of one step, and one longer line after its end;
 * `again` asks for another one then.
 *
 * One line is asked for at a time. Nothing is asked while the page is hidden, nor while the model does not change.
 */
export function useSamples(
  { query, run, whose }: Pick<ViewProps, 'query' | 'run' | 'whose'>,
  prompt: string | null,
  temperature: number,
): Written & { again: () => void } {
  const [written, setWritten] = useState<Written>(nothing)
  const state = useRef({ isAsking: false, writer: '', seed: 0, asked: '', answeredAtMs: 0 })
  /** Whose lines these are. */
  const writer = run && `${run.id} ${whose}`
  const now = useRef(writer)
  now.current = writer
  useEffect(() => {
    const { current } = state
    if (writer !== null && writer !== current.writer) {
      Object.assign(current, { writer, seed: 0, asked: '' })
      setWritten(nothing)
      return
    }
    if (!run || run.step === 0 || prompt === null || current.isAsking || document.hidden) return
    // It writes on while it learns what the run has learned.
    const isBehind = whose === 'others' && !(written.lines[0]?.step >= run.step)
    const isOver = run.end !== null && !isBehind
    const moment = `${run.step} ${isOver} ${isBehind ? current.seed : ''} ${prompt}`
    if (moment === current.asked) return
    const isSoon = performance.now() - current.answeredAtMs < pauseMs
    if (isSoon && !isOver && run.paused === null) return
    current.asked = moment
    current.isAsking = true
    current.seed++
    const { seed } = current
    query('sample', { prompt, length: isOver ? afterRun : duringRun, temperature, seed })
      .then(
        ({ added, step }) => {
          if (now.current !== writer) return
          const line = { id: seed, prompt, text: String(added), step: Number(step) }
          setWritten(({ lines }) => ({ lines: thinned([line, ...lines]), failure: null }))
        },
        (error) => setWritten(({ lines }) => ({ lines, failure: messageOf(error) })),
      )
      .finally(() => {
        current.isAsking = false
        current.answeredAtMs = performance.now()
        // Asks on, also where nothing of the answer was kept.
        setWritten((before) => ({ ...before }))
      })
  })
  return {
    ...written,
    again() {
      state.current.asked = ''
      setWritten((before) => ({ ...before }))
    },
  }
}
