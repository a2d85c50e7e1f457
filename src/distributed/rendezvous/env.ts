import { clipped } from '../../util/clipped.ts'
import { TabringError } from '../../util/errors.ts'
import { type InjectedEnvironment, injectedName } from '../../util/injected.ts'
import { ownOf } from '../../util/own-of.ts'
import { groupVariables, nextGroupName } from '../launcher/next-group.ts'

/**
 * A rank's environment variables, by name: what `tabring run` and `tabring launch` give to every tab. docs/reference/launching.md is checked
 * against this table.
 *
 * All are strings, as in `process.env`, and names and meanings are torchrun's where torchrun has them.
 */
export const variables = {
  RANK: 'This rank: 0 to WORLD_SIZE - 1.',
  LOCAL_RANK: 'This rank on its machine: 0 to LOCAL_WORLD_SIZE - 1.',
  WORLD_SIZE: 'Number of ranks on all machines.',
  LOCAL_WORLD_SIZE: 'Number of ranks on this machine.',
  GROUP_RANK: 'Number of this machine, from 0.',
  NODE_RANK: 'Same as GROUP_RANK, under the name of the flag `--node-rank`.',
  MASTER_ADDR: 'Address of the machine with rank 0.',
  MASTER_PORT: 'Port of the signaling server there.',
  MASTER_URL:
    "WebSocket address at which this tab reaches that signaling server. It is this machine's launcher, which has checked the certificate of MASTER_ADDR and forwards everything to it. Connect to this one; MASTER_ADDR and MASTER_PORT are for people.",
  ROOM_ID:
    'Signaling room of this start of the run: 32 hex digits, the same on all ranks. A restart gets another room.',
  ROOM_KEY:
    'Secret of the room: 43 characters of base64url, the same on all ranks. Keep it out of logs.',
  RELAY:
    "`fallback` if the launcher has `--relay`, else `off`. It is the default of `initProcessGroup`'s option `relay`.",
  RUN_ID: 'Name of the run: `--rdzv-id`, or the number of the Slurm job.',
  RESTART_COUNT:
    'Number of restarts of all ranks so far, 0 at first; with `--elastic` the number of groups before this one.',
  MAX_RESTARTS: 'Most restarts allowed: `--max-restarts`.',
  CHECKPOINT_URL:
    'With `--checkpoint-dir`, on the ranks of machine 0: address of that folder for this start; empty on others. `saveCheckpoint` and `loadCheckpoint` use it automatically, and `launcherFolder()` opens it. Keep it out of logs.',
} as const

/** Name of a variable that the launcher sets for each rank. */
export type VariableName = keyof typeof variables

/** What a launcher sets for a rank: all of the table, but for what only some launchers have. */
export type RankVariables = Record<Exclude<VariableName, 'CHECKPOINT_URL'>, string> & {
  CHECKPOINT_URL?: string
}

/** Variables by name, as in `process.env`. Reading a launcher variable that is not set throws. */
export type RankEnvironment = { readonly [Name in VariableName]: string } & {
  readonly [name: string]: string | undefined
}

const surroundings = globalThis as {
  [injectedName]?: InjectedEnvironment
  location?: { search?: string; hash?: string }
  process?: { env?: Record<string, string | undefined>; argv?: readonly string[] }
}

/** The launcher's word, else the page's address, else the process's environment. */
function read(name: string): string | undefined {
  const { [injectedName]: injected, location, process } = surroundings
  if (injected) return ownOf(injected.variables, name)
  if (location?.search !== undefined) return fromAddress(name, location.search, location.hash ?? '')
  return ownOf(process?.env ?? {}, name)
}

/** Variables by hand: `?RANK=0&WORLD_SIZE=2`, and the room behind the `#`, which browsers keep to themselves. */
function fromAddress(name: string, search: string, hash: string): string | undefined {
  // A link must not say where a model goes, or comes from.
  if (name === ('CHECKPOINT_URL' satisfies VariableName)) return undefined
  const room = { ROOM_ID: 'room', ROOM_KEY: 'key' }[name]
  const found =
    new URLSearchParams(search).get(name) ??
    (room && new URLSearchParams(hash.replace(/^#/, '')).get(room))
  return found ?? undefined
}

function names(): string[] {
  const { [injectedName]: injected, location, process } = surroundings
  if (injected) return Object.keys(injected.variables)
  if (location?.search !== undefined) {
    return Object.keys(variables).filter((name) => read(name) !== undefined)
  }
  return Object.keys(process?.env ?? {})
}

/**
 * The rank's environment variables, as torchrun sets them in `os.environ`: `env.RANK`, `env.WORLD_SIZE`. `'RANK' in env` shows whether a
 * launcher started this rank.
 *
 * In a tab the launcher sets them, or the page's address does (`?RANK=0&WORLD_SIZE=2`, with the room's key after # as `#key=…`); in Node they
 * are those of `process.env`. A worker has none: post it `{ ...env }`.
 * errors: `config.invalid` on reading a variable of the table in docs/reference/launching.md that is not set.
 */
export const env: RankEnvironment = new Proxy({} as RankEnvironment, {
  get(_, name) {
    if (typeof name !== 'string') return undefined
    const value = read(name)
    if (value === undefined && Object.hasOwn(variables, name)) {
      if (nextGroupName in globalThis && groupVariables.has(name))
        throw new TabringError(
          'config.invalid',
          `env: ${name} is not set before the first group of an elastic run. Read it in the function that you pass to runElastic, which "tabring run --elastic" needs.`,
        )
      throw new TabringError(
        'config.invalid',
        `env: ${name} is not set. "npx tabring run" sets it, see "npx tabring docs launching". To set it by hand, add ?${name}=… to the page's address, or set it in Node's environment.`,
      )
    }
    return value
  },
  has: (_, name) => typeof name === 'string' && read(name) !== undefined,
  ownKeys: () => names(),
  getOwnPropertyDescriptor(_, name) {
    const value = typeof name === 'string' ? read(name) : undefined
    if (value === undefined) return undefined
    return { value, enumerable: true, configurable: true, writable: false }
  },
  set(_, name) {
    throw new TabringError(
      'config.invalid',
      `env: cannot set ${clipped(String(name))}, env is read-only. Pass it to the launcher.`,
    )
  },
})

/** Takes what the launcher sets for another group of this rank. */
export function takeVariables(given: Readonly<Record<string, string>>): void {
  const { [injectedName]: injected } = surroundings
  if (injected) injected.variables = given
}

/**
 * The arguments after the module's name on the command line, unchanged: `sys.argv[1:]` of a torchrun script.
 *
 * Without a launcher they are the page's parameters `?args=…&args=…`; in Node those of the process.
 */
export const args: readonly string[] = readArgs()

function readArgs(): readonly string[] {
  const { [injectedName]: injected, location, process } = surroundings
  if (injected) return injected.args
  if (location?.search !== undefined) return new URLSearchParams(location.search).getAll('args')
  return process?.argv?.slice(2) ?? []
}
