import type { TrainConfig, TrainConfigInput } from './config.ts'

/**
 * What is known of a demo before it is loaded: its settings for the form and the command line, its words, the result to expect.
 *
 * `demos/<name>/meta.ts` exports it as `meta`; it has no code, since the page loads all of them at once.
 */
export interface DemoMeta {
  readonly title: string
  /** One sentence: what it shows. */
  readonly sentence: string
  /** By name; the first one is taken where nobody chooses. */
  readonly models: Readonly<Record<string, DemoModel>>
  /** Data sets that it makes itself, by name, with words for people; the first one is taken where nobody chooses. */
  readonly data: Readonly<Record<string, string>>
  /** Where `data` may also be an address: what is expected there. */
  readonly address?: { readonly words: string; readonly hint: string }
  /** Where a person may give the data, `data: 'given'`: what it is, and how much of it. */
  readonly given?: { readonly words: string; readonly mostBytes: number }
  readonly metric: Metric
  /** Settings whose values differ from the list's when nobody chooses. */
  readonly defaults?: Readonly<TrainConfigInput>
  /** Settings of the list that it does not have: they are not shown, and refused. */
  readonly without?: readonly (keyof TrainConfig)[]
  /** Results that hold on any adapter, and for any number of ranks that the batch is enough for. */
  readonly expected: readonly Expectation[]
}

export interface DemoModel {
  /** What it is made of. */
  readonly words: string
  /** The learning rate, where nobody chooses. */
  readonly lr: number
}

/** What an evaluation tells of held-out samples. */
export interface Metric {
  readonly name: string
  /** `share`: from 0 to 1, shown in percent; otherwise the unit's name. */
  readonly unit: string
  readonly better: 'higher' | 'lower'
}

/** A result: with these settings, the metric reaches a value within so many steps. Give `atLeast` or `atMost`. */
export interface Expectation {
  readonly config: Readonly<TrainConfigInput>
  readonly atLeast?: number
  readonly atMost?: number
  readonly withinSteps: number
}

/** Whether `value` is better than `best`; NaN, and what is infinite, stands for none yet. */
export const isBetter = ({ better }: Metric, value: number, best: number): boolean =>
  !Number.isFinite(best) || (better === 'higher' ? value > best : value < best)

/** The learning rate of a run. */
export const learningRateOf = (
  { lr, model }: Pick<TrainConfig, 'lr' | 'model'>,
  { models }: DemoMeta,
): number => lr ?? models[model].lr
