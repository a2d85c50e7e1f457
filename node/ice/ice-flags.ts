import { readFileSync } from 'node:fs'
import type { Command } from 'commander'
import { TabringError } from '../../src/util/errors.ts'
import type { FlagRule } from '../flag-rules.ts'
import { wholeNumber } from '../parse-number.ts'
import {
  defaultTurnLifetimeMs,
  type IceOptions,
  type IceServerOption,
  iceSource,
  turnLifetimeSec,
} from './ice-source.ts'

/** Holds the TURN server's secret: what stands in a command line is seen by all users of the machine. */
export const turnSecretVariable = 'TABRING_TURN_SECRET'

/** ICE flags, as Commander gives them. */
export interface IceFlags {
  iceServers?: string
  turnSecretFile?: string
  turnLifetime?: number
}

const { min, max } = turnLifetimeSec

/** Adds the flags that say which STUN and TURN servers tabs receive. */
export function addIceFlags(command: Command): Command {
  return command
    .option(
      '--ice-servers <urls|file>',
      'STUN and TURN servers for the tabs: stun:HOST,turn:HOST:3478, or a JSON file with the iceServers of an RTCPeerConnection (default: none)',
    )
    .option(
      '--turn-secret-file <file>',
      `file with the secret shared with the TURN servers (coturn: static-auth-secret), from which tabs get expiring credentials; or set ${turnSecretVariable}`,
    )
    .option(
      '--turn-lifetime <seconds>',
      `how long a tab may connect with these credentials (default: ${defaultTurnLifetimeMs / 1000})`,
      wholeNumber(min, max),
    )
}

export const iceRules: readonly FlagRule[] = ['--turn-secret-file', '--turn-lifetime'].map(
  (flag) => ({ flag, needs: '--ice-servers', remedy: 'Name the TURN server.' }),
)

/**
 * What the flags and the environment ask for; undefined without `--ice-servers`.
 *
 * errors: `config.invalid`, naming the flag; secrets and credentials are not in it.
 */
export function iceOptionsOf(
  { iceServers, turnSecretFile, turnLifetime }: IceFlags,
  environment: Readonly<Record<string, string | undefined>> = process.env,
): IceOptions | undefined {
  const where = '--ice-servers'
  if (iceServers === undefined) return undefined
  const options: IceOptions = { iceServers: serversOf(where, iceServers) }
  const secret =
    turnSecretFile === undefined
      ? environment[turnSecretVariable] || undefined
      : secretIn('--turn-secret-file', turnSecretFile)
  if (secret !== undefined) options.turnSecret = secret
  if (turnLifetime !== undefined) options.turnLifetimeMs = 1000 * turnLifetime
  iceSource(where, options) // complains here and now
  return options
}

function serversOf(where: string, given: string): IceServerOption[] {
  if (/^(stun|turn)s?:/.test(given)) return given.split(',').map((urls) => ({ urls: urls.trim() }))
  if (/^\s*[[{]/.test(given)) {
    throw invalid(where, 'expected URLs or the name of a file, got JSON. Write it to a file')
  }
  const text = readText(where, given)
  try {
    return JSON.parse(text) as IceServerOption[]
  } catch {
    // Without the parser's own words, which quote the file.
    throw invalid(where, `${given} does not contain JSON. Write [{"urls": "stun:host:3478"}]`)
  }
}

/** The first line of a file, which is all that `openssl rand -hex 32 > file` writes. */
function secretIn(where: string, path: string): string {
  const text = readText(where, path).replace(/\r?\n$/, '')
  if (text !== '' && !/[\r\n]/.test(text)) return text
  throw invalid(
    where,
    `expected one line in ${path}, got ${text === '' ? 'none' : 'several'}. Correct it`,
  )
}

function readText(where: string, path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    throw invalid(where, `cannot read ${path}. Correct the path`)
  }
}

function invalid(where: string, problem: string): TabringError {
  return new TabringError('config.invalid', `${where}: ${problem}.`)
}
