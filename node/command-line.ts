import { type Command, CommanderError, Option } from 'commander'
import { clipped } from '../src/util/clipped.ts'
import { deviceChoices, maxThreads } from '../src/util/device.ts'
import { messageOf, TabringError } from '../src/util/errors.ts'
import { wholeNumber } from './parse-number.ts'

/** `--nproc_per_node` and the like are taken as torchrun takes them: `_` for `-` in an option's name. */
export function withDashes(argument: string): string {
  if (!argument.startsWith('--')) return argument
  const [name, ...value] = argument.split('=')
  return [name.replaceAll('_', '-'), ...value].join('=')
}

const asList = (choices: string) => choices.replace(/, ([^,]+)$/, ' or $1')
const hint = (text: string | undefined) => (text ? ` Did you mean ${text}?` : '')

/** Commander's texts, and what we say instead. */
const rewrites: readonly [form: RegExp, text: (...parts: string[]) => string][] = [
  [
    /^option '(?:-\w, )?(--[\w-]+)[^']*' argument '(.*)' is invalid\. Allowed choices are (.+)\.$/s,
    (_, flag, given, choices) => `${flag}: expected ${asList(choices)}, got "${clipped(given)}".`,
  ],
  [
    /^option '(?:-\w, )?(--[\w-]+)[^']*' argument '.*' is invalid\. (.)(.*)$/s,
    (_, flag, first, rest) => `${flag}: ${first.toLowerCase()}${rest}`,
  ],
  [
    /^option '(?:-\w, )?(--[\w-]+)[^']*' argument missing$/,
    (_, flag) => `${flag}: the value is missing.`,
  ],
  [
    /^unknown option '([^']*)'(?: \(Did you mean (.*)\?\))?$/,
    (_, flag, near) => `${clipped(flag)}: there is no such flag.${hint(near)}`,
  ],
  [
    /^unknown command '([^']*)'(?: \(Did you mean (.*)\?\))?$/,
    (_, name, near) => `there is no command "${clipped(name)}".${hint(near)}`,
  ],
  [/^missing required argument '([^']*)'$/, (_, name) => `the ${name} is missing.`],
  [
    /^too many arguments.*Expected (\d+) arguments? but got (\d+)\.$/,
    (_, max, given) => `expected ${max} arguments, got ${given}.`,
  ],
]

/** What is wrong with a command line that Commander refuses, as one line in our form. */
export function usageProblem(thrown: unknown): string {
  const line = messageOf(thrown)
    .replace(/^error: /, '')
    .replace(/\s*\n\s*/g, ' ')
    .trim()
  for (const [form, text] of rewrites) {
    const found = form.exec(line)
    if (found) return text(...found)
  }
  const short = clipped(line, 400)
  return /[.)]$/.test(short) ? short : `${short}.`
}

/**
 * Lets a command read its arguments; returns its help text where they ask for that, else undefined. `help`: the command line that prints it.
 *
 * errors: `config.invalid`, one line that names the option.
 */
export function readArguments(
  command: Command,
  argv: readonly string[],
  help: string,
): string | undefined {
  let text = ''
  command.exitOverride().configureOutput({
    writeOut: (part) => {
      text += part
    },
    writeErr: () => undefined,
  })
  try {
    command.parse(argv, { from: 'user' })
    return undefined
  } catch (thrown) {
    if (thrown instanceof CommanderError && /^commander\.(help|version)/.test(thrown.code))
      return text
    throw new TabringError('config.invalid', `${usageProblem(thrown)} See ${help}.`, {
      cause: thrown,
    })
  }
}

/** `--device`, in every command: `where` names the tabs that it is for. */
export const deviceFlag = (where = ''): Option =>
  new Option(
    '--device <which>',
    `what ${where || 'tabs'} compute on: auto, a GPU where there is one, else the cpu; webgpu, also where that is a software adapter; cpu, which computes in WebAssembly; reference, slowly in float64 (default: auto)`,
  ).choices(deviceChoices)

/** `--num-threads`, in every command. */
export const threadsFlag = (): Option =>
  new Option(
    '--num-threads <n>',
    'threads of each rank that computes on the cpu; or set OMP_NUM_THREADS (default: the cores, divided by the ranks)',
  ).argParser(wholeNumber(1, maxThreads))
