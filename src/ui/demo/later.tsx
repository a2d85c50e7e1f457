import type { ComponentChildren, ComponentType } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { useLoaded } from '../parts/use-loaded.ts'
import { useInView } from './use-in-view.ts'

interface LaterProps<Props> {
  /** Names the part for people. */
  readonly what: string
  readonly load: () => Promise<ComponentType<Props>>
  readonly children: (Part: ComponentType<Props>) => ComponentChildren
}

/** A part at the end of a page, loaded once a reader is near it. */
export function Later<Props>({ what, load, children }: LaterProps<Props>) {
  const [place, isInView] = useInView<HTMLDivElement>()
  const [isWanted, setWanted] = useState(false)
  useEffect(() => {
    if (isInView) setWanted(true)
  }, [isInView])
  const { part: Part, failure } = useLoaded(what, load, isWanted)
  return (
    <div ref={place}>
      {Part && children(Part)}
      {failure && <p role="alert">{failure}</p>}
    </div>
  )
}
