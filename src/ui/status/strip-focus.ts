import type { RefObject } from 'preact'
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks'

/** For so long after the buttons of a run have changed they take no click: it was meant for the one that stood there. units: ms. */
export const settleMs = 500

/** Says when the buttons of a run take clicks. Times are given, by any clock. */
export class ActGuard {
  #buttons: unknown
  #changedMs = Number.NEGATIVE_INFINITY

  constructor(buttons: unknown) {
    this.#buttons = buttons
  }

  /** Returns whether clicks count; `buttons` is another value where others stand there. */
  isOpen(buttons: unknown, nowMs: number): boolean {
    if (buttons !== this.#buttons) {
      this.#buttons = buttons
      this.#changedMs = nowMs
    }
    return nowMs - this.#changedMs >= settleMs
  }
}

/** Returns whether a key that is held down asks for a click again. */
export const isHeldKey = ({ key, repeat }: Pick<KeyboardEvent, 'key' | 'repeat'>): boolean =>
  repeat && (key === 'Enter' || key === ' ')

export interface StripFocus {
  readonly strip: RefObject<HTMLElement | null>
  /** Can take the focus, and takes it while no button is there for it. */
  readonly heading: RefObject<HTMLHeadingElement | null>
  /** The buttons changed a moment ago: they take no click yet. */
  readonly isSettling: boolean
  readonly onKeyDownCapture: (event: KeyboardEvent) => void
  readonly onClickCapture: (event: MouseEvent) => void
}

/**
 * Keeps the focus in the strip when the button that has it goes away: on the heading during a run, then on the button for the next act.
 *
 * Held keys, and clicks right after the buttons changed, are taken away: they were meant for the button before. A button that only opens a dialog does nothing that cannot be taken back: it takes them.
 */
export function useStripFocus(isRunning: boolean, isPaused: boolean): StripFocus {
  const buttons = isRunning && (isPaused ? 'paused' : 'running')
  const strip = useRef<HTMLElement | null>(null)
  const heading = useRef<HTMLHeadingElement | null>(null)
  const isKeeping = useRef(false)
  const guard = useRef<ActGuard | null>(null)
  guard.current ??= new ActGuard(buttons)
  const [, redraw] = useState(0)
  const isSettling = !guard.current.isOpen(buttons, performance.now())
  // Asked before this drawing changes the page: what it takes out has no focus any more.
  const focused = strip.current?.querySelector<HTMLElement>(':focus') ?? null

  useEffect(() => {
    if (!isSettling) return
    // A timer may be a little early.
    const timer = setTimeout(() => redraw((count) => count + 1), settleMs + 20)
    return () => clearTimeout(timer)
  }, [buttons])

  useLayoutEffect(() => {
    const isLost = focused && (!focused.isConnected || focused.matches(':disabled'))
    if (isLost) {
      heading.current!.focus({ preventScroll: true })
      isKeeping.current = true
    }
    if (!isKeeping.current) return
    if (document.activeElement !== heading.current) isKeeping.current = false
    else if (!isRunning) {
      const act = strip.current!.querySelector<HTMLElement>('.main-acts .go:not(:disabled)')
      act?.focus({ preventScroll: true })
      isKeeping.current = act === null
    }
  })

  return {
    strip,
    heading,
    isSettling,
    onKeyDownCapture: (event) => {
      if (isHeldKey(event) && isButton(event.target)) event.preventDefault()
    },
    onClickCapture: (event) => {
      const act = event.target instanceof Element && event.target.closest('.main-acts button')
      if (
        !act ||
        act.ariaHasPopup === 'dialog' ||
        guard.current!.isOpen(buttons, performance.now())
      )
        return
      event.preventDefault()
      event.stopPropagation()
    },
  }
}

const isButton = (target: EventTarget | null) =>
  target instanceof Element && target.closest('button') !== null
