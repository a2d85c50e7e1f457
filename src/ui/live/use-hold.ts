import { useRef, useState } from 'preact/hooks'
import type { Run } from '../state/run.ts'
import { choose, type Held, hold, release, type Shown, shownOf } from './look-back.ts'

interface Hold {
  readonly shown: Shown
  readonly choose: (at: number) => void
  /** Of the element that holds while the pointer or the focus is in it. */
  readonly holds: {
    readonly onPointerEnter: () => void
    readonly onPointerLeave: () => void
    readonly onFocusIn: () => void
    readonly onFocusOut: (event: FocusEvent) => void
  }
}

/** The sampled step that is shown of `run`, which stays the same while a person looks at it. */
export function useHold(run: Pick<Run, 'id' | 'sampledSteps'>): Hold {
  const [held, setHeld] = useState<Held | null>(null)
  const holds = useRef({ pointer: false, focus: false }).current
  const newest = useRef(run)
  newest.current = run
  const setHold = (by: keyof typeof holds, isOn: boolean) => {
    holds[by] = isOn
    setHeld((now) => (holds.pointer || holds.focus ? hold(now, newest.current) : release(now)))
  }
  return {
    shown: shownOf(held, run),
    choose: (at) => setHeld((now) => choose(now, newest.current, at)),
    holds: {
      onPointerEnter: () => setHold('pointer', true),
      onPointerLeave: () => setHold('pointer', false),
      onFocusIn: () => setHold('focus', true),
      onFocusOut: ({ currentTarget, relatedTarget }) => {
        const isInside =
          relatedTarget instanceof Node && (currentTarget as Node).contains(relatedTarget)
        if (!isInside) setHold('focus', false)
      },
    },
  }
}
