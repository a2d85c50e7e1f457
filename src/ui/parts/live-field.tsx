import { useEffect, useState } from 'preact/hooks'

interface LiveFieldProps {
  id: string
  label: string
  /** The value that holds. */
  value: string
  placeholder?: string | undefined
  unit?: string | undefined
  /** The step from which it holds, where it has changed. */
  since?: number | undefined
  isFixed: boolean
  onChange: (text: string) => void
}

/** A number that acts once it is entered: before a run, and while it trains. */
export function LiveField(props: LiveFieldProps) {
  const { id, label, value, placeholder, unit, since, isFixed, onChange } = props
  /** Until the value that was entered holds. */
  const [text, setText] = useState<string | null>(null)
  useEffect(() => setText(null), [value, since])
  const noteId = `${id}-note`
  return (
    <div class="field live">
      <label for={id}>{label}</label>
      <div class="control">
        <input
          id={id}
          type="text"
          inputMode="decimal"
          autoComplete="off"
          disabled={isFixed}
          aria-describedby={noteId}
          placeholder={placeholder}
          value={text ?? value}
          onInput={({ currentTarget }) => setText(currentTarget.value)}
          onChange={({ currentTarget }) => onChange(currentTarget.value)}
        />
        {unit && <span class="unit">{unit}</span>}
      </div>
      <p id={noteId} class="hint" role="status">
        {since === undefined ? '\u00a0' : `from step ${since}`}
      </p>
    </div>
  )
}
