import type { ComponentChildren } from 'preact'
import './demo.css'

export interface ChoiceOf<Value extends string> {
  readonly value: Value
  readonly words: ComponentChildren
}

interface ChoicesProps<Value extends string> {
  label: string
  /** The setting that it sets. */
  of?: string
  choices: readonly ChoiceOf<Value>[]
  value: string | undefined
  isFixed?: boolean
  onChoose: (value: Value) => void
}

/** A row of buttons of which one is pressed. */
export function Choices<Value extends string>({
  label,
  of,
  choices,
  value,
  isFixed = false,
  onChoose,
}: ChoicesProps<Value>) {
  return (
    <fieldset class="choices" id={of && `setting-${of}`} tabIndex={of ? -1 : undefined}>
      <legend>{label}</legend>
      <div>
        {choices.map((choice) => (
          <button
            type="button"
            key={choice.value}
            aria-pressed={choice.value === value}
            disabled={isFixed}
            onClick={() => onChoose(choice.value)}
          >
            {choice.words}
          </button>
        ))}
      </div>
    </fieldset>
  )
}
