import * as v from 'valibot'
import { type ConfigKey, givenData } from '../../trainer/settings/config.ts'
import type { DemoMeta } from '../../trainer/settings/demo-meta.ts'
import type { Experiments } from '../../trainer/settings/experiments.ts'
import { pipelinesOf } from '../../trainer/settings/parallel.ts'
import {
  type Choice,
  kindOf,
  oneOf,
  type SettingKind,
  type SettingRow,
  setting,
  whole,
} from '../../trainer/settings/row.ts'
import { rows } from '../../trainer/settings/table.ts'

/**
 * The experiment as a person sets it: the run's settings and those of a tab. The form, the table that the others read, and the address of the
 * page are made from this list.
 *
 * A draft holds texts, as typed; the schema that every rank checks the settings with judges them one by one.
 */
export type SettingKey = ConfigKey | TabKey
type TabKey = keyof typeof ofTab

export type Draft = Readonly<Record<SettingKey, string>>

export interface Setting extends SettingRow {
  readonly key: SettingKey
  readonly kind: SettingKind
}

/** More workers than this slow each other down on any machine, and eight tabs of eight fill a room. */
export const maxRanks = 8

/** What a tab chooses for itself when it enters the room. */
const ofTab = {
  transport: setting({
    ...oneOf(
      {
        auto: 'automatic: ports in one browser, else WebRTC',
        fallback: 'automatic, else through the server, encrypted (needs --relay)',
        webrtc: 'WebRTC data channels only',
        port: 'MessagePorts only (one browser)',
        relay: 'through the server, encrypted (needs --relay)',
      },
      'auto',
    ),
    label: 'Links',
    hint: 'How this tab joins the others.',
    outlivesDemo: true,
    onResume: 'own',
    doc: '`auto`, `fallback`, `webrtc`, `port`, `relay`: how this tab links to others',
  }),
  ranks: setting({
    schema: v.optional(whole(0, maxRanks), 1),
    label: 'Ranks in this tab',
    hint: 'Each has its own compute worker; they share the GPU. 0 to watch, or 1 to 8.',
    outlivesDemo: true,
    onResume: 'own',
    doc: 'ranks in this tab, 1 to 8, each with its own worker on the same GPU; 0 to watch without one',
  }),
}

export const settings: readonly Setting[] = Object.entries<SettingRow>({ ...rows, ...ofTab }).map(
  ([key, row]) => ({ ...row, key: key as SettingKey, kind: kindOf(row) }),
)

/** The demo of a draft; the first one where it names none. */
export const metaOfDraft = (
  { has, metaOf }: Experiments,
  { demo }: Pick<Draft, 'demo'>,
): DemoMeta => metaOf(has(demo) ? demo : undefined)

/** Value and words of what a person may choose; for data the demo's own sets, and `given` where a person may give some. */
export function choicesOf(
  experiments: Experiments,
  { key, choices = [] }: Pick<Setting, 'key' | 'choices'>,
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
export const isOfTab = (key: SettingKey): key is TabKey => key in ofTab

/** What an empty field stands for, in words. */
export const placeholderOf = (
  { placeholder }: Setting,
  draft: Pick<Draft, 'model'>,
  meta: DemoMeta,
): string | undefined =>
  typeof placeholder === 'function' ? placeholder(draft, meta) : placeholder
