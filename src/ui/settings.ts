import * as v from 'valibot'
import { defaultsOf, hasSetting, metaOf, refusal, withAlone } from '../../demos/experiment.ts'
import { isDemo, metas } from '../../demos/metas.ts'
import { type TransportChoice, transportChoices } from '../peer/messages.ts'
import { givenData, type TrainConfig, trainConfigSchema } from '../train/config.ts'
import { type DemoMeta, learningRateOf } from '../train/demo-meta.ts'
import { switchParameters } from '../util/switches.ts'

/**
 * The experiment as a person sets it: one list, which is the form, the table that the others read, and the address of the page.
 *
 * A draft holds texts, as typed; the schema that every rank checks the settings with judges them one by one.
 */
export type ConfigKey = keyof TrainConfig
export type SettingKey = ConfigKey | TabKey
/** What a tab chooses for itself when it enters the room. */
export type TabKey = 'transport' | 'ranks'
export type Draft = Readonly<Record<SettingKey, string>>

export type Choice = readonly [value: string, words: string]

export interface Setting {
  readonly key: SettingKey
  readonly label: string
  /** What the number means, or what to think of. */
  readonly hint?: string
  readonly kind: 'choice' | 'number' | 'data' | 'switch'
  /** Value and words, for a choice that all demos have alike; `choicesOf` gives those of every setting. */
  readonly choices?: readonly Choice[]
  /** Shown in an empty field: what holds then. */
  readonly placeholder?: (draft: Draft) => string
  readonly unit?: string
  /** In the closed part of the form. */
  readonly isAdvanced?: boolean
}

export const settings: readonly Setting[] = [
  {
    key: 'demo',
    label: 'Experiment',
    kind: 'choice',
    choices: Object.entries(metas).map(([name, { title }]) => [name, title]),
  },
  { key: 'model', label: 'Model', kind: 'choice' },
  { key: 'data', label: 'Data', kind: 'data' },
  { key: 'epochs', label: 'Epochs', kind: 'number', hint: 'Passes over the training data.' },
  {
    key: 'batchSize',
    label: 'Batch size',
    kind: 'number',
    unit: 'samples',
    hint: 'Global: each step cuts it into one share a rank.',
  },
  {
    key: 'optimizer',
    label: 'Optimizer',
    kind: 'choice',
    choices: [
      ['adamw', 'AdamW'],
      ['sgd', 'SGD, momentum 0.9'],
    ],
  },
  {
    key: 'lr',
    label: 'Learning rate',
    kind: 'number',
    placeholder: (draft) => String(metaOfDraft(draft).models[draft.model]?.lr ?? ''),
  },
  {
    key: 'strategy',
    label: 'Exchange',
    kind: 'choice',
    choices: [
      ['ddp', 'gradients are averaged over all tabs'],
      ['alone', 'switched off: each tab trains a model of its own'],
    ],
  },
  {
    key: 'partition',
    label: 'Each tab draws from',
    kind: 'choice',
    choices: [
      ['shuffled', 'all samples, shuffled'],
      ['own-slice', 'a part of its own'],
    ],
    hint: 'A part of its own: contiguous, in the order of the data, so that tabs see different samples.',
  },
  {
    key: 'seed',
    label: 'Seed',
    kind: 'number',
    hint: 'Equal seeds give equal bits on one kind of adapter; with 3 tabs and more, at an equal bucket cap.',
  },
  {
    key: 'precision',
    label: 'Precision',
    kind: 'choice',
    choices: [
      ['float32', 'float32'],
      ['float16', 'float16 products, scaled loss'],
    ],
    isAdvanced: true,
  },
  {
    key: 'evaluateEvery',
    label: 'Look at held-out samples every',
    kind: 'number',
    unit: 'steps',
    placeholder: () => 'epoch',
    hint: "Also at each epoch's end.",
    isAdvanced: true,
  },
  {
    key: 'steps',
    label: 'Steps',
    kind: 'number',
    placeholder: () => 'whole epochs',
    hint: 'Ends the run after so many steps.',
    isAdvanced: true,
  },
  {
    key: 'bucketCapMb',
    label: 'Bucket cap',
    kind: 'number',
    unit: 'MB',
    placeholder: () => 'as links allow',
    hint: 'Gradients travel in buckets of about this size; measured unless given.',
    isAdvanced: true,
  },
  {
    key: 'hashEvery',
    label: 'Compare replicas every',
    kind: 'number',
    unit: 'steps',
    hint: 'Hashes of what each GPU holds; a difference ends the run.',
    isAdvanced: true,
  },
  {
    key: 'checkpointEvery',
    label: 'Checkpoint every',
    kind: 'number',
    unit: 'steps',
    placeholder: () => 'none',
    hint: "Also at each epoch's end; 0: then alone. In this browser's private files, of rank 0. Those of an earlier run of the same model give way.",
    isAdvanced: true,
  },
  {
    key: 'resume',
    label: 'Go on from',
    kind: 'choice',
    choices: [
      ['', 'the beginning'],
      ['latest', "this browser's latest checkpoint"],
      ['best', 'its best checkpoint'],
    ],
    placeholder: () => 'the beginning',
    hint: 'As saved by rank 0 in this browser, with the settings that it had then.',
    isAdvanced: true,
  },
  {
    key: 'tune',
    label: 'Measure kernels first',
    kind: 'switch',
    hint: 'Rank 0 times the kernel variants instead of taking the fixed table.',
    isAdvanced: true,
  },
  {
    key: 'transport',
    label: 'Links',
    kind: 'choice',
    choices: [
      ['auto', 'automatic: ports in one browser, else WebRTC'],
      ['fallback', 'automatic, else through the server, sealed (it must have --relay)'],
      ['webrtc', 'WebRTC data channels only'],
      ['port', 'MessagePorts only (one browser)'],
      ['relay', 'through the server, sealed (it must have --relay)'],
    ],
    hint: 'How this tab joins the others.',
    isAdvanced: true,
  },
  {
    key: 'ranks',
    label: 'Ranks in this tab',
    kind: 'number',
    hint: 'Each has a compute worker of its own; they share the GPU. 1 to 8.',
    isAdvanced: true,
  },
]

/** The demo of a draft; the first one where it names none. */
export const metaOfDraft = ({ demo }: Pick<Draft, 'demo'>): DemoMeta =>
  metaOf(isDemo(demo) ? demo : undefined)

/** The settings that the draft's demo has, in the list's order. */
export const settingsOf = (draft: Pick<Draft, 'demo'>): readonly Setting[] => {
  const meta = metaOfDraft(draft)
  return settings.filter(({ key }) => isOfTab(key) || hasSetting(meta, key))
}

/** Value and words of what a person may choose; for data the demo's own sets, and `given` where a person may give some. */
export function choicesOf(
  { key, choices = [] }: Setting,
  demo: Pick<Draft, 'demo'>,
): readonly Choice[] {
  const { models, data, given } = metaOfDraft(demo)
  if (key === 'model') return Object.entries(models).map(([name, { words }]) => [name, words])
  if (key !== 'data') return choices
  const own = Object.entries(data)
  return given ? [...own, [givenData, `given: ${given.words}`]] : own
}

/** The settings of a demo when nothing was chosen, as texts. */
export function defaultDraftOf(demo: string): Draft {
  const defaults: Record<string, unknown> = v.parse(
    trainConfigSchema,
    defaultsOf(isDemo(demo) ? demo : undefined),
  )
  const texts = settings.map(({ key }) => [key, toText(defaults[key])])
  return { ...Object.fromEntries(texts), demo, transport: 'auto', ranks: '1' } as Draft
}

/** Those of the first demo. */
export const defaultDraft: Draft = defaultDraftOf(Object.keys(metas)[0])

function toText(value: unknown): string {
  return value === undefined ? '' : String(value)
}

/** What another demo keeps of a draft. */
const keptKeys = ['seed', 'strategy', 'partition', 'transport', 'ranks'] as const

/** The draft after a person has set a field. Another demo brings its own settings. */
export function withSetting(draft: Draft, key: SettingKey, value: string): Draft {
  if (key !== 'demo') return { ...draft, [key]: value }
  const kept = keptKeys.map((kept) => [kept, draft[kept]])
  return { ...defaultDraftOf(value), ...Object.fromEntries(kept) }
}

/** Reads a query like `?model=cnn&epochs=5`; what it does not name keeps its default. Wrong values stay, and are shown as errors. */
export function draftFromQuery(query: string): Draft {
  const parameters = new URLSearchParams(query)
  const named = settings.flatMap(({ key }) => {
    const value = parameters.get(key)
    return value === null ? [] : [[key, value.slice(0, 1000)]]
  })
  const demo = parameters.get('demo') ?? defaultDraft.demo
  return { ...defaultDraftOf(demo.slice(0, 1000)), ...Object.fromEntries(named) }
}

/** The query that gives `draft` and the page's switches again: what differs from the defaults, in the list's order; empty or with its `?`. */
export function queryOf(draft: Draft): string {
  const defaults = { ...defaultDraftOf(draft.demo), demo: defaultDraft.demo }
  const own = settings.filter(({ key }) => draft[key] !== defaults[key])
  return toQuery([...own.map(({ key }) => [key, draft[key]]), ...switchParameters()])
}

/** The query of the link that others open: a demo, this tab's links, and the switches that all ranks should have. */
export const inviteQuery = (transport: TransportChoice, demo = defaultDraft.demo): string =>
  toQuery([
    ...(demo === defaultDraft.demo || !isDemo(demo) ? [] : [['demo', demo]]),
    ...(transport === 'auto' ? [] : [['transport', transport]]),
    ...switchParameters(true),
  ])

function toQuery(parameters: readonly string[][]): string {
  const text = new URLSearchParams(parameters as [string, string][]).toString()
  return text === '' ? '' : `?${text}`
}

export interface CheckedDraft {
  /** Null while there are errors. */
  readonly config: Partial<TrainConfig> | null
  readonly errors: Readonly<Partial<Record<SettingKey, string>>>
}

/** Judges each field by the schema of the settings, and by the ranks that would take part. */
export function checkDraft(draft: Draft, worldSize = 1): CheckedDraft {
  const errors: Partial<Record<SettingKey, string>> = {}
  const config: Record<string, unknown> = {}
  const meta = metaOfDraft(draft)
  if (!isDemo(draft.demo))
    errors.demo = `expected ${Object.keys(metas).join(' or ')}, got ${draft.demo}`
  for (const setting of settings) {
    const { key } = setting
    if (key === 'transport') {
      if (!isTransport(draft.transport))
        errors.transport = `expected auto, fallback, webrtc, port or relay`
      continue
    }
    if (key === 'ranks') {
      const isWrong = draft.ranks !== String(ranksOf(draft))
      if (isWrong)
        errors.ranks = `expected 1 to ${mostRanks}, got ${draft.ranks.slice(0, 40) || 'nothing'}`
      continue
    }
    const value = fromText(setting, draft[key])
    const isOwn = hasSetting(meta, key)
    // An empty field has the demo's default, and one that is not shown what it had.
    if ((value === undefined || !isOwn) && key !== 'model') continue
    const expected = refusal(meta, key, value)
    if (expected && value !== '') {
      errors[key] = `expected ${expected}, got ${draft[key].trim().slice(0, 40) || 'nothing'}`
      continue
    }
    const result = v.safeParse(trainConfigSchema.entries[key], value)
    if (result.success) config[key] = result.output
    else errors[key] = wordsOf(setting, draft, result.issues[0])
  }
  const apart = withAlone(config as TrainConfig)
  if (apart) errors[apart] = 'expected none while the exchange is switched off'
  if (!errors.batchSize && Number(config.batchSize) < worldSize) {
    errors.batchSize = `expected at least ${worldSize}, one sample for each rank, got ${draft.batchSize}`
  }
  const hasErrors = Object.keys(errors).length > 0
  return { config: hasErrors ? null : (config as Partial<TrainConfig>), errors }
}

export function isTransport(text: string): text is TransportChoice {
  return transportChoices.some((choice) => choice === text)
}

/** More workers than this slow each other down on any machine, and eight tabs of eight fill a room. */
export const mostRanks = 8

/** With how many ranks a draft's tab enters the room; a wrong number counts as one. */
export function ranksOf({ ranks }: Draft): number {
  const count = Number(ranks)
  return /^\d$/.test(ranks) && count >= 1 && count <= mostRanks ? count : 1
}

/** What a tab keeps to itself: no part of the experiment. */
export const isOfTab = (key: SettingKey): key is TabKey => key === 'transport' || key === 'ranks'

/** The links that a draft asks for; a wrong one counts as automatic. */
export function transportOf(draft: Draft): TransportChoice {
  return isTransport(draft.transport) ? draft.transport : 'auto'
}

/** A setting of a run in words, for those who only read it. */
export function describeSetting(setting: Setting, config: TrainConfig): string {
  if (isOfTab(setting.key)) return ''
  const value = config[setting.key]
  if (setting.kind === 'switch') return value ? 'yes' : 'no'
  if (setting.key === 'lr') return String(learningRateOf(config, metaOf(config.demo)))
  if (value === undefined) return setting.placeholder?.(defaultDraft) ?? '–'
  const words = choicesOf(setting, config).find(([choice]) => choice === value)?.[1]
  return words ?? (setting.unit ? `${value} ${setting.unit}` : String(value))
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

function wordsOf(setting: Setting, draft: Draft, issue: v.BaseIssue<unknown>): string {
  const text = draft[setting.key]
  const got = text.trim() === '' ? 'nothing' : text.trim().slice(0, 40)
  const { requirement, type } = issue as { requirement?: unknown; type: string }
  const expected =
    setting.kind === 'data'
      ? 'an address'
      : setting.kind === 'switch'
        ? 'true or false'
        : type === 'min_value'
          ? `${String(requirement)} or more`
          : type === 'gt_value'
            ? `more than ${String(requirement)}`
            : type === 'safe_integer'
              ? 'a whole number'
              : setting.kind === 'number'
                ? 'a number'
                : choicesOf(setting, draft)
                    .map(([value]) => value)
                    .join(' or ')
  return `expected ${expected}, got ${got}`
}
