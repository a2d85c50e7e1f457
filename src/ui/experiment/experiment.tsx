import type { LiveKey, TrainConfig } from '../../trainer/settings/config.ts'
import { CopyButton } from '../parts/copy-button.tsx'
import { LiveField } from '../parts/live-field.tsx'
import { Named } from '../parts/named.tsx'
import { Panel } from '../parts/panel.tsx'
import { describeSetting, ranksOf, transportOf } from '../settings/draft.ts'
import {
  choicesOf,
  isOfTab,
  metaOfDraft,
  placeholderOf,
  type Setting,
  settings,
} from '../settings/list.ts'
import type { Acts } from '../state/acts.ts'
import { huesByName } from '../state/hues.ts'
import {
  canChange,
  checkedDraft,
  isMaker,
  isRoomOn,
  makerName,
  settingsOfRoom,
} from '../state/room-facts.ts'
import { isRunning } from '../state/run-facts.ts'
import type { Snapshot } from '../state/snapshot.ts'
import { experimentLink } from './experiment-link.ts'

/** The settings: a form for the maker between runs, a table for everyone else and during a run. */
export function Experiment({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  const { lobby } = snapshot
  if (lobby && isMaker(snapshot) && !isRunning(snapshot)) {
    return <ExperimentForm snapshot={snapshot} acts={acts} />
  }
  const config = settingsOfRoom(snapshot)
  const isChoosing = lobby && !isMaker(snapshot) && !isRunning(snapshot) && !isRoomOn(snapshot)
  return (
    <Panel
      id="experiment"
      title="Experiment"
      aside={config && <LinkButton snapshot={snapshot} />}
      folds={config ? { words: inShort(snapshot, config) } : undefined}
    >
      {config ? (
        <>
          {isChoosing && (
            <p class="quiet">
              <Named
                text={`${makerName(snapshot)} is choosing the settings. So far:`}
                hues={huesByName(snapshot)}
              />
            </p>
          )}
          <ExperimentTable snapshot={snapshot} acts={acts} config={config} />
        </>
      ) : (
        <p class="quiet">
          {isRunning(snapshot)
            ? 'The settings appear here once all ranks are linked.'
            : lobby && !isMaker(snapshot)
              ? `${makerName(snapshot)} chooses the settings. They appear here once they are known.`
              : 'The settings appear here once this tab is in the room.'}
        </p>
      )}
    </Panel>
  )
}

/** The settings that people ask for first. */
function inShort(
  { experiments }: Snapshot,
  { demo, model, batchSize }: Partial<TrainConfig>,
): string {
  const { title } = metaOfDraft(experiments, { demo: demo ?? '' })
  return [title, model, batchSize && `batches of ${batchSize}`].filter(Boolean).join(', ')
}

/** The settings as an address: also what this page's own address has, but for the room. */
function LinkButton({ snapshot }: { snapshot: Snapshot }) {
  return <CopyButton class="small" text={experimentLink(snapshot)} label="Copy experiment link" />
}

/** The settings that the demo's view has no controls for. */
function settingsOf(
  experiments: Snapshot['experiments'],
  demo: Pick<TrainConfig, 'demo'>,
): readonly Setting[] {
  const { controls = [] } = metaOfDraft(experiments, demo)
  return settings.filter(({ key }) => isOfTab(key) || !controls.includes(key))
}

interface TableProps {
  snapshot: Snapshot
  acts: Acts
  config: TrainConfig
}

/** The settings of a run; who may change some has fields for these. */
function ExperimentTable({ snapshot, acts, config }: TableProps) {
  const { experiments, run } = snapshot
  const live = canChange(snapshot)
    ? settingsOf(experiments, config).filter(({ isLive }) => isLive)
    : []
  return (
    <>
      {live.map(({ key, label, unit, ...row }) => (
        <LiveField
          key={key}
          id={`setting-${key}`}
          label={label}
          value={String(config[key as LiveKey] ?? '')}
          placeholder={placeholderOf(
            { key, label, ...row },
            config,
            experiments.metaOf(config.demo),
          )}
          unit={unit}
          since={run?.changed[key as LiveKey]}
          isFixed={false}
          onChange={(text) => acts.set(key, text)}
        />
      ))}
      {live.length > 0 && <p class="quiet">What follows needs a new start: stop the run first.</p>}
      <dl class="facts">
        {settings
          .filter((setting) => !isOfTab(setting.key) && !live.includes(setting))
          .map((setting) => (
            <div key={setting.key}>
              <dt>{setting.label}</dt>
              <dd>{describeSetting(experiments, setting, config)}</dd>
            </div>
          ))}
      </dl>
    </>
  )
}

function ExperimentForm({ snapshot, acts }: { snapshot: Snapshot; acts: Acts }) {
  const { draft, transport, ranks, stage, hasRelay } = snapshot
  const { errors, known } = checkedDraft(snapshot)
  const fields = (isBasic: boolean) =>
    settingsOf(snapshot.experiments, draft)
      .filter((setting) => (setting.isBasic ?? false) === isBasic)
      .map((setting) => (
        <Field
          key={setting.key}
          setting={setting}
          snapshot={snapshot}
          error={errors[setting.key]}
          onChange={(value) => acts.set(setting.key, value)}
        />
      ))
  const hasHiddenError = settings.some(({ key, isBasic }) => !isBasic && errors[key])
  return (
    <Panel
      id="experiment"
      title="Experiment"
      aside={<LinkButton snapshot={snapshot} />}
      folds={{ words: inShort(snapshot, known), mustOpen: Object.keys(errors).length > 0 }}
    >
      <form
        class="settings"
        noValidate
        onSubmit={(event) => {
          event.preventDefault()
          acts.start()
        }}
      >
        {fields(true)}
        <details open={hasHiddenError || undefined}>
          <summary>More settings</summary>
          {fields(false)}
          {transportOf(draft) === 'fallback' && stage === 'inside' && !hasRelay && (
            <p class="quiet">
              This server does not relay data, so links use only WebRTC and ports. To relay, start
              it with --relay.
            </p>
          )}
          {(transportOf(draft) !== transport || ranksOf(draft) !== ranks) && (
            <p class="quiet">
              Links and ranks are fixed when a tab joins.{' '}
              <button type="button" onClick={acts.reenter}>
                Rejoin with these
              </button>
            </p>
          )}
        </details>
        <button type="submit" class="unseen" tabIndex={-1} aria-hidden="true">
          Start
        </button>
      </form>
    </Panel>
  )
}

interface FieldProps {
  setting: Setting
  snapshot: Snapshot
  error: string | undefined
  onChange: (value: string) => void
}

function Field({ setting, snapshot, error, onChange }: FieldProps) {
  const { key, kind, label, unit } = setting
  const id = `setting-${key}`
  const noteId = `${id}-note`
  // What an address is matters once one is asked for.
  const isAsked = kind === 'data' && isAddress(snapshot)
  const hint = isAsked ? metaOf(snapshot).address?.hint : setting.hint
  const note = error ?? hint
  return (
    <div class="field" data-wrong={error !== undefined}>
      <label for={id}>{label}</label>
      <div class="control">
        <Control
          setting={setting}
          snapshot={snapshot}
          id={id}
          noteId={note && noteId}
          error={error}
          onChange={onChange}
        />
        {unit && <span class="unit">{unit}</span>}
      </div>
      {note && (
        <p id={noteId} class={error ? 'error' : 'hint'} role={error ? 'alert' : undefined}>
          {note}
        </p>
      )}
    </div>
  )
}

/** In the list of data; no demo's own set is called so. */
const addressChoice = 'address'

/** Returns whether the data of a draft is an address to read it from, and not one of the demo's choices. */
const isAddress = (snapshot: Snapshot): boolean =>
  Object.hasOwn(metaOf(snapshot), 'address') &&
  !dataChoices(snapshot).some(([name]) => name === snapshot.draft.data)

const dataChoices = ({ experiments, draft }: Snapshot) =>
  choicesOf(experiments, { key: 'data' }, draft)

const metaOf = ({ experiments, draft }: Snapshot) => metaOfDraft(experiments, draft)

interface ControlProps extends FieldProps {
  id: string
  noteId: string | undefined
}

function Control({ setting, snapshot, id, noteId, error, onChange }: ControlProps) {
  const { key, kind } = setting
  const { experiments, draft, server } = snapshot
  const choices = choicesOf(experiments, setting, draft)
  const value = draft[key]
  const common = {
    id,
    name: key,
    'aria-describedby': noteId,
    'aria-invalid': error !== undefined,
  }
  switch (kind) {
    case 'choice':
      return (
        <select {...common} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
          {choices.map(([choice, words]) => (
            <option key={choice} value={choice}>
              {words}
            </option>
          ))}
          {!choices.some(([choice]) => choice === value) && <option value={value}>{value}</option>}
        </select>
      )
    case 'switch':
      return (
        <input
          {...common}
          type="checkbox"
          checked={value === 'true' || value === '1'}
          onChange={(event) => onChange(String(event.currentTarget.checked))}
        />
      )
    case 'number':
      return (
        <input
          {...common}
          type="text"
          inputMode="decimal"
          autoComplete="off"
          value={value}
          placeholder={placeholderOf(setting, draft, metaOf(snapshot))}
          onInput={(event) => onChange(event.currentTarget.value)}
        />
      )
    case 'data': {
      const { address } = metaOf(snapshot)
      const asked = isAddress(snapshot)
      return (
        <>
          <select
            {...common}
            value={asked ? addressChoice : value}
            onChange={({ currentTarget: { value: chosen } }) =>
              onChange(chosen === addressChoice ? (server?.data ?? '') : chosen)
            }
          >
            {choices.map(([choice, words]) => (
              <option key={choice} value={choice}>
                {words}
              </option>
            ))}
            {address && <option value={addressChoice}>{address.words}</option>}
          </select>
          {asked && (
            <input
              type="text"
              aria-label="Address of the data"
              placeholder="/data/"
              value={value}
              onInput={(event) => onChange(event.currentTarget.value)}
            />
          )}
        </>
      )
    }
  }
}
