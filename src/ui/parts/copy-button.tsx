import { useState } from 'preact/hooks'

interface CopyButtonProps {
  readonly text: string
  readonly label: string
  /** The id of the field that shows the text; without one the text itself is shown where the browser does not copy. */
  readonly field?: string
  readonly class?: string
}

/** How long the button shows the outcome. units: ms. */
const tellMs = 2000

/** Copies a text; where the browser does not permit it, selects the text in its field, so that the keyboard's own copy works. */
export function CopyButton({ text, label, field, class: className }: CopyButtonProps) {
  const [outcome, setOutcome] = useState('')
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text)
      setOutcome('Copied')
    } catch {
      if (!field) {
        prompt('Press Ctrl+C to copy', text)
        return
      }
      const shown = document.getElementById(field) as HTMLInputElement | HTMLTextAreaElement
      shown.focus()
      shown.select()
      setOutcome('Press Ctrl+C')
    }
    setTimeout(() => setOutcome(''), tellMs)
  }
  return (
    <button type="button" class={className} onClick={copy} aria-live="polite">
      {outcome || label}
    </button>
  )
}
