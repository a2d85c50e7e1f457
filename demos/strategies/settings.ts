import { stepsPerEpoch } from '../../src/data/shares.ts'
import type { TrainConfig } from '../../src/trainer/settings/config.ts'
import { correction } from '../../src/ui/settings/check.ts'
import { metaOf, parseTrainConfig } from '../experiments.ts'
import { type Strategy, strategies } from './strategies.ts'

/** What decides a comparison. */
export interface Settings {
  readonly experiment: ExperimentName
  /** A data set that the experiment makes itself. */
  readonly data: string
  readonly strategies: readonly Strategy[]
  /** Global, of the strategies that do not multiply it. */
  readonly batch: number
  /** Of the strategies with that batch; the others take fewer, over as many samples. */
  readonly steps: number
  readonly seed: number
}

interface Experiment {
  readonly demo: string
  readonly model?: string
  readonly words: string
  /** What suits it. */
  readonly batch: number
  readonly steps: number
  readonly strategies: string
  /** For training, that it makes. */
  readonly samples: number
  /** shared: all ranks have the page's device. cores: each has a thread of the CPU, as much as one core, and shares it with no other. */
  readonly devices: 'shared' | 'cores'
}

/** What can be compared, small enough to train several times over on any device. Only the last one has much to compute for each byte that it sends. */
export const experiments = {
  playground: {
    demo: 'playground',
    words: 'Playground, one device for all',
    batch: 96,
    steps: 500,
    strategies: '1,2,4',
    samples: 480,
    devices: 'shared',
  },
  digits: {
    demo: 'digits',
    words: 'Digits, one device for all',
    batch: 64,
    steps: 125,
    strategies: '1,2,4',
    samples: 8000,
    devices: 'shared',
  },
  cores: {
    demo: 'digits',
    model: 'cnn',
    words: 'Digits with convolutions, a CPU core each',
    batch: 256,
    steps: 25,
    strategies: '1,2,4,2sim,4sim',
    samples: 8000,
    devices: 'cores',
  },
} satisfies Record<string, Experiment>

export const experimentOf = (name: string): Experiment =>
  experiments[isExperiment(name) ? name : 'playground']

export type ExperimentName = keyof typeof experiments

export const isExperiment = (name: string): name is ExperimentName =>
  Object.hasOwn(experiments, name)

/** The settings as texts, as an address and a form have them: they may be wrong. */
export type Draft = Readonly<Record<keyof Settings, string>>

export const defaultDraft = (experiment = 'playground'): Draft => {
  const { batch, steps, strategies } = experimentOf(experiment)
  const [data] = dataOf(experiment)[0]
  return { experiment, data, strategies, batch: `${batch}`, steps: `${steps}`, seed: '0' }
}

/** The data sets of an experiment: name and words. */
export const dataOf = (experiment: string): [name: string, words: string][] =>
  Object.entries(metaOf(experimentOf(experiment).demo).data)

interface NumberRange {
  readonly min: number
  readonly max: number
}

/** A strategy of four ranks needs a batch of four; more steps than this have more points than a chart shows. */
export const ranges: Readonly<Record<'batch' | 'steps' | 'seed', NumberRange>> = {
  batch: { min: 4, max: 2048 },
  steps: { min: 1, max: 5000 },
  seed: { min: 0, max: 1_000_000 },
}

/** The draft after a person has set a field; another experiment brings its own data, batch and steps, and strategies where nobody chose. */
export function withSetting(draft: Draft, key: keyof Draft, value: string): Draft {
  if (key !== 'experiment') return { ...draft, [key]: value }
  const isChosen = draft.strategies !== defaultDraft(draft.experiment).strategies
  const next = { ...defaultDraft(value), seed: draft.seed }
  return isChosen ? { ...next, strategies: draft.strategies } : next
}

/** With the strategy of that name, or without it; in the order of training. */
export function withStrategy(draft: Draft, name: string, isIn: boolean): Draft {
  const own = namesIn(draft.strategies)
  const names = strategies.map((strategy) => strategy.name)
  const next = names.filter((one) => (one === name ? isIn : own.includes(one)))
  return { ...draft, strategies: next.join(',') }
}

export const namesIn = (text: string): string[] =>
  text
    .split(',')
    .map((name) => name.trim())
    .filter((name) => name !== '')

/** Reads `?experiment=digits&strategies=1,2`; what it does not name has its default, and what is wrong stays, to be shown. */
export function draftFromQuery(query: string): Draft {
  const given = new URLSearchParams(query)
  const draft = defaultDraft(given.get('experiment')?.slice(0, 100))
  const named = Object.keys(draft).flatMap((key) => {
    const value = given.get(key)
    return value === null ? [] : [[key, value.slice(0, 100)]]
  })
  return { ...draft, ...Object.fromEntries(named) }
}

/** What of the draft is not the default, as an address has it; commas stay commas. Inverse: `draftFromQuery`. */
export function parametersOf(draft: Draft): [string, string][] {
  const defaults = { ...defaultDraft(draft.experiment), experiment: defaultDraft().experiment }
  return Object.entries(draft).filter(([key, value]) => value !== defaults[key as keyof Draft])
}

export interface CheckedDraft {
  /** Null while there are errors. */
  readonly settings: Settings | null
  readonly errors: Readonly<Partial<Record<keyof Draft, string>>>
}

/** Judges each field: an error says what to choose or enter, and what came. */
export function checkDraft(draft: Draft): CheckedDraft {
  const errors: Partial<Record<keyof Draft, string>> = {}
  const refuse = (key: keyof Draft, verb: 'Enter' | 'Choose', expected: string) => {
    errors[key] = correction(verb, expected, draft[key])
  }
  const { experiment } = draft
  if (!isExperiment(experiment)) refuse('experiment', 'Choose', Object.keys(experiments).join(', '))
  const data = dataOf(experiment).map(([name]) => name)
  if (!data.includes(draft.data)) refuse('data', 'Choose', data.join(', '))
  const names = namesIn(draft.strategies)
  const all = strategies.map(({ name }) => name)
  if (names.length === 0 || names.some((name) => !all.includes(name)))
    refuse('strategies', 'Choose', `one or more of ${all.join(', ')}`)
  else if (
    strategies.some(({ name, isSimulated }) => isSimulated && names.includes(name)) &&
    !['1', '2'].every((name) => names.includes(name))
  )
    errors.strategies =
      'Choose 1 rank and 2 ranks too: from them simulated devices have their curve and their bytes.'
  for (const key of ['batch', 'steps', 'seed'] as const) {
    const { min, max } = ranges[key]
    const value = Number(draft[key])
    const isIn = Number.isInteger(value) && value >= min && value <= max
    if (draft[key].trim() === '' || !isIn)
      refuse(key, 'Enter', `a whole number from ${min} to ${max}`)
  }
  if (Object.keys(errors).length > 0) return { settings: null, errors }
  const settings: Settings = {
    experiment: experiment as ExperimentName,
    data: draft.data,
    strategies: strategies.filter(({ name }) => names.includes(name)),
    batch: Number(draft.batch),
    steps: Number(draft.steps),
    seed: Number(draft.seed),
  }
  return { settings, errors }
}

/** How many samples `steps` steps take, with the short batches at the ends of epochs. */
function samplesIn(steps: number, batch: number, samples: number): number {
  const perEpoch = stepsPerEpoch(samples, batch)
  const epochs = Math.floor(steps / perEpoch)
  return epochs * samples + Math.min(samples, (steps % perEpoch) * batch)
}

/** The fewest steps that take as many samples. */
function stepsOver(wanted: number, batch: number, samples: number): number {
  const epochs = Math.floor(wanted / samples)
  return epochs * stepsPerEpoch(samples, batch) + Math.ceil((wanted % samples) / batch)
}

/** The run of one strategy: all have the seed, the model and its learning rate in common, and as many samples, up to one batch. */
export function configOf(settings: Settings, { batchTimes, isAlone }: Strategy): TrainConfig {
  const { experiment, data, batch, steps, seed } = settings
  const { demo, model, samples } = experimentOf(experiment)
  return parseTrainConfig({
    ...{ demo, model, data },
    batchSize: batch * batchTimes,
    steps: stepsOver(samplesIn(steps, batch, samples), batch * batchTimes, samples),
    seed,
    strategy: isAlone ? 'alone' : 'ddp',
  })
}
