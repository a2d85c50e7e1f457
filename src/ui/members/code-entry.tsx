import { useState } from 'preact/hooks'
import { useLoaded } from '../parts/use-loaded.ts'

/** The way into another room, by its short code. */
export function CodeEntry() {
  const [isOpen, setOpen] = useState(false)
  const { part } = useLoaded('the short code', () => import('./short-code.tsx'), isOpen)
  if (part) return <part.EnterCode />
  return (
    <button type="button" onClick={() => setOpen(true)}>
      Enter a code
    </button>
  )
}
