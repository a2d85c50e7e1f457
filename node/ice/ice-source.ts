import { type IceServer, iceLimits } from '../../src/peer/room/ice-servers.ts'
import { clipped } from '../../src/util/clipped.ts'
import { TabringError } from '../../src/util/errors.ts'
import { checkNumber, checkOptions } from '../../src/util/options.ts'
import { turnCredentials } from './turn-credentials.ts'

/** A STUN or TURN server as it is configured. */
export interface IceServerOption {
  urls: string | readonly string[]
  /** With `credential`: the same for all tabs and for ever. A TURN server without them takes `turnSecret`. */
  username?: string
  credential?: string
}

export interface IceOptions {
  /** Sent to every tab that is about to connect. */
  iceServers: readonly IceServerOption[]
  /** Shared with the TURN servers alone (coturn's `static-auth-secret`): tabs get credentials that are made from it, and that expire. */
  turnSecret?: string
  /** How long such credentials are good for making a connection. Default 10 minutes. */
  turnLifetimeMs?: number
}

export const defaultTurnLifetimeMs = 600_000
/** Below a minute a tab with a slow clock or link would come too late; above a week they do not really expire. */
export const turnLifetimeSec = { min: 60, max: 604_800 } as const

/** The ICE servers for one tab, with its own credentials. `name` is for the TURN server's log. */
export type IceSource = (name: string, nowMs: number) => IceServer[]

/**
 * Returns what makes a tab's ICE servers.
 *
 * errors: `config.invalid`, naming `where`; secrets and credentials are not in it.
 */
export function iceSource(where: string, options: IceOptions): IceSource {
  const known = { iceServers: true, turnSecret: true, turnLifetimeMs: true } as const
  const { turnSecret, turnLifetimeMs } = checkOptions(where, options, known)
  const lifetimeMs = turnLifetimeMs ?? defaultTurnLifetimeMs
  const { min, max } = turnLifetimeSec
  const isLifetime = (ms: number) => ms >= 1000 * min && ms <= 1000 * max
  checkNumber(where, 'turnLifetimeMs', lifetimeMs, isLifetime, `from ${min} s to ${max} s`)
  if (turnSecret !== undefined && (typeof turnSecret !== 'string' || turnSecret === '')) {
    throw invalid(where, 'the secret of the TURN server is empty. Pass it, or omit it')
  }
  const servers = checkServers(where, options.iceServers).map((server) => {
    const turn = server.urls.find((url) => /^turns?:/.test(url))
    const isWithout = server.username === undefined
    if (turn !== undefined && isWithout && turnSecret === undefined) {
      throw invalid(
        where,
        `there is no way to log in at ${turn}. Pass its secret (coturn's static-auth-secret) in TABRING_TURN_SECRET, --turn-secret-file or the option turnSecret, or pass username and credential with its urls`,
      )
    }
    return { server, isTimed: turn !== undefined && isWithout }
  })
  return (name, nowMs) =>
    servers.map(({ server, isTimed }) =>
      isTimed ? { ...server, ...turnCredentials(turnSecret!, name, nowMs + lifetimeMs) } : server,
    )
}

const host = String.raw`(?:\[[0-9a-fA-F:.]+\]|[\w.-]+)`
const iceUrl = new RegExp(
  String.raw`^(?:stuns?:${host}(?::\d{1,5})?|turns?:${host}(?::\d{1,5})?(?:\?transport=(?:udp|tcp))?)$`,
)

/** errors: `config.invalid` for what is no list of ICE servers. */
export function checkServers(where: string, given: unknown): IceServer[] {
  if (!Array.isArray(given) || given.length === 0 || given.length > iceLimits.servers) {
    const got = Array.isArray(given) ? `${given.length}` : withoutContents(given)
    throw invalid(
      where,
      `expected a list of 1 to ${iceLimits.servers} servers like {"urls": "stun:host:3478"}, got ${got}. Correct it`,
    )
  }
  return given.map((one: unknown, i) => checkServer(`${where}: server ${i + 1}`, one))
}

function checkServer(where: string, given: unknown): IceServer {
  if (typeof given !== 'object' || given === null || Array.isArray(given)) {
    throw invalid(
      where,
      `expected an object like {"urls": "stun:host:3478"}, got ${withoutContents(given)}. Correct it`,
    )
  }
  const names = ['urls', 'username', 'credential']
  const unknown = Object.keys(given).find((name) => !names.includes(name))
  if (unknown !== undefined) {
    throw invalid(
      where,
      `expected only ${names.join(', ')}, got "${clipped(unknown)}". Correct the name, or omit it`,
    )
  }
  const { urls, username, credential } = given as Record<string, unknown>
  const list: unknown[] = Array.isArray(urls) ? urls : [urls]
  const max = iceLimits.urlsPerServer
  if (list.length === 0 || list.length > max) {
    throw invalid(where, `expected 1 to ${max} urls, got ${list.length}. Correct it`)
  }
  for (const url of list) {
    if (typeof url === 'string' && url.length <= iceLimits.urlChars && iceUrl.test(url)) continue
    // A user name before the host would be a secret.
    const got =
      typeof url === 'string'
        ? JSON.stringify(clipped(url.replace(/:.*@/s, ':…@')))
        : withoutContents(url)
    throw invalid(
      where,
      `expected a URL like stun:host:3478, turn:host:3478?transport=udp or turns:host:5349, got ${got}. Correct it`,
    )
  }
  if ((username === undefined) !== (credential === undefined)) {
    throw invalid(where, 'username and credential must be given together. Pass both or neither')
  }
  for (const [name, value] of Object.entries({ username, credential })) {
    if (value === undefined || isText(value)) continue
    throw invalid(
      where,
      `expected a ${name} of 1 to ${iceLimits.credentialChars} characters, got ${withoutContents(value)}. Correct it`,
    )
  }
  const isNamed = isText(username) && isText(credential)
  return { urls: list as string[], ...(isNamed && { username, credential }) }
}

const isText = (value: unknown): value is string =>
  typeof value === 'string' && value.length > 0 && value.length <= iceLimits.credentialChars

/** What something is, without its contents, which may be secret. */
function withoutContents(value: unknown): string {
  if (value === undefined || value === null) return 'none'
  if (Array.isArray(value)) return 'a list'
  return typeof value === 'string'
    ? `${value.length} characters`
    : `a value of type ${typeof value}`
}

function invalid(where: string, problem: string): TabringError {
  return new TabringError('config.invalid', `${where}: ${problem}.`)
}
