import * as v from 'valibot'

/** The part of a demo's meta that rows read. */
export interface OfDemo {
  readonly pace?: number
  readonly models: Readonly<Record<string, { readonly lr: number }>>
  readonly data: Readonly<Record<string, string>>
  readonly defaults?: Readonly<Record<string, unknown>>
}

/** By name; the first one is the default. */
export type OfDemos = Readonly<Record<string, OfDemo>>

export type Choice = readonly [value: string, words: string]

/** A text, or one that lists what the demos have. */
type Text = string | ((demos: OfDemos) => string)

/**
 * Everything that is known of a setting.
 *
 * Builds of the page leave out what only the command line and the docs use, those of its workers also what only the form shows: `node/left-out.ts`.
 */
export interface SettingRow {
  /** Schema that every rank checks, with the default. */
  readonly schema: v.GenericSchema<unknown>
  readonly label: string
  /** How the form asks for it. Default: as the schema's type says. */
  readonly kind?: SettingKind
  /** Meaning of the number, or advice. */
  readonly hint?: string
  readonly unit?: string
  /** Value and words, for a choice that is the same in all demos. */
  readonly choices?: readonly Choice[]
  /** Shown in an empty field: what holds then. */
  readonly placeholder?: string | ((draft: { readonly model: string }, demo: OfDemo) => string)
  /** In the open part of the form. */
  readonly isBasic?: boolean
  /** The page's default as the form has it, where it is another than the schema's. */
  readonly onPage?: (demo: OfDemo) => string
  /** True if the form keeps it when another demo is chosen. */
  readonly outlivesDemo?: boolean
  /**
   * In a run that resumes from a checkpoint. `same`: refused unless it is the saved run's. `own`: the form keeps its own, since it changes
   * nothing in a step but roundings. Neither: the form takes the saved run's, and a person may change it.
   */
  readonly onResume?: 'same' | 'own'
  /** True if ranks may change it while the run trains, as `changes.ts` says: a number. */
  readonly isLive?: boolean
  /** True if a demo's expected result holds with any value, as it does where `onResume` is `own`. */
  readonly keepsResult?: boolean
  /** Features with which it is not available. */
  readonly refusedWith?: readonly ConflictName[]
  /** Tells whether a value asks for something. Default: any but the schema's default and an empty text. */
  readonly asks?: (value: unknown) => boolean
  /** Another setting with or without which this one has no effect, as `steps` or `strategy=alone`: why, and how the command's error ends. */
  readonly idle?: { readonly why: string; readonly remedy?: string } & (
    | { readonly with: string }
    | { readonly without: string }
  )
  /**
   * How `npm run train` calls its value: `--clip-norm <x>`. Empty: a switch, `--no-…` where it is on by default. Undefined: the page alone
   * has the setting.
   */
  readonly flag?: string
  /** The flag's help. Default: `doc`. */
  readonly help?: Text
  /** Where the flag has other choices, another default or minimum than the schema. */
  readonly onCommand?: {
    readonly choices?: readonly string[]
    readonly default?: string
    readonly min?: number
  }
  /** Its values and meaning, in Markdown. Default: its hint. */
  readonly doc?: Text
  /** Its default, in Markdown. Default: the schema's, and those of demos that have another. */
  readonly docDefault?: Text
}

export type SettingKind = 'choice' | 'number' | 'data' | 'switch'

/** By what else a run has: what is refused beside it, see `experiments.ts`. */
export type ConflictName = 'alone' | 'exact' | 'sums' | 'pipelines'

/** A row; builds find its properties by this call. */
export const setting = <const Row extends SettingRow>(row: Row): Row => row

/** A whole number. */
export const whole = (min: number, max = Number.MAX_SAFE_INTEGER) =>
  v.pipe(v.number(), v.safeInteger(), v.minValue(min), v.maxValue(max))

export const positive = v.pipe(v.number(), v.finite(), v.gtValue(0))

/** Schema and choices of a setting that is one of these texts. */
export const oneOf = <const Choices extends Readonly<Record<string, string>>>(
  choices: Choices,
  standard: keyof Choices & string,
) => ({
  schema: v.optional(v.picklist(Object.keys(choices) as (keyof Choices & string)[]), standard),
  choices: Object.entries(choices) as Choice[],
})

/** The schema that a setting has where it is given. */
const givenSchema = ({ schema }: Pick<SettingRow, 'schema'>): v.GenericSchema<unknown> =>
  'wrapped' in schema ? (schema.wrapped as v.GenericSchema<unknown>) : schema

const kinds: Readonly<Record<string, SettingKind>> = {
  picklist: 'choice',
  boolean: 'switch',
  number: 'number',
}

/** The value where nobody chooses; undefined for none. */
export const defaultOf = ({ schema }: Pick<SettingRow, 'schema'>): unknown => v.getDefault(schema)

export const textOf = (text: Text, demos: OfDemos): string =>
  typeof text === 'function' ? text(demos) : text

/** Describes a setting, in Markdown: a part of a sentence. */
export const docOf = ({ doc, hint = '' }: SettingRow, demos: OfDemos): string =>
  doc ? textOf(doc, demos) : `${hint.charAt(0).toLowerCase()}${hint.slice(1).replace(/\.$/, '')}`

/** The default of a setting and those of the demos that have another: `3, playground 100`; undefined where nobody has one. */
export function defaultsOf(key: string, row: SettingRow, demos: OfDemos): string | undefined {
  const usual = defaultOf(row)
  const own = Object.entries(demos).flatMap(([name, { defaults }]) =>
    defaults?.[key] === undefined ? [] : [`${name} ${defaults[key]}`],
  )
  return own.length > 0 ? [usual, ...own].join(', ') : undefined
}

export const kindOf = (row: SettingRow): SettingKind => row.kind ?? kinds[givenSchema(row).type]

/** The texts that it may be; undefined where it is not one of a list. */
export function optionsOf(row: SettingRow): readonly string[] | undefined {
  const schema = givenSchema(row)
  return 'options' in schema ? (schema.options as string[]) : undefined
}

/** Returns the bounds of a number. */
export function boundsOf(row: SettingRow): { isWhole: boolean; min?: number; max?: number } {
  const { pipe = [] } = givenSchema(row) as { pipe?: { type: string; requirement?: number }[] }
  const bound = (type: string) => pipe.find((item) => item.type === type)?.requirement
  const isWhole = pipe.some(({ type }) => type === 'safe_integer')
  return { isWhole, min: bound('min_value'), max: bound('max_value') }
}
