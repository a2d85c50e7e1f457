import { useEffect, useRef, useState } from 'preact/hooks'
import type { ViewProps } from '../../src/ui/demo/view-props.ts'
import { messageOf } from '../../src/util/errors.ts'

/** What the model has written behind a prompt, from one step to another, as it learned in between. */
export interface Line {
  readonly id: number
  readonly prompt: string
  readonly text: string
  readonly firstStep: number
  readonly lastStep: number
  readonly isWhole: boolean
}

/** Characters of one answer: as many gaps between steps. */
const atOnce = 8
/** Characters of a line while the model learns, and of one that it writes when it has learned. */
const duringRun = 56
const afterRun = 240
const mostLines = 60

interface Written {
  /** The newest first. */
  readonly lines: readonly Line[]
  readonly failure: string | null
}

const nothing: Written = { lines: [], failure: null }

/**
 * Lets the model write line after line while a run goes on, and one longer line behind its end; `again` asks for another one then.
 *
 * One portion is asked for at a time. Nothing is asked while the page is hidden, nor while the model does not change.
 */
export function useSamples(
  { look, run }: Pick<ViewProps, 'look' | 'run'>,
  prompt: string | null,
  temperature: number,
): Written & { again: () => void } {
  const [written, setWritten] = useState<Written>(nothing)
  const state = useRef({ isAsking: false, runId: '', seed: 0, isWanted: false, failedAt: '' })
  const now = useRef({ run, prompt, temperature })
  now.current = { run, prompt, temperature }
  useEffect(() => {
    const { current } = state
    if (run && run.id !== current.runId) {
      Object.assign(current, { runId: run.id, seed: 0, isWanted: false, failedAt: '' })
      setWritten(nothing)
      return
    }
    if (!run || run.step === 0 || prompt === null || current.isAsking || document.hidden) return
    const isOver = run.end !== null
    const [newest] = written.lines
    const isOpen = newest && !newest.isWhole && newest.prompt === prompt
    const isDone = newest?.isWhole && newest.prompt === prompt
    const wanted = isOver ? afterRun : duringRun
    const hasWritten =
      isDone && newest.lastStep === run.step && (!isOver || newest.text.length >= afterRun)
    if (hasWritten && !current.isWanted) return
    const moment = `${run.step} ${run.end?.kind} ${prompt} ${temperature}`
    if (current.failedAt === moment) return
    if (!isOpen) {
      current.seed++
      current.isWanted = false
    }
    const line: Line = isOpen
      ? newest
      : {
          id: current.seed,
          prompt,
          text: '',
          firstStep: run.step,
          lastStep: run.step,
          isWhole: false,
        }
    current.isAsking = true
    look('sample', {
      prompt: prompt + line.text,
      length: atOnce,
      temperature,
      seed: current.seed,
    })
      .then(
        ({ added }) => {
          const { run: later } = now.current
          // A line of another run, or behind a prompt that is no longer asked about, is not written on.
          if (later?.id !== run.id || now.current.prompt !== prompt) return
          const text = line.text + String(added)
          const next = {
            ...line,
            text,
            lastStep: later.step,
            isWhole: Array.from(text).length >= wanted,
          }
          setWritten(({ lines }) => ({
            lines: [next, ...lines.filter(({ id, isWhole }) => id !== line.id && isWhole)].slice(
              0,
              mostLines,
            ),
            failure: null,
          }))
        },
        (error) => {
          current.failedAt = moment
          setWritten(({ lines }) => ({ lines, failure: messageOf(error) }))
        },
      )
      .finally(() => {
        current.isAsking = false
        // Asks on, also where nothing of the answer was kept.
        setWritten((before) => ({ ...before }))
      })
  })
  return {
    ...written,
    again() {
      state.current.isWanted = true
      setWritten((before) => ({ ...before }))
    },
  }
}
