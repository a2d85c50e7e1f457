import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks'
import './term.css'
import { partsOf, type TermName, termOf, terms } from './terms.ts'

/** Between the explanation and the window's edges. units: px. */
const gap = 8

interface TermProps {
  readonly word: TermName
  /** As the sentence has it. Default: `word`. */
  readonly children?: string
}

/** A word that explains itself: while the pointer or the keyboard's focus is on it, and until it is left once it is pressed. Nothing on the page moves. */
export function Term({ word, children }: TermProps) {
  const id = useId()
  const place = useRef<HTMLSpanElement>(null)
  const box = useRef<HTMLSpanElement>(null)
  const [shown, setShown] = useState<'' | 'passing' | 'kept'>('')
  const isShown = shown !== ''
  useLayoutEffect(() => {
    if (isShown) showAt(box.current!, place.current!.getBoundingClientRect())
    else box.current!.hidePopover()
  }, [isShown])
  useEffect(() => {
    if (!isShown) return
    const closing = new AbortController()
    const { signal } = closing
    const close = () => setShown('')
    addEventListener('scroll', close, { signal, capture: true, passive: true })
    addEventListener('keydown', ({ key }) => key === 'Escape' && close(), { signal })
    addEventListener(
      'pointerdown',
      ({ target }) => !place.current!.contains(target as Node) && close(),
      { signal },
    )
    return () => closing.abort()
  }, [isShown])
  return (
    <span
      class="term"
      ref={place}
      onPointerEnter={({ pointerType }) =>
        pointerType === 'mouse' && setShown((now) => now || 'passing')
      }
      onPointerLeave={() => setShown((now) => (now === 'passing' ? '' : now))}
    >
      <button
        type="button"
        aria-describedby={id}
        onClick={() => setShown((now) => (now === 'kept' ? '' : 'kept'))}
        onFocus={({ currentTarget }) =>
          currentTarget.matches(':focus-visible') && setShown((now) => now || 'passing')
        }
        onBlur={() => setShown('')}
      >
        {children ?? word}
      </button>
      <span id={id} class="term-box" role="tooltip" popover="manual" ref={box}>
        {terms[word]}
      </span>
    </span>
  )
}

/** Shows it below a word, or above where there is more room, within the window. */
function showAt(box: HTMLElement, word: DOMRect): void {
  box.showPopover()
  const { width, height } = box.getBoundingClientRect()
  const { clientWidth, clientHeight } = document.documentElement
  const left = Math.max(gap, Math.min(word.left, clientWidth - width - gap))
  const isBelow = word.bottom + height < clientHeight || word.top < clientHeight - word.bottom
  box.style.left = `${left}px`
  box.style.top = `${isBelow ? word.bottom : word.top - height}px`
}

/** A text whose marked words explain themselves. */
export const Words = ({ text }: { text: string }) => (
  <>
    {partsOf(text).map((part, at) => {
      const word = at % 2 === 1 && termOf(part)
      return word ? (
        <Term key={at} word={word}>
          {part}
        </Term>
      ) : (
        part
      )
    })}
  </>
)
