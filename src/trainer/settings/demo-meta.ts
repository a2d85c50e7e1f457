import type { ConfigKey, TrainConfig, TrainConfigInput } from './config.ts'

/**
 * Description of a demo before it is loaded: its settings for the form and the command line, its words, the result to expect.
 *
 * `demos/<name>/meta.ts` exports it as `meta`; it has no code, since the page loads all of them at once.
 */
export interface DemoMeta {
  readonly title: string
  /** Steps a second that the page begins with, so that people can watch what would be over in a second or two. Default: as fast as they go. */
  readonly pace?: number
  /** One sentence: what it shows. */
  readonly sentence: string
  /** By name; the first one is taken where nobody chooses. */
  readonly models: Readonly<Record<string, DemoModel>>
  /** Data sets that it makes itself, by name, with words for people; the first one is taken where nobody chooses. */
  readonly data: Readonly<Record<string, string>>
  /** How many training samples each of these has: a batch cannot be larger. */
  readonly samples: Readonly<Record<string, number>>
  /** Where `data` may also be an address: what is expected there. */
  readonly address?: { readonly words: string; readonly hint: string }
  /** Where a person may give the data, `data: 'given'`: what it is, how much of it, and what to do to give it. */
  readonly given?: { readonly words: string; readonly maxBytes: number; readonly ask: string }
  readonly metric: Metric
  readonly reading: Reading
  /** Settings whose values differ from the list's when nobody chooses. */
  readonly defaults?: Readonly<TrainConfigInput>
  /** Settings that its view has controls for: the form leaves them to it. */
  readonly controls?: readonly ConfigKey[]
  /** Results that hold on any adapter, and for any number of ranks that the batch is enough for. */
  readonly expected: readonly Expectation[]
}

export interface DemoModel {
  /** Its parts, in words. */
  readonly words: string
  /** The learning rate, where nobody chooses. */
  readonly lr: number
}

/** A figure reported beside the loss, of training samples and of held-out ones. */
export interface Metric {
  readonly name: string
  /** `share`: from 0 to 1, shown in percent; otherwise the unit's name. */
  readonly unit: string
  readonly better: 'higher' | 'lower'
  /** Where the metric is the loss itself, in another unit: what the loss is multiplied by. Nobody needs to see both. */
  readonly ofLoss?: number
}

/** The metric for people who do not know it: `right`, how many of 100 things are; `off`, by how much of 100 each is, on average; `choices`, among how many each is guessed. */
export interface Reading {
  readonly as: 'right' | 'off' | 'choices'
  /** One of the things. */
  readonly of: string
}

/** A result: with these settings, the metric reaches a value within so many steps. Give `atLeast` or `atMost`. */
export interface Expectation {
  readonly config: Readonly<TrainConfigInput>
  readonly atLeast?: number
  readonly atMost?: number
  readonly withinSteps: number
  /** A run that got there, for the page's chart before it has points: means of training over stretches of equal length up to `withinSteps`, the last perhaps shorter. */
  readonly curve?: {
    readonly losses: readonly number[]
    /** Where the metric is not the loss itself; as many. */
    readonly metrics?: readonly number[]
  }
}

/** Tells whether `value` is better than `best`; NaN, and what is infinite, stands for none yet. */
export const isBetter = ({ better }: Metric, value: number, best: number): boolean =>
  !Number.isFinite(best) || (better === 'higher' ? value > best : value < best)

/** The value as a score, of which the larger is the better; and back. */
export const scoreOf = ({ better }: Pick<Metric, 'better'>, value: number): number =>
  better === 'higher' ? value : -value

/** The learning rate of a run. */
export const learningRateOf = (
  { lr, model }: Pick<TrainConfig, 'lr' | 'model'>,
  { models }: DemoMeta,
): number => lr ?? models[model].lr
