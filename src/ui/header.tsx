import { useState } from 'preact/hooks'
import { limits } from '../peer/messages.ts'
import type { Acts } from './acts.ts'
import type { Snapshot } from './state/snapshot.ts'

/** What this is, and who this tab is. */
export function Header({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  return (
    <header class="top">
      <h1>
        <Mark />
        Tabring
      </h1>
      <p class="tagline">One network, trained in many tabs</p>
      {snapshot.stage !== 'outside' && <NameField name={snapshot.name} acts={acts} />}
    </header>
  )
}

function NameField({ name, acts }: { name: string; acts: Acts }) {
  const [draft, setDraft] = useState(name)
  return (
    <label class="name">
      <span>This tab</span>
      <input
        name="name"
        value={draft}
        maxLength={limits.nameChars}
        autoComplete="off"
        spellcheck={false}
        onInput={(event) => setDraft(event.currentTarget.value)}
        onBlur={() => {
          if (draft.trim()) acts.rename(draft)
          else setDraft(name)
        }}
        onKeyDown={(event) => {
          if (event.key === 'Enter') event.currentTarget.blur()
        }}
      />
    </label>
  )
}

/** Three ranks on a ring. */
export function Mark() {
  return (
    <svg class="mark" viewBox="0 0 24 24" aria-hidden="true">
      <circle cx="12" cy="12" r="8" />
      <circle class="dot" cx="12" cy="4" r="3" />
      <circle class="dot" cx="5.1" cy="16" r="3" />
      <circle class="dot" cx="18.9" cy="16" r="3" />
    </svg>
  )
}
