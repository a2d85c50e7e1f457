import * as v from 'valibot'
import { clipped } from './clipped.ts'
import { maxThreads } from './device.ts'
import { TabringError } from './errors.ts'
import { type InjectedEnvironment, injectedName } from './injected.ts'
import { isRecord, kindOf, quoted } from './kind-of.ts'
import { checkRecord } from './options.ts'
import { switches, switchNames } from './switch-table.ts'
import type { SwitchInputs, SwitchName, SwitchValues } from './switch-values.ts'

// Readers of the look-inside switches. A value set in code goes before a page parameter, that before the launcher's flag or
// environment, that before the default. Reading one is looking up a field; nothing reads one inside a step.

export type { SwitchInputs, SwitchName, SwitchValues }

/** Where a value may come from, the first that has one wins. */
export const sources = ['code', 'page parameter', 'launcher'] as const
type Source = (typeof sources)[number]
/** What each source gives, unparsed: crosses from page to worker. */
export type GivenSwitches = Readonly<Record<Source, SwitchInputs>>

/** The launcher's page parameter, for what its own flags and environment set. */
export const launcherParameter = 'launcher'

/** The environment variable of a switch: `TABRING_DELAY_MS`. */
export const variableOf = (name: SwitchName): string =>
  `TABRING_${name.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase()}`

let given: GivenSwitches | undefined
let values: SwitchValues | undefined
let hasReported = false
const fixed = new Set<SwitchName>()

/** The value of a switch. errors: `config.invalid` for a wrong one, naming where it comes from. */
export function switchValue<Name extends SwitchName>(name: Name): SwitchValues[Name] {
  values ??= settle()
  return values[name]
}

/** The value of a switch, which nothing in code may set from now on. errors: as switchValue. */
export function fixedSwitch<Name extends SwitchName>(name: Name): SwitchValues[Name] {
  const value = switchValue(name)
  fixed.add(name)
  return value
}

/**
 * Sets switches in code, with precedence over every other source. Programs that are already compiled do not change.
 *
 * errors: `config.invalid`; `graph.misuse` for a switch that can no longer change because it is in use.
 */
export function setSwitches(inputs: SwitchInputs): void {
  checkRecord('setSwitches', 'inputs', inputs)
  const next = given ?? fromSurroundings()
  const code = { ...next.code, ...checked('code', inputs) }
  const late = switchNames.find((name) => fixed.has(name) && inputs[name] !== undefined)
  if (late) {
    throw new TabringError(
      'graph.misuse',
      `switches: ${late} is in use, too late for ${textOf(inputs[late])}. Set it at the start of the program.`,
    )
  }
  given = { ...next, code }
  values = undefined
}

/** What was given, for another worker of this page. */
export const givenSwitches = (): GivenSwitches => {
  given ??= fromSurroundings()
  return given
}

/** Takes a page's switches over into its worker; the page has reported them. */
export function takeSwitches(all: GivenSwitches): void {
  given = all
  values = undefined
  hasReported = true
}

/** The page parameters that set switches, to be kept in an address, the launcher's words too; or of those that change a run's numbers only. */
export function switchParameters(isOfRunOnly = false): [string, string][] {
  const { 'page parameter': given, launcher } = givenSwitches()
  const page = Object.entries(given) as [SwitchName, string][]
  if (isOfRunOnly) return page.filter(([name]) => switches[name].isOfRun)
  const words = JSON.stringify(launcher)
  return words === '{}' ? page : [...page, [launcherParameter, words]]
}

/** Switches out of environment variables. errors: `config.invalid`. */
export function fromEnvironment(
  environment: Readonly<Record<string, string | undefined>>,
): SwitchInputs {
  const found = switchNames.flatMap((name) => {
    const text = environment[variableOf(name)]
    // A shell sets what it wants to leave out to nothing.
    const isLeftOut = text === undefined || (text === '' && !v.is(switches[name].schema, text))
    return isLeftOut ? [] : [[name, text]]
  })
  // Other programs read it too: it may be empty, of several levels, and more than this one takes.
  const [threads] = environment.OMP_NUM_THREADS?.split(',') ?? []
  const numThreads = Math.min(Number(threads), maxThreads) || threads
  return {
    ...(threads && checked('OMP_NUM_THREADS', { numThreads })),
    ...checked('launcher', Object.fromEntries(found)),
  }
}

/** Switches out of the page parameter of a launcher, which is JSON. errors: `config.invalid`. */
export function launcherSwitches(text: string): SwitchInputs {
  let inputs: unknown
  try {
    inputs = JSON.parse(text)
  } catch {
    inputs = undefined
  }
  if (isRecord(inputs)) return checked('launcher', inputs)
  throw new TabringError(
    'config.invalid',
    `switches: expected a JSON object in the page parameter "${launcherParameter}", got ${quoted(text)}. Open the page from its launcher again.`,
  )
}

/** Returns `inputs` when every one of them is right. errors: `config.invalid`, naming source and switch. */
export function checked(source: string, inputs: Readonly<Record<string, unknown>>): SwitchInputs {
  for (const [name, input] of Object.entries(inputs)) {
    const own = Object.hasOwn(switches, name) ? switches[name as SwitchName] : undefined
    if (!own) {
      throw new TabringError(
        'config.invalid',
        `switches: unknown switch "${clipped(name)}" (${source}). Use one of ${switchNames.join(', ')}.`,
      )
    }
    if (!v.is(own.schema, input)) {
      throw new TabringError(
        'config.invalid',
        `switches: ${name} must be ${own.type}, got ${typeof input === 'string' ? quoted(input) : kindOf(input)} (${source}). Correct or remove it.`,
      )
    }
  }
  return inputs
}

/** The value that a right input stands for; the default for none. */
export const parsed = <Name extends SwitchName>(
  name: Name,
  input: SwitchInputs[Name],
): SwitchValues[Name] =>
  input === undefined ? switches[name].default : v.parse(switches[name].schema, input)

function settle(): SwitchValues {
  const all = givenSwitches()
  const winners: string[] = []
  const entries = switchNames.map((name) => {
    const [source, ...beaten] = sources.filter((one) => all[one][name] !== undefined)
    if (!source) return [name, switches[name].default]
    const over = beaten.map((one) => ` over ${textOf(all[one][name])} of ${one}`).join('')
    // Launchers divide the cores unasked, and the line about the device has the threads.
    if (name !== 'numThreads' || source !== 'launcher')
      winners.push(`${name}=${textOf(all[source][name])} (${source}${over})`)
    return [name, parsed(name, all[source][name])]
  })
  if (winners.length > 0 && !hasReported) console.info(`tabring switches: ${winners.join(', ')}`)
  hasReported = true
  return Object.fromEntries(entries)
}

const textOf = (input: unknown): string =>
  typeof input === 'object' ? JSON.stringify(input) : String(input)

function fromSurroundings(): GivenSwitches {
  const {
    location,
    process,
    [injectedName]: injected,
  } = globalThis as {
    [injectedName]?: InjectedEnvironment
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
      ? launcherSwitches(launcher)
      : fromEnvironment({ ...process?.env, ...injected?.variables }),
  }
}
