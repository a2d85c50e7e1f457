import type { ComponentChildren } from 'preact'
import { Panel } from '../../src/ui/parts/panel.tsx'
import { ShareLink } from '../../src/ui/parts/share-link.tsx'
import { Swatch } from '../../src/ui/run/swatch.tsx'
import {
  type CheckedDraft,
  type Draft,
  dataOf,
  experiments,
  namesIn,
  ranges,
  withSetting,
  withStrategy,
} from './settings.ts'
import { slotOf, strategies } from './strategies.ts'

interface ControlsProps {
  readonly draft: Draft
  readonly errors: CheckedDraft['errors']
  readonly link: string
  /** While strategies train nothing changes. */
  readonly isLocked: boolean
  readonly onChange: (draft: Draft) => void
}

/** What is compared, and the link that has it. */
export function Controls({ draft, errors, link, isLocked, onChange }: ControlsProps) {
  const set = (key: keyof Draft, value: string) => onChange(withSetting(draft, key, value))
  const chosen = namesIn(draft.strategies)
  const experimentChoices = Object.entries(experiments).map(
    ([name, { words }]): [string, string] => [name, words],
  )
  const choice = (key: 'experiment' | 'data', label: string, choices: [string, string][]) => (
    <Field id={key} label={label} error={errors[key]}>
      <select
        id={key}
        value={draft[key]}
        aria-invalid={errors[key] !== undefined}
        aria-describedby={errors[key] && `${key}-error`}
        onChange={(event) => set(key, event.currentTarget.value)}
      >
        {/* What an address names and nobody has. */}
        {!choices.some(([name]) => name === draft[key]) && (
          <option value={draft[key]}>{draft[key]}</option>
        )}
        {choices.map(([name, words]) => (
          <option key={name} value={name}>
            {words}
          </option>
        ))}
      </select>
    </Field>
  )
  const number = (key: 'batch' | 'steps' | 'seed', label: string, unit: string) => (
    <Field id={key} label={label} error={errors[key]}>
      <input
        id={key}
        type="text"
        inputMode="numeric"
        autoComplete="off"
        value={draft[key]}
        title={`${ranges[key].min} to ${ranges[key].max}`}
        aria-invalid={errors[key] !== undefined}
        aria-describedby={errors[key] && `${key}-error`}
        onInput={(event) => set(key, event.currentTarget.value)}
      />
      {unit && <span class="unit">{unit}</span>}
    </Field>
  )
  return (
    <Panel id="settings" title="What to compare">
      <div class="settings">
        <fieldset disabled={isLocked}>
          <legend class="unseen">Settings</legend>
          {choice('experiment', 'Experiment', experimentChoices)}
          {dataOf(draft.experiment).length > 1 && choice('data', 'Data', dataOf(draft.experiment))}
          <fieldset class="strategies" aria-describedby={errors.strategies && 'strategies-error'}>
            <legend>Strategies</legend>
            {strategies.map((strategy) => (
              <label key={strategy.name}>
                <input
                  type="checkbox"
                  checked={chosen.includes(strategy.name)}
                  onChange={(event) =>
                    onChange(withStrategy(draft, strategy.name, event.currentTarget.checked))
                  }
                />
                <Swatch slot={slotOf(strategy)} />
                <span>{strategy.words}</span>
              </label>
            ))}
            {errors.strategies && (
              <p class="error" id="strategies-error">
                {errors.strategies}
              </p>
            )}
          </fieldset>
          {number('batch', 'Global batch', 'samples')}
          {number('steps', 'Steps', 'of one batch')}
          {number('seed', 'Seed', '')}
        </fieldset>
        <ShareLink label="This comparison's link" link={link} />
      </div>
    </Panel>
  )
}

interface FieldProps {
  readonly id: string
  readonly label: string
  readonly error: string | undefined
  readonly children: ComponentChildren
}

function Field({ id, label, error, children }: FieldProps) {
  return (
    <div class="field" data-wrong={error !== undefined}>
      <label for={id}>{label}</label>
      <div class="control">{children}</div>
      {error && (
        <p class="error" id={`${id}-error`}>
          {error}
        </p>
      )}
    </div>
  )
}
