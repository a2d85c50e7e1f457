import { useState } from 'preact/hooks'
import { maxNameChars } from '../../peer/room/names.ts'
import { PageTop } from '../parts/page-top.tsx'
import type { Acts } from '../state/acts.ts'
import type { Snapshot } from '../state/snapshot.ts'
import type { PageView } from './page-view.ts'

interface HeaderProps {
  snapshot: Snapshot
  acts: Acts
  /** Null where there is nothing to choose from. */
  view: PageView | null
  onView: (view: PageView) => void
}

const viewWords: Readonly<Record<PageView, readonly [words: string, title: string]>> = {
  show: ['Show', 'What the network learns, and who trains it'],
  lab: ['Lab', 'All settings and instruments'],
}

/** What this is, which view it has, and who this tab is. */
export function Header({ snapshot, acts, view, onView }: HeaderProps) {
  return (
    <PageTop tagline="One network, trained in many tabs">
      {view && (
        // biome-ignore lint/a11y/useSemanticElements: a fieldset is drawn as a form's
        <div class="views" role="group" aria-label="View">
          {(Object.keys(viewWords) as PageView[]).map((one) => (
            <button
              key={one}
              type="button"
              aria-pressed={one === view}
              title={viewWords[one][1]}
              onClick={() => onView(one)}
            >
              {viewWords[one][0]}
            </button>
          ))}
        </div>
      )}
      {snapshot.stage !== 'outside' && (
        // By its key, so that a name given elsewhere replaces the draft.
        <NameField key={snapshot.name} name={snapshot.name} acts={acts} />
      )}
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
