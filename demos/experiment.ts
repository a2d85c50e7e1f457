import * as v from 'valibot'
import {
  givenData,
  type TrainConfig,
  type TrainConfigInput,
  trainConfigSchema,
} from '../src/trainer/settings/config.ts'
import type { DemoMeta } from '../src/trainer/settings/demo-meta.ts'
import { TabringError } from '../src/util/errors.ts'
import { isDemo, metas } from './metas.ts'

const firstDemo = 'digits'

/** What is known of the demo that some settings name. errors: `config.invalid` for one that there is not. */
export function metaOf(demo: string = firstDemo): DemoMeta {
  if (isDemo(demo)) return metas[demo]
  throw new TabringError(
    'config.invalid',
    `settings: demo: expected ${orList(Object.keys(metas))}, got ${demo}. Correct it and start again.`,
  )
}

/** The settings of a demo when nobody has chosen anything. */
export const defaultsOf = (demo: string = firstDemo): TrainConfigInput => {
  const { models, data, defaults } = metaOf(demo)
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
 * Returns the settings of a run with the demo's defaults filled in.
 *
 * errors: `config.invalid`, naming the setting: one that cannot be, one that the demo does not have, or two that do not go together.
 */
export function parseTrainConfig(input: unknown): TrainConfig {
  const own = Object.entries((input ?? {}) as TrainConfigInput).filter(
    ([, value]) => value !== undefined,
  )
  const given: Record<string, unknown> = Object.fromEntries(own)
  const meta = metaOf(given.demo === undefined ? undefined : String(given.demo))
  const result = v.safeParse(trainConfigSchema, {
    ...defaultsOf(given.demo as string | undefined),
    ...given,
  })
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
      throw invalid(key, `none, which the demo ${config.demo} does not have`, value)
    }
  }
  const apart = withAlone(config)
  if (apart) throw invalid(apart, "none with the strategy 'alone'", config[apart])
  return config
}

/** Each setting's value when nobody chooses: what the others send for a setting that the demo does not have. */
const plain: Record<string, unknown> = v.parse(trainConfigSchema, {
  demo: firstDemo,
  model: '-',
  data: '-',
})

/** A setting that does not go with replicas that differ: a file has one of them. */
export const withAlone = ({
  strategy,
  checkpointEvery,
  resume,
}: Pick<TrainConfig, 'strategy' | 'checkpointEvery' | 'resume'>) => {
  if (strategy !== 'alone') return undefined
  if (checkpointEvery !== undefined) return 'checkpointEvery'
  return resume ? 'resume' : undefined
}

const invalid = (key: string, expected: string, got: unknown) =>
  new TabringError(
    'config.invalid',
    `settings: ${key}: expected ${expected}, got ${String(got)}. Correct it and start again.`,
  )

const orList = (names: readonly string[]): string => names.join(' or ')
