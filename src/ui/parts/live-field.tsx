import { useEffect, useState } from 'preact/hooks'

interface LiveFieldProps {
  id: string
  label: string
  /** The value that holds. */
  value: string
  placeholder?: string | undefined
  unit?: string | undefined
  /** The step from which it holds, and who asked for it where that is known; undefined where it has not changed. */
  since?: { readonly step: number; readonly by: string | null } | undefined
  isFixed: boolean
  /** Resolves when the text holds or is refused. */
  onChange: (text: string) => Promise<void> | void
}

/** A number that acts once it is entered: before a run, and while it trains. */
export function LiveField(props: LiveFieldProps) {
  const { id, label, value, placeholder, unit, since, isFixed, onChange } = props
  /** Until it holds or is refused: then the value that holds is there again. */
  const [text, setText] = useState<string | null>(null)
  useEffect(() => setText(null), [value, since])
  const enter = async (entered: string) => {
    await onChange(entered)
    setText((now) => (now === entered ? null : now))
  }
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
          onChange={({ currentTarget }) => void enter(currentTarget.value)}
        />
        {unit && <span class="unit">{unit}</span>}
      </div>
      <p id={noteId} class="hint" role="status">
        {since === undefined
          ? '\u00a0'
          : `from step ${since.step}${since.by === null ? '' : `, by ${since.by}`}`}
      </p>
    </div>
  )
}
