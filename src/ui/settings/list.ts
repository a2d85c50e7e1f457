import { givenData, pipelinesOf, type TrainConfig } from '../../trainer/settings/config.ts'
import type { DemoMeta } from '../../trainer/settings/demo-meta.ts'
import { type Experiments, hasSetting } from '../../trainer/settings/experiments.ts'

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
  readonly placeholder?: (draft: Pick<Draft, 'model'>, meta: DemoMeta) => string
  readonly unit?: string
  /** In the closed part of the form. */
  readonly isAdvanced?: boolean
}

export const settings: readonly Setting[] = [
  { key: 'demo', label: 'Experiment', kind: 'choice' },
  { key: 'model', label: 'Model', kind: 'choice' },
  { key: 'data', label: 'Data', kind: 'data' },
  { key: 'epochs', label: 'Epochs', kind: 'number', hint: 'Passes over the training data.' },
  {
    key: 'batchSize',
    label: 'Batch size',
    kind: 'number',
    unit: 'samples',
    hint: 'Samples in each step, over all ranks. Each rank takes its share.',
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
    placeholder: ({ model }, { models }) => String(models[model]?.lr ?? ''),
  },
  {
    key: 'clipNorm',
    label: 'Clip gradients to',
    kind: 'number',
    unit: 'norm',
    placeholder: () => 'none',
    hint: 'Scales the gradients of a step down where their norm is larger. Not with pipelines.',
    isAdvanced: true,
  },
  {
    key: 'trust',
    label: 'Other tabs',
    kind: 'choice',
    choices: [
      ['auto', 'automatic: trusted on this computer, strangers in a network'],
      ['members', 'trusted: all gradients count'],
      ['strangers', 'strangers: too large gradients do not count'],
    ],
    hint: 'Among strangers, gradients that are not numbers, or 10 times as large as the others, do not count, and the status names their tab. Large ones count less. Whole replicas only.',
    isAdvanced: true,
  },
  {
    key: 'aggregation',
    label: 'Combine gradients by',
    kind: 'choice',
    choices: [
      ['mean', 'their mean'],
      ['clipped', 'a mean with clipped distances'],
      ['trimmedMean', 'the mean without the extremes'],
      ['median', 'their median'],
    ],
    hint: 'All but the mean keep few tabs with wrong gradients from deciding, need 3 tabs, and learn less from data that differs between tabs. Whole replicas only.',
    isAdvanced: true,
  },
  {
    key: 'parallel',
    label: 'Parallel',
    kind: 'choice',
    isAdvanced: true,
    hint: 'For models that do not fit on one rank. Sharded: each has a part of every layer. Pipeline: each has some of the layers.',
    choices: [
      ['dp', 'whole model on each rank'],
      ['fsdp', 'sharded (FSDP)'],
      ['pp=2', 'pipelines of 2 stages'],
      ['pp=4', 'pipelines of 4 stages'],
    ],
  },
  {
    key: 'strategy',
    label: 'Exchange',
    kind: 'choice',
    choices: [
      ['ddp', 'on: gradients averaged over all ranks'],
      ['alone', 'off: each rank trains its own model'],
    ],
  },
  {
    key: 'partition',
    label: 'Each rank draws from',
    kind: 'choice',
    choices: [
      ['shuffled', 'all samples, shuffled'],
      ['own-slice', 'its own slice'],
    ],
    hint: 'With its own slice, each rank sees a different, contiguous part of the data.',
  },
  {
    key: 'seed',
    label: 'Seed',
    kind: 'number',
    hint: 'The same seed gives the same bits on the same kind of adapter; with 3 ranks or more, only with the same bucket cap.',
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
    label: 'Test on held-out samples every',
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
    hint: 'Ends the run after this many steps.',
    isAdvanced: true,
  },
  {
    key: 'maxStepsPerSec',
    label: 'Pace',
    kind: 'number',
    unit: 'steps/s',
    placeholder: () => 'full speed',
    hint: 'At most this many steps per second, so that you can watch. Empty or 0: full speed. Results stay the same.',
    isAdvanced: true,
  },
  {
    key: 'bucketCapMb',
    label: 'Bucket cap',
    kind: 'number',
    unit: 'MB',
    placeholder: () => 'automatic',
    hint: 'Gradients travel in buckets of about this size. If empty, the best size is measured, once for the same members.',
    isAdvanced: true,
  },
  {
    key: 'hashEvery',
    label: 'Compare replicas every',
    kind: 'number',
    unit: 'steps',
    hint: 'Compares the parameter hashes of all ranks. A difference ends the run.',
    isAdvanced: true,
  },
  {
    key: 'elastic',
    label: 'Continue without lost tabs',
    kind: 'switch',
    hint: 'A tab that closes or stops answering does not end the run, and a tab that opens the link joins it. With whole replicas only.',
    isAdvanced: true,
  },
  {
    key: 'exact',
    label: 'Same bits on any tabs',
    kind: 'switch',
    hint: 'The weights are the same bits on any number of tabs with GPUs of the same kind, whatever tabs are lost or join. Steps take longer. With whole replicas only.',
    isAdvanced: true,
  },
  {
    key: 'virtualWorkers',
    label: 'Virtual workers',
    kind: 'number',
    hint: 'For the same bits on any tabs: into how many parts the batch falls. They decide the bits, and tabs share them.',
    isAdvanced: true,
  },
  {
    key: 'saves',
    label: 'Save the run',
    kind: 'choice',
    choices: [
      ['auto', 'automatically, and on request'],
      ['asked', 'on request'],
    ],
    hint: "Automatically: in the host's browser, about every 10 seconds, in at most 2 % of the time (with the same bits on any tabs, in each tab's); also in each pause, when stopped and at the end. The newest two of each of the last three runs stay; what you save stays until you delete it.",
    isAdvanced: true,
  },
  {
    key: 'checkpointEvery',
    label: 'Checkpoint every',
    kind: 'number',
    unit: 'steps',
    placeholder: () => 'about 10 s',
    hint: "Also at each epoch's end; 0: only then. Instead of every 10 seconds.",
    isAdvanced: true,
  },
  {
    key: 'resume',
    label: 'Start from',
    kind: 'choice',
    choices: [
      ['', 'the beginning'],
      ['latest', "this browser's latest checkpoint"],
      ['best', "this browser's best checkpoint"],
    ],
    placeholder: () => 'the beginning',
    hint: 'As saved by rank 0 in this browser, with the settings of that run. With the same bits on any tabs, the latest is the newest that most tabs have.',
    isAdvanced: true,
  },
  {
    key: 'tune',
    label: 'Measure kernels first',
    kind: 'switch',
    hint: 'Rank 0 times the kernel variants and uses the fastest, not the built-in table.',
    isAdvanced: true,
  },
  {
    key: 'transport',
    label: 'Links',
    kind: 'choice',
    choices: [
      ['auto', 'automatic: ports in one browser, else WebRTC'],
      ['fallback', 'automatic, else through the server, encrypted (needs --relay)'],
      ['webrtc', 'WebRTC data channels only'],
      ['port', 'MessagePorts only (one browser)'],
      ['relay', 'through the server, encrypted (needs --relay)'],
    ],
    hint: 'How this tab joins the others.',
    isAdvanced: true,
  },
  {
    key: 'ranks',
    label: 'Ranks in this tab',
    kind: 'number',
    hint: 'Each has its own compute worker; they share the GPU. 1 to 8.',
    isAdvanced: true,
  },
]

/** The demo of a draft; the first one where it names none. */
export const metaOfDraft = (
  { has, metaOf }: Experiments,
  { demo }: Pick<Draft, 'demo'>,
): DemoMeta => metaOf(has(demo) ? demo : undefined)

/** The settings that the draft's demo has, in the list's order. */
export const settingsOf = (
  experiments: Experiments,
  draft: Pick<Draft, 'demo'>,
): readonly Setting[] => {
  const meta = metaOfDraft(experiments, draft)
  return settings.filter(({ key }) => isOfTab(key) || hasSetting(meta, key))
}

/** Value and words of what a person may choose; for data the demo's own sets, and `given` where a person may give some. */
export function choicesOf(
  experiments: Experiments,
  { key, choices = [] }: Setting,
  draft: Pick<Draft, 'demo' | 'parallel'>,
): readonly Choice[] {
  if (key === 'demo')
    return Object.entries(experiments.metas).map(([name, { title }]) => [name, title])
  const { models, data, given } = metaOfDraft(experiments, draft)
  if (key === 'model') return Object.entries(models).map(([name, { words }]) => [name, words])
  if (key === 'parallel') return withGiven(choices, draft.parallel)
  if (key !== 'data') return choices
  const own = Object.entries(data)
  return given ? [...own, [givenData, `own data: ${given.words}`]] : own
}

/** The choices, and pipelines of other sizes that an address asks for. */
function withGiven(choices: readonly Choice[], parallel: string): readonly Choice[] {
  const { stages, replicas } = pipelinesOf(parallel) ?? {}
  if (!stages || choices.some(([value]) => value === parallel)) return choices
  const count = replicas ? `${replicas} ${replicas === 1 ? 'pipeline' : 'pipelines'}` : 'pipelines'
  return [...choices, [parallel, `${count} of ${stages} stages`]]
}

/** What a tab keeps to itself: no part of the experiment. */
export const isOfTab = (key: SettingKey): key is TabKey => key === 'transport' || key === 'ranks'
