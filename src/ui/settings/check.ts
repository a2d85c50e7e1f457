import * as v from 'valibot'
import { givenData, type TrainConfig, trainConfigSchema } from '../../trainer/settings/config.ts'
import {
  conflictsIn,
  type Experiments,
  orList,
  refusal,
} from '../../trainer/settings/experiments.ts'
import { ranksNeeded } from '../../trainer/settings/parallel.ts'
import { maxInBatch } from '../../trainer/settings/table.ts'
import { defaultDraftOf, ranksOf } from './draft.ts'
import {
  choicesOf,
  type Draft,
  isOfTab,
  maxRanks,
  metaOfDraft,
  type Setting,
  type SettingKey,
  settings,
} from './list.ts'

export interface CheckedDraft {
  /** Null while there are errors. */
  readonly config: Partial<TrainConfig> | null
  /** The settings without those that cannot be read. */
  readonly known: Partial<TrainConfig>
  readonly errors: Readonly<Partial<Record<SettingKey, string>>>
}

/** What a tab has of the data that a person gave. */
export interface GivenFacts {
  readonly isThere: boolean
  /** Undefined where only the ranks find out. */
  readonly samples?: number
  /** The page's address had some that cannot be read. */
  readonly isDamaged?: boolean
}

/**
 * Judges each field by the schema of the settings, by the ranks that would take part, where they are known, and by the data that this tab
 * has to give.
 */
export function checkDraft(
  experiments: Experiments,
  draft: Draft,
  worldSize?: number,
  given: GivenFacts = { isThere: true },
): CheckedDraft {
  const errors: Partial<Record<SettingKey, string>> = {}
  const config: Record<string, unknown> = {}
  const meta = metaOfDraft(experiments, draft)
  if (!experiments.has(draft.demo))
    errors.demo = correction('Choose', orList(Object.keys(experiments.metas)), draft.demo)
  for (const setting of settings) {
    const { key } = setting
    if (key === 'ranks') {
      const isWrong = draft.ranks !== String(ranksOf(draft))
      if (isWrong) errors.ranks = correction('Enter', `0 to ${maxRanks}`, draft.ranks)
      continue
    }
    const value = fromText(setting, draft[key])
    // An empty field has the demo's default.
    if (value === undefined && key !== 'model') continue
    const expected = refusal(meta, key, value)
    if (expected && value !== '') {
      errors[key] = correction('Choose', expected, draft[key])
      continue
    }
    const isWord = /^[^/:]+$/.test(draft.data) && draft.data !== givenData
    if (key === 'data' && isWord && !Object.hasOwn(meta.data, draft.data)) {
      const names = [...Object.keys(meta.data), 'an address with a slash']
      errors.data = correction('Choose', orList(names), draft.data)
      continue
    }
    if (key === 'resume' && !/^(latest|best|.+\.safetensors)$/.test(draft.resume)) {
      errors.resume = correction('Choose', 'latest, best or a checkpoint', draft.resume)
      continue
    }
    const result = v.safeParse(setting.schema, value)
    if (!result.success) errors[key] = wordsOf(experiments, setting, draft, result.issues[0])
    else if (!isOfTab(key)) config[key] = result.output
  }
  const { has, defaultsOf } = experiments
  const defaults = v.parse(trainConfigSchema, defaultsOf(has(draft.demo) ? draft.demo : undefined))
  const whole: TrainConfig = { ...defaults, ...config }
  for (const { key, beside } of conflictsIn(whole)) errors[key] ??= `Not available ${beside.inForm}`
  const needed = worldSize !== undefined && ranksNeeded(whole.parallel, worldSize)
  if (needed)
    errors.parallel ??= `Open or close tabs, or choose another: ${whole.parallel} needs ${needed}, not ${worldSize}`
  if (!errors.batchSize && worldSize !== undefined && Number(config.batchSize) < worldSize) {
    errors.batchSize = correction(
      'Enter',
      `at least ${worldSize}, one sample for each rank`,
      draft.batchSize,
    )
  }
  const samples = samplesOf(experiments, draft, given)
  // Who chose none gets all that there are in each step.
  const isChosen = draft.batchSize.trim() !== defaultDraftOf(experiments, draft.demo).batchSize
  if (!errors.batchSize && isChosen && Number(config.batchSize) > samples) {
    errors.batchSize = correction(
      'Enter',
      `at most ${samples}, the number of training samples`,
      draft.batchSize,
    )
  }
  if (config.data === givenData && !given.isThere)
    errors.data = given.isDamaged
      ? `The data in this link is damaged: copy the whole link again, or ${meta.given?.ask}`
      : `No data yet: ${meta.given?.ask}`
  const known = config as Partial<TrainConfig>
  return { config: Object.keys(errors).length > 0 ? null : known, known, errors }
}

/** The first setting that is wrong, in the form's order. */
export function firstErrorOf({
  errors,
}: Pick<CheckedDraft, 'errors'>): { readonly setting: Setting; readonly text: string } | null {
  for (const setting of settings) {
    const text = errors[setting.key]
    if (text !== undefined) return { setting, text }
  }
  return null
}

/** How many training samples the data of a draft has; infinite where that is not known before the run. */
function samplesOf(
  experiments: Experiments,
  draft: Pick<Draft, 'demo' | 'data'>,
  given: GivenFacts,
): number {
  const { samples } = metaOfDraft(experiments, draft)
  const data = draft.data.trim()
  const known = data === givenData ? given.samples : Object.hasOwn(samples, data) && samples[data]
  return known || Number.POSITIVE_INFINITY
}

/**
 * For a batch that is smaller than the room, the next size that gives each rank as many samples; for one that is too large, the largest. Null
 * where that would not do either.
 */
export function fittingBatch(
  experiments: Experiments,
  draft: Draft,
  worldSize = 1,
  given?: GivenFacts,
): string | null {
  const size = Number(draft.batchSize)
  const max = Math.min(maxInBatch, samplesOf(experiments, draft, given ?? { isThere: true }))
  if (!Number.isSafeInteger(size) || size < 1) return null
  if (size >= worldSize && size <= max) return null
  const batchSize = String(size > max ? max : worldSize * Math.ceil(size / worldSize))
  const { errors } = checkDraft(experiments, { ...draft, batchSize }, worldSize, given)
  return errors.batchSize ? null : batchSize
}

function fromText({ kind }: Setting, text: string): unknown {
  const trimmed = text.trim()
  if (trimmed === '' && kind !== 'data') return undefined
  if (kind === 'number') return Number(trimmed)
  if (kind !== 'switch') return trimmed
  return (
    trimmed === 'true' || trimmed === '1' || (trimmed !== 'false' && trimmed !== '0' && trimmed)
  )
}

function wordsOf(
  experiments: Experiments,
  setting: Setting,
  draft: Draft,
  issue: v.BaseIssue<unknown>,
): string {
  const { requirement, type } = issue as { requirement?: unknown; type: string }
  const expected =
    setting.kind === 'data'
      ? 'an address'
      : setting.kind === 'switch'
        ? 'true or false'
        : type === 'min_value'
          ? `${String(requirement)} or more`
          : type === 'max_value'
            ? `at most ${String(requirement)}`
            : type === 'gt_value'
              ? `more than ${String(requirement)}`
              : type === 'safe_integer'
                ? 'a whole number'
                : setting.kind === 'number'
                  ? 'a number'
                  : type === 'check'
                    ? issue.message
                    : orList(choicesOf(experiments, setting, draft).map(([value]) => value))
  const isChosen = setting.kind === 'choice' || setting.kind === 'switch'
  return correction(isChosen ? 'Choose' : 'Enter', expected, draft[setting.key])
}

/** What to enter instead of a text; the page adds the period. */
export function correction(verb: 'Enter' | 'Choose', expected: string, text: string): string {
  const given = text.trim().slice(0, 40)
  if (given === '') return `${verb} ${expected}`
  return `${verb} ${expected}, not ${Number.isNaN(Number(given)) ? `"${given}"` : given}`
}
