import * as v from 'valibot'
import { TabringError } from './errors.ts'

/**
 * The look-inside switches: one table, from which the readers below and docs/switches.md come.
 *
 * A value set in code goes before a page parameter, that before the launcher's flag or environment, that before the default. Reading
 * one is looking up a field; nothing reads one inside a step.
 */

const boolean = v.pipe(
  v.union([v.boolean(), v.picklist(['1', 'true', '', '0', 'false'])]),
  v.transform((value) => value === true || value === '1' || value === 'true' || value === ''),
)

const level = v.pipe(
  v.union([v.number(), v.pipe(v.string(), v.regex(/^\d+$/), v.transform(Number))]),
  v.safeInteger(),
  v.minValue(0),
  v.maxValue(5),
)

/** A number at least 0, or a text of one. */
const amount = v.pipe(
  v.union([v.number(), v.pipe(v.string(), v.regex(/^\d+(\.\d+)?$/), v.transform(Number))]),
  v.finite(),
  v.minValue(0),
)

/** `matmul:direct-8x8,softmax:naive`, or the same as an object. */
const variants = v.union([
  v.record(v.string(), v.string()),
  v.pipe(
    v.string(),
    v.regex(/^([\w-]+:[\w-]+(,[\w-]+:[\w-]+)*)?$/),
    v.transform(
      (text): Record<string, string> =>
        Object.fromEntries(text ? text.split(',').map((pair) => pair.split(':')) : []),
    ),
  ),
])

interface Switch<Schema extends v.GenericSchema> {
  readonly schema: Schema
  /** What it may be, for people. */
  readonly type: string
  readonly default: v.InferOutput<Schema>
  /** What it does, in Markdown; one entry a value where values differ. */
  readonly effect: readonly string[]
  /** Whether it changes the numbers of a run, so that all ranks should have the same. */
  readonly isOfRun?: boolean
}

const define = <Schema extends v.GenericSchema>(of: Switch<Schema>): Switch<Schema> => of

export const switches = {
  debug: define({
    schema: level,
    type: '0 to 5',
    default: 0,
    effect: [
      'Tells on the console, each level with those below it:',
      '`1` lifecycle: adapter and limits, devices lost and opened again, rooms, epochs, ranks',
      '`2` a table of kernels with times from timestamp queries, after runs 1, 2, 4, 8 … of each program, means since the table before; a line of totals a run; a line a collective',
      '`3` the plan of each program: buffers, reuse, peak bytes, buckets, the variant of each op and why',
      '`4` the WGSL of each pipeline as submitted',
      '`5` every value of every run: a scan for NaN and infinities after each op, and each op against its reference (one rank; slow)',
    ],
  }),
  naive: define({
    schema: boolean,
    type: 'true or false',
    default: false,
    effect: ['No rewrites and the first variant of every op.'],
    isOfRun: true,
  }),
  variant: define({
    schema: variants,
    type: '`op:variant`, more after commas',
    default: {},
    effect: [
      'Forces variants, where they can run a call: `matmul:direct-8x8`. It goes before tuned ones and the fixed table.',
    ],
    isOfRun: true,
  }),
  trace: define({
    schema: boolean,
    type: 'true or false',
    default: false,
    effect: [
      'Spans of steps, kernels and collectives: as performance.measure in the performance panel of the developer tools, and as a Chrome trace that opens in Perfetto (`exportTrace()`, a button under a finished run, `--trace FILE` of the launcher).',
    ],
  }),
  drop: define({
    schema: v.pipe(amount, v.maxValue(1)),
    type: 'a share from 0 to 1',
    default: 0,
    effect: ['Loses this share of the messages that this rank sends to others.'],
  }),
  delayMs: define({
    schema: amount,
    type: 'milliseconds',
    default: 0,
    effect: ['Sends each message to other ranks so much later.'],
  }),
  stallRank: define({
    schema: v.nullable(v.pipe(amount, v.safeInteger())),
    type: 'a rank',
    default: null,
    effect: ['This rank sends nothing to others, and tells nobody. Give it to every rank.'],
  }),
  cpu: define({
    schema: boolean,
    type: 'true or false',
    default: false,
    effect: [
      'The pages compute on the CPU with the plain references: slow. The library has `setDefaultDevice("cpu")`.',
    ],
  }),
} as const

export type SwitchName = keyof typeof switches
export type SwitchValues = {
  readonly [Name in SwitchName]: v.InferOutput<(typeof switches)[Name]['schema']>
}
/** What may be given: values, or texts as in an address. */
export type SwitchInputs = {
  readonly [Name in SwitchName]?: v.InferInput<(typeof switches)[Name]['schema']>
}

/** Where a value may come from, the first that has one wins. */
export const sources = ['code', 'page parameter', 'launcher'] as const
type Source = (typeof sources)[number]
/** What each source gives, unparsed: crosses from page to worker. */
export type GivenSwitches = Readonly<Record<Source, SwitchInputs>>

export const switchNames = Object.keys(switches) as SwitchName[]

/** The launcher's page parameter, for what it was told by its own flags and environment. */
export const launcherParameter = 'launcher'

/** The environment variable of a switch: `TABRING_DELAY_MS`. */
export const variableOf = (name: SwitchName): string =>
  `TABRING_${name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase()}`

let given: GivenSwitches | undefined
let values: SwitchValues | undefined
let hasTold = false

/** The value of a switch. errors: `config.invalid` for a wrong one, naming where it comes from. */
export function switchValue<Name extends SwitchName>(name: Name): SwitchValues[Name] {
  values ??= settle()
  return values[name]
}

/** Sets switches in code, before anything else that sets them; what is compiled already stays as it is. errors: `config.invalid`. */
export function setSwitches(inputs: SwitchInputs): void {
  const next = given ?? fromSurroundings()
  const code = { ...next.code, ...checked('code', inputs) }
  given = { ...next, code }
  values = undefined
}

/** What was given, for another worker of this page. */
export const givenSwitches = (): GivenSwitches => {
  given ??= fromSurroundings()
  return given
}

/** Takes a page's switches over into its worker; the page has told of them. */
export function takeSwitches(all: GivenSwitches): void {
  given = all
  values = undefined
  hasTold = true
}

/** The page parameters that set switches, to be kept in an address; of those that change a run's numbers only, if wanted. */
export function switchParameters(isOfRunOnly = false): [SwitchName, string][] {
  const page = Object.entries(givenSwitches()['page parameter']) as [SwitchName, string][]
  return page.filter(
    ([name]) => !isOfRunOnly || (switches[name] as Switch<v.GenericSchema>).isOfRun,
  )
}

/** Switches out of environment variables. errors: `config.invalid`. */
export function fromEnvironment(
  environment: Readonly<Record<string, string | undefined>>,
): SwitchInputs {
  const found = switchNames.flatMap((name) => {
    const text = environment[variableOf(name)]
    return text === undefined ? [] : [[name, text]]
  })
  return checked('launcher', Object.fromEntries(found))
}

/** Returns `inputs` when every one of them is right. errors: `config.invalid`, naming source and switch. */
export function checked(source: Source, inputs: Readonly<Record<string, unknown>>): SwitchInputs {
  for (const [name, input] of Object.entries(inputs)) {
    const own = Object.hasOwn(switches, name) ? switches[name as SwitchName] : undefined
    if (!own) {
      throw new TabringError(
        'config.invalid',
        `switches: expected ${switchNames.join(', ')}, got "${name}" (${source}). Correct its name.`,
      )
    }
    if (!v.is(own.schema as v.GenericSchema, input)) {
      throw new TabringError(
        'config.invalid',
        `switches: ${name} must be ${own.type}, got "${String(input)}" (${source}). Correct it or leave it out.`,
      )
    }
  }
  return inputs
}

function settle(): SwitchValues {
  const all = givenSwitches()
  const winners: string[] = []
  const entries = switchNames.map((name) => {
    const [source, ...beaten] = sources.filter((one) => all[one][name] !== undefined)
    if (!source) return [name, switches[name].default]
    const over = beaten.map((one) => ` over ${textOf(all[one][name])} of ${one}`).join('')
    winners.push(`${name}=${textOf(all[source][name])} (${source}${over})`)
    return [name, v.parse(switches[name].schema as v.GenericSchema, all[source][name])]
  })
  if (winners.length > 0 && !hasTold) console.info(`tabring switches: ${winners.join(', ')}`)
  hasTold = true
  return Object.fromEntries(entries)
}

const textOf = (input: unknown): string =>
  typeof input === 'object' ? JSON.stringify(input) : String(input)

function fromSurroundings(): GivenSwitches {
  const { location, process } = globalThis as {
    location?: { search?: string }
    process?: { env?: Record<string, string | undefined> }
  }
  const parameters = new URLSearchParams(location?.search ?? '')
  const named = switchNames.flatMap((name) => {
    const text = parameters.get(name)
    return text === null ? [] : [[name, text]]
  })
  const launcher = parameters.get(launcherParameter)
  return {
    code: {},
    'page parameter': checked('page parameter', Object.fromEntries(named)),
    launcher: launcher
      ? checked('launcher', JSON.parse(launcher))
      : fromEnvironment(process?.env ?? {}),
  }
}

/** docs/switches.md, whole. */
export function describeSwitches(): string {
  const rows = switchNames.map((name) => {
    const { type, default: standard, effect, isOfRun } = switches[name] as Switch<v.GenericSchema>
    const text = isOfRun ? [...effect, 'Give it to every rank.'] : effect
    const shown = typeof standard === 'object' ? 'none' : String(standard)
    return `| \`${name}\` | ${type} | ${shown} | ${text.join('<br>')} |`
  })
  return `# Switches

Generated from \`src/util/switches.ts\`; a test holds the two together. \`npx tsx scripts/write-switches.ts\` writes it anew.

| switch | type | default | effect |
| --- | --- | --- | --- |
${rows.join('\n')}

The first of these that gives a switch wins, and what wins is logged once:

1. code: \`setSwitches({ debug: 2 })\`
2. the page's address: \`?debug=2&variant=matmul:direct-8x8\`
3. the launcher's flag, then its environment: \`npm run train -- --debug 2\`, \`${variableOf('debug')}=2\`
4. the default

What is told goes to the console; the launcher writes it to standard error. A switch that is off costs a step nothing. Browsers round
timestamps to 100 µs unless WebGPU developer features are on (\`chrome://flags/#enable-webgpu-developer-features\`), which the launcher sees to where times are asked for.
`
}
