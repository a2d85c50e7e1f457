import { useLoaded } from '../parts/use-loaded.ts'
import { firstErrorOf, fittingBatch } from '../settings/check.ts'
import { settings } from '../settings/list.ts'
import type { Acts } from '../state/acts.ts'
import { canStart, checkedDraft, givenFacts } from '../state/room-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'

/** For `aria-describedby` of the button that it keeps from working. */
export const settingsErrorId = 'settings-error'

/** What the page's address and the form have without an effect, and what keeps the maker from starting: the first wrong setting, the way to its field, and where one number would do, that number. */
export function SettingsError({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  const { experiments, draft, lobby, address, run } = snapshot
  const { part } = useLoaded(
    'the address',
    () => import('../settings/address-notes.ts'),
    address !== '' || draft.lr !== '',
  )
  const { part: kernels } = useLoaded(
    'the kernels',
    () => import('../../kernels/named-variants.ts'),
    part?.namesVariants(address) ?? false,
  )
  if (!canStart(snapshot)) return null
  const ranks = lobby?.members.length
  const error = firstErrorOf(checkedDraft(snapshot))
  const texts = part
    ? [
        ...part.unusedIn(address, settings, ranks, kernels?.wrongVariants, run),
        ...part.uselessRate(draft.lr),
      ]
    : []
  const notes = texts.length > 0 && (
    <ul class="address-notes">
      {texts.map((note) => (
        <li key={note}>{note}</li>
      ))}
    </ul>
  )
  if (!error) return notes
  const { key, label } = error.setting
  const batch =
    key === 'batchSize' ? fittingBatch(experiments, draft, ranks, givenFacts(snapshot)) : null
  return (
    <>
      {notes}
      <div class="settings-error">
        <p id={settingsErrorId}>
          <strong>{label}</strong>: {error.text}.
        </p>
        <p class="acts">
          {batch !== null && (
            <button type="button" onClick={() => acts.set('batchSize', batch)}>
              Set it to {batch}
            </button>
          )}
          <button type="button" onClick={() => showField(key)}>
            Go to the field
          </button>
        </p>
      </div>
    </>
  )
}

/** Brings a setting's field into view and gives it the focus, out of whatever is folded around it. */
function showField(key: string): void {
  const field = document.getElementById(`setting-${key}`)
  if (!field) return
  for (let at = field.closest('details'); at; at = at.parentElement!.closest('details'))
    at.open = true
  field.scrollIntoView({ block: 'center' })
  field.focus({ preventScroll: true })
}
