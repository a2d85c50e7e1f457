import { useState } from 'preact/hooks'
import { maxNameChars } from '../../peer/room/names.ts'
import { nameAskedKey, recall, remember } from '../parts/tab-memory.ts'
import type { Acts } from '../state/acts.ts'

interface NameAskProps {
  /** Of this tab now. */
  readonly name: string
  readonly onName: Acts['rename']
}

/** Asks once who sits at this tab; the others see the answer. */
export function NameAsk({ name, onName }: NameAskProps) {
  const [first] = useState(name)
  const [draft, setDraft] = useState('')
  const [isOver, setOver] = useState(recall(nameAskedKey) !== '')
  if (isOver || name !== first) return null
  const end = () => {
    remember(nameAskedKey, 'yes')
    setOver(true)
  }
  return (
    <form
      class="name-ask"
      onSubmit={(event) => {
        event.preventDefault()
        if (draft.trim()) onName(draft)
        end()
      }}
    >
      <label>
        Your name, as the others see it:
        <input
          value={draft}
          placeholder={name}
          maxLength={maxNameChars}
          autocomplete="nickname"
          onInput={({ currentTarget }) => setDraft(currentTarget.value)}
        />
      </label>
      <button type="submit" class="go">
        OK
      </button>
      <button type="button" onClick={end}>
        Skip
      </button>
    </form>
  )
}
