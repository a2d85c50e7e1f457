import type { RefObject } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'

/** Returns whether a part of the element that the ref is given to can be seen: what is out of sight need not be asked for. */
export function useInView<Part extends Element>(): [
  ref: RefObject<Part | null>,
  isInView: boolean,
] {
  const ref = useRef<Part>(null)
  const [isInView, setInView] = useState(false)
  useEffect(() => {
    // A little earlier than it is seen, so that it is there by then.
    const observer = new IntersectionObserver(
      (entries) => setInView(entries.at(-1)?.isIntersecting ?? false),
      { rootMargin: '25%' },
    )
    observer.observe(ref.current!)
    return () => observer.disconnect()
  }, [])
  return [ref, isInView]
}
