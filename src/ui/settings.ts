import * as v from 'valibot'
import { type TransportChoice, transportChoices } from '../peer/messages.ts'
import { defaultLearningRate, type TrainConfig, trainConfigSchema } from '../train/config.ts'
import { switchParameters } from '../util/switches.ts'

/**
 * The experiment as a person sets it: one list, which is the form, the table that the others read, and the address of the page.
 *
 * A draft holds texts, as typed; the schema that every rank checks the settings with judges them one by one.
 */
export type ConfigKey = keyof TrainConfig
export type SettingKey = ConfigKey | 'transport'
export type Draft = Readonly<Record<SettingKey, string>>

export interface Setting {
  readonly key: SettingKey
  readonly label: string
  /** What the number means, or what to think of. */
  readonly hint?: string
  readonly kind: 'choice' | 'number' | 'data' | 'switch'
  /** Value and words, for a choice. */
  readonly choices?: readonly (readonly [value: string, words: string])[]
  /** Shown in an empty field: what holds then. */
  readonly placeholder?: (draft: Draft) => string
  readonly unit?: string
  /** In the closed part of the form. */
  readonly isAdvanced?: boolean
}

export const builtInData = 'digits'

export const settings: readonly Setting[] = [
  {
    key: 'model',
    label: 'Model',
    kind: 'choice',
    choices: [
      ['mlp', 'mlp: 784–256–10, ReLU'],
      ['cnn', 'cnn: two 3×3 convolutions, 16 and 32'],
    ],
  },
  {
    key: 'data',
    label: 'Data',
    kind: 'data',
    hint: 'Address of a folder with the four MNIST-layout IDX files. npm start -- --data DIR serves one at /data/.',
  },
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
    placeholder: ({ model }) =>
      String(model === 'cnn' ? defaultLearningRate.cnn : defaultLearningRate.mlp),
  },
  {
    key: 'seed',
    label: 'Seed',
    kind: 'number',
    hint: 'Equal seeds give equal bits on one kind of adapter; with 3 tabs and more, at an equal bucket cap.',
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
      ['best', 'its most accurate checkpoint'],
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
    hint: 'How this tab joins its ring neighbours.',
    isAdvanced: true,
  },
]

/** The settings when nothing was chosen, as texts. */
export const defaultDraft: Draft = (() => {
  const defaults: Record<string, unknown> = v.parse(trainConfigSchema, {})
  const texts = settings.map(({ key }) => [key, toText(defaults[key])])
  return { ...Object.fromEntries(texts), transport: 'auto' } as Draft
})()

function toText(value: unknown): string {
  return value === undefined ? '' : String(value)
}

/** Reads a query like `?model=cnn&epochs=5`; what it does not name keeps its default. Wrong values stay, and are shown as errors. */
export function draftFromQuery(query: string): Draft {
  const parameters = new URLSearchParams(query)
  const named = settings.flatMap(({ key }) => {
    const value = parameters.get(key)
    return value === null ? [] : [[key, value.slice(0, 1000)]]
  })
  return { ...defaultDraft, ...Object.fromEntries(named) }
}

/** The query that gives `draft` and the page's switches again: what differs from the defaults, in the list's order; empty or with its `?`. */
export function queryOf(draft: Draft): string {
  const own = settings.filter(({ key }) => draft[key] !== defaultDraft[key])
  return toQuery([...own.map(({ key }) => [key, draft[key]]), ...switchParameters()])
}

/** The query of the link that others open: this tab's links, and the switches that all ranks should have. */
export const inviteQuery = (transport: TransportChoice): string =>
  toQuery([...(transport === 'auto' ? [] : [['transport', transport]]), ...switchParameters(true)])

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
  for (const setting of settings) {
    const { key } = setting
    if (key === 'transport') {
      if (!isTransport(draft.transport))
        errors.transport = `expected auto, fallback, webrtc, port or relay`
      continue
    }
    const value = fromText(setting, draft[key])
    const result = v.safeParse(trainConfigSchema.entries[key], value)
    if (result.success) config[key] = result.output
    else errors[key] = wordsOf(setting, draft[key], result.issues[0])
  }
  if (!errors.batchSize && Number(config.batchSize) < worldSize) {
    errors.batchSize = `expected at least ${worldSize}, one sample for each rank, got ${draft.batchSize}`
  }
  const hasErrors = Object.keys(errors).length > 0
  return { config: hasErrors ? null : (config as Partial<TrainConfig>), errors }
}

export function isTransport(text: string): text is TransportChoice {
  return transportChoices.some((choice) => choice === text)
}

/** The links that a draft asks for; a wrong one counts as automatic. */
export function transportOf(draft: Draft): TransportChoice {
  return isTransport(draft.transport) ? draft.transport : 'auto'
}

/** A setting of a run in words, for those who only read it. */
export function describeSetting(setting: Setting, config: TrainConfig): string {
  if (setting.key === 'transport') return ''
  const value = config[setting.key]
  if (setting.kind === 'switch') return value ? 'yes' : 'no'
  if (setting.kind === 'data' && value === builtInData) return 'drawn digits (built in)'
  if (setting.key === 'lr') return String(value ?? defaultLearningRate[config.model])
  if (value === undefined) return setting.placeholder?.(defaultDraft) ?? '–'
  const words = setting.choices?.find(([choice]) => choice === value)?.[1]
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

function wordsOf(setting: Setting, text: string, issue: v.BaseIssue<unknown>): string {
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
                : (setting.choices ?? []).map(([value]) => value).join(' or ')
  return `expected ${expected}, got ${got}`
}
