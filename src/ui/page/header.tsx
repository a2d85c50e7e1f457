import { useState } from 'preact/hooks'
import { maxNameChars } from '../../peer/room/names.ts'
import { PageTop } from '../parts/page-top.tsx'
import type { Acts } from '../state/acts.ts'
import type { Snapshot } from '../state/snapshot.ts'

/** What this is, and who this tab is. */
export function Header({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  return (
    <PageTop tagline="One network, trained in many tabs">
      {snapshot.stage !== 'outside' && <NameField name={snapshot.name} acts={acts} />}
    </PageTop>
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
        maxLength={maxNameChars}
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
