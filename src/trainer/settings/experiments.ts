import * as v from 'valibot'
import { clipped } from '../../util/clipped.ts'
import { TabringError } from '../../util/errors.ts'
import { inWords } from '../../util/kind-of.ts'
import {
  givenData,
  pipelinesOf,
  seesEachRank,
  type TrainConfig,
  type TrainConfigInput,
  trainConfigSchema,
} from './config.ts'
import type { DemoMeta } from './demo-meta.ts'

/** The demos that a page or a command can train, and what it takes their settings for. The entry points make it and hand it in. */
export interface Experiments {
  /** By name, in the order in which people see them. */
  readonly metas: Readonly<Record<string, DemoMeta>>
  /** The demo of settings that name none. */
  readonly first: string
  /** Whether a demo has this name. */
  has(demo: string): boolean
  /** What is known of the demo that some settings name. errors: `config.invalid` for one that there is not. */
  metaOf(demo?: string): DemoMeta
  /** The settings of a demo when nobody has chosen anything. */
  defaultsOf(demo?: string): TrainConfigInput
  /**
   * Returns the settings of a run with the demo's defaults filled in.
   *
   * errors: `config.invalid`, naming the setting: one that cannot be, one that the demo does not have, or two that do not go together.
   */
  parseTrainConfig(input: unknown): TrainConfig
}

/** Returns the experiments with these demos; nobody's choice is the first one. */
export function experimentsOf(metas: Readonly<Record<string, DemoMeta>>): Experiments {
  const [first] = Object.keys(metas)
  const has = (demo: string) => Object.hasOwn(metas, demo)
  const metaOf = (demo: string = first): DemoMeta => {
    if (has(demo)) return metas[demo]
    throw new TabringError(
      'config.invalid',
      `settings: demo: expected ${orList(Object.keys(metas))}, got ${clipped(demo)}. Correct it and start again.`,
    )
  }
  return {
    metas,
    first,
    has,
    metaOf,
    defaultsOf: (demo = first) => defaultsOf(demo, metaOf(demo)),
    parseTrainConfig(input) {
      const { demo = first } = (input ?? {}) as TrainConfigInput
      return configOf(demo, metaOf(inWords(demo)), (input ?? {}) as TrainConfigInput)
    },
  }
}

const defaultsOf = (demo: string, { models, data, defaults }: DemoMeta): TrainConfigInput => {
  return { demo, model: Object.keys(models)[0], data: Object.keys(data)[0], ...defaults }
}

/** Whether a demo has a setting. */
export const hasSetting = (meta: DemoMeta, key: keyof TrainConfig): boolean =>
  !meta.without?.includes(key)

/**
 * What is wrong with the value of one setting, which the schema has let through, for this demo: what was expected instead. Undefined:
 * nothing.
 */
export function refusal(
  meta: DemoMeta,
  key: keyof TrainConfig,
  value: unknown,
): string | undefined {
  if (key === 'model' && !Object.hasOwn(meta.models, String(value)))
    return orList(Object.keys(meta.models))
  if (key !== 'data' || Object.hasOwn(meta.data, String(value))) return undefined
  if (value === givenData ? meta.given : meta.address) return undefined
  return orList([...Object.keys(meta.data), ...(meta.given ? [givenData] : [])])
}

/**
 * Returns the settings of a run of one demo with its defaults filled in.
 *
 * errors: as `parseTrainConfig`.
 */
export function configOf(demo: string, meta: DemoMeta, input: TrainConfigInput): TrainConfig {
  const own = Object.entries(input).filter(([, value]) => value !== undefined)
  const given: Record<string, unknown> = Object.fromEntries(own)
  const result = v.safeParse(trainConfigSchema, { ...defaultsOf(demo, meta), ...given })
  if (!result.success) {
    const issue = result.issues[0]
    throw invalid(
      v.getDotPath(issue) ?? 'settings',
      issue.expected ?? issue.message,
      issue.received,
    )
  }
  const config = result.output
  for (const [key, value] of Object.entries(config) as [keyof TrainConfig, unknown][]) {
    const expected = refusal(meta, key, value)
    if (expected) throw invalid(key, expected, value)
    const isGiven = Object.hasOwn(given, key) && value !== plain[key]
    if (isGiven && !hasSetting(meta, key)) {
      throw refused(key, value, `the demo ${config.demo} does not have this setting`)
    }
  }
  const apart = withAlone(config)
  if (apart) throw refused(apart, config[apart], "not available with the strategy 'alone'")
  const inexact = withExact(config)
  if (inexact) throw refused(inexact, config[inexact], 'not available with exact')
  const unseen = withUnseenRanks(config)
  if (unseen) {
    const others = "exact, the strategy 'alone', sharded models and pipelines"
    throw refused(unseen, config[unseen], `not available with ${others}`)
  }
  const staged = withPipelines(config)
  if (staged) throw refused(staged, config[staged], 'not available with pipelines')
  return config
}

/** Each setting's value when nobody chooses: what the others send for a setting that the demo does not have. */
const plain: Record<string, unknown> = v.parse(trainConfigSchema, {
  demo: '-',
  model: '-',
  data: '-',
})

/** A setting that makes a run's bits depend on its ranks, or on how fast one of them is. */
export const withExact = ({
  exact,
  strategy,
  parallel,
  partition,
  tune,
}: Pick<TrainConfig, 'exact' | 'strategy' | 'parallel' | 'partition' | 'tune'>) => {
  if (!exact) return undefined
  if (strategy !== 'ddp') return 'strategy'
  if (parallel !== 'dp') return 'parallel'
  if (partition !== 'shuffled') return 'partition'
  return tune ? 'tune' : undefined
}

/** A setting that needs the gradients of each rank, where ranks exchange only sums, or none. */
export const withUnseenRanks = (
  config: Pick<TrainConfig, 'aggregation' | 'trust' | 'exact' | 'strategy' | 'parallel'>,
) => {
  if (seesEachRank(config)) return undefined
  if (config.aggregation !== 'mean') return 'aggregation'
  return config.trust === 'strangers' ? 'trust' : undefined
}

/** A setting that does not go with replicas that differ: a file has one of them. */
export const withAlone = ({
  strategy,
  checkpointEvery,
  resume,
  parallel,
}: Pick<TrainConfig, 'strategy' | 'checkpointEvery' | 'resume' | 'parallel'>) => {
  if (strategy !== 'alone') return undefined
  if (parallel !== 'dp') return 'parallel'
  if (checkpointEvery !== undefined) return 'checkpointEvery'
  return resume ? 'resume' : undefined
}

/** A setting that needs all gradients on one rank, where each has those of its stage. */
export const withPipelines = ({
  parallel,
  clipNorm,
}: Pick<TrainConfig, 'parallel' | 'clipNorm'>) =>
  pipelinesOf(parallel) && clipNorm !== undefined ? 'clipNorm' : undefined

const invalid = (key: string, expected: string, got: unknown) =>
  new TabringError(
    'config.invalid',
    `settings: ${key}: expected ${expected}, got ${inWords(got)}. Correct it and start again.`,
  )

const refused = (key: string, got: unknown, problem: string) =>
  new TabringError(
    'config.invalid',
    `settings: ${key}: ${problem}, got ${inWords(got)}. Leave it out and start again.`,
  )

/** `a, b, or c`. */
export const orList = (names: readonly string[]): string =>
  new Intl.ListFormat('en', { type: 'disjunction' }).format(names)
