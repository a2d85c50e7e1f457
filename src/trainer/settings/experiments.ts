import * as v from 'valibot'
import { clipped } from '../../util/clipped.ts'
import { TabringError } from '../../util/errors.ts'
import { inWords } from '../../util/kind-of.ts'
import {
  type ConfigKey,
  givenData,
  keysWhere,
  seesEachRank,
  type TrainConfig,
  type TrainConfigInput,
  trainConfigSchema,
} from './config.ts'
import type { DemoMeta } from './demo-meta.ts'
import { pipelinesOf } from './parallel.ts'
import { type ConflictName, defaultOf, type SettingRow } from './row.ts'
import { rows } from './table.ts'

/** The demos that a page or a command can train, and what it takes their settings for. The entry points make it and hand it in. */
export interface Experiments {
  /** By name, in the order in which people see them. */
  readonly metas: Readonly<Record<string, DemoMeta>>
  /** The demo of settings that name none. */
  readonly first: string
  /** Tells whether a demo has this name. */
  has(demo: string): boolean
  /** Returns the meta of the demo that some settings name. errors: `config.invalid` for one that there is not. */
  metaOf(demo?: string): DemoMeta
  /** The settings of a demo when nobody has chosen anything. */
  defaultsOf(demo?: string): TrainConfigInput
  /**
   * Returns the settings of a run with the demo's defaults filled in.
   *
   * errors: `config.invalid`, naming the setting: one that cannot be, or two that do not go together.
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

/**
 * Returns the fault of one setting's value, which the schema has let through, for this demo: what was expected instead. Undefined for
 * nothing.
 */
export function refusal(meta: DemoMeta, key: string, value: unknown): string | undefined {
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
  for (const [key, value] of Object.entries(config) as [ConfigKey, unknown][]) {
    const expected = refusal(meta, key, value)
    if (expected) throw invalid(key, expected, value)
  }
  const [conflict] = conflictsIn(config)
  if (conflict) {
    const { key, beside } = conflict
    throw refused(key, config[key], `not available with ${beside.words}`)
  }
  return config
}

/** A feature of a run with which some settings are not available. */
interface Conflict {
  readonly isIn: (config: TrainConfig) => boolean
  readonly words: string
  /** As the form says it. */
  readonly inForm: string
}

const conflicts: Readonly<Record<ConflictName, Conflict>> = {
  /** Replicas differ: a file has one of them. */
  alone: {
    isIn: ({ strategy }) => strategy === 'alone',
    words: "the strategy 'alone'",
    inForm: 'while the exchange is off',
  },
  /** Bits may not depend on the ranks, or on how fast one of them is. */
  exact: {
    isIn: ({ exact }) => exact,
    words: 'exact',
    inForm: 'with the same bits on any tabs',
  },
  /** Ranks exchange only sums, or nothing: none has the gradients of each. */
  sums: {
    isIn: (config) => !seesEachRank(config),
    words: "exact, the strategy 'alone', sharded models and pipelines",
    inForm: 'with the same bits on any tabs, the exchange off, sharded models or pipelines',
  },
  /** No rank has all gradients, but those of its stage. */
  pipelines: {
    isIn: ({ parallel }) => pipelinesOf(parallel) !== undefined,
    words: 'pipelines',
    inForm: 'with pipelines',
  },
}

/** Settings that are not available beside others of the same run. */
export function conflictsIn(config: TrainConfig): { key: ConfigKey; beside: Conflict }[] {
  const all = Object.entries(conflicts) as [ConflictName, Conflict][]
  return all
    .filter(([, beside]) => beside.isIn(config))
    .flatMap(([name, beside]) =>
      keysWhere(({ refusedWith }) => refusedWith?.includes(name))
        .filter((key) => asks(key, config[key]))
        .map((key) => ({ key, beside })),
    )
}

function asks(key: ConfigKey, value: unknown): boolean {
  const row: SettingRow = rows[key]
  return row.asks ? row.asks(value) : value !== '' && value !== defaultOf(row)
}

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
