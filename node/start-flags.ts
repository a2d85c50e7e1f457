import { Command, InvalidArgumentError } from 'commander'
import { clipped } from '../src/util/clipped.ts'
import type { DeviceChoice } from '../src/util/device.ts'
import { TabringError } from '../src/util/errors.ts'
import { deviceFlag, threadsFlag } from './command-line.ts'
import { deviceRules, flagRules } from './flag-rules.ts'
import { addIceFlags, type IceFlags, iceRules } from './ice/ice-flags.ts'
import { dataMount } from './mounts.ts'
import { wholeNumber } from './parse-number.ts'
import { defaultPort } from './serve.ts'

/** Holds the room key; for `tabring run` the secret of its launchers. */
const roomKeyVariable = 'TABRING_ROOM_KEY'

/** About what a home sends. units: MB/s. */
const defaultRelayRate = 8

/** The server takes few guesses from one address, but there are many addresses. */
const minKeyChars = 8

/** What `npm start` was asked for. */
export interface StartFlags extends IceFlags {
  port?: number
  host?: boolean | string
  data?: string
  allowOrigin?: string[]
  relay?: boolean
  relayRate?: number
  roomKey?: string
  ask?: boolean
  log?: string
  cert?: string
  key?: string
  trustProxy?: boolean
  device?: DeviceChoice
  numThreads?: number
  visibleDevices?: string
  open?: boolean
  forceBuild?: boolean
}

function startCommand(): Command {
  const command = new Command('npm start --')
    .description('Serves the training page together with the signaling server on one port.')
    .option(
      '-p, --port <number>',
      `port (default: ${defaultPort}, or the next free one; a port given here must be free)`,
      parsePort,
    )
    .option(
      '--host [address]',
      'accept other machines, over HTTPS; with an address: listen only on that one',
    )
    .option(
      '--data <folder>',
      `offer the four IDX files of this folder (plain or gzip) to the page, at ${dataMount}`,
    )
    .option(
      '--allow-origin <url>',
      'accept pages at this address, a tunnel or proxy to this server; may be repeated',
      addOrigin,
    )
    .option(
      '--relay',
      'let tabs send their data through this server, encrypted end to end, where a network blocks WebRTC; anyone who may make rooms may use it',
    )
    .option(
      '--relay-rate <megabytes>',
      `what one address may send through the relay a second; 0: without a limit (default: ${defaultRelayRate})`,
      wholeNumber(0),
    )
    .addOption(deviceFlag('tabs of this machine'))
    .addOption(threadsFlag())
    .option(
      '--visible-devices <list>',
      'WebGPU devices that the page sees on this machine, renumbered from 0: 0,2',
    )
    .option(
      '--room-key <key>',
      `only people who enter this key on the page make rooms, anyone with a link joins; or set ${roomKeyVariable}, as a command line is seen by all users of the machine`,
    )
    .option('--ask', 'the host of a room lets each newcomer in, instead of anyone with its link')
    .option(
      '--trust-proxy',
      'for a server behind a proxy: count limits by the last address in X-Forwarded-For, which that proxy must set',
    )
    .option('--log <file>', 'append what happens in the rooms to this file, as JSON lines')
    .option('--cert <file>', 'serve https with this certificate, the full chain as PEM')
    .option('--key <file>', 'the key of that certificate, as PEM')
    .option('--open', 'open the page in the browser')
    .option('--force-build', 'build the page even if it is up to date')
  addIceFlags(command)
    .helpOption('-h, --help', 'show this help')
    .exitOverride()
    .configureOutput({ writeErr: () => undefined })
  return command
}

/**
 * Reads the command line, which begins after the script's name.
 *
 * errors: CommanderError, for `--help` with the exit code 0; `config.invalid` for flags that do not go together.
 */
export function startFlags(argv: readonly string[]): StartFlags {
  const command = startCommand()
  const rules = flagRules(command, [
    { flag: '--relay-rate', needs: '--relay' },
    { flag: '--cert', needs: '--key', remedy: 'Name the key of the certificate.' },
    { flag: '--key', needs: '--cert', remedy: 'Name the certificate.' },
    ...deviceRules,
    ...iceRules,
  ])
  const flags = command.parse(argv, { from: 'user' }).opts<StartFlags>()
  rules.check()
  return flags
}

function parsePort(text: string): number {
  const port = Number(text)
  if (!Number.isInteger(port) || port < 0 || port > 65_535) {
    throw new InvalidArgumentError(
      `Expected a whole number from 0 to 65535, got "${clipped(text)}".`,
    )
  }
  return port
}

function addOrigin(text: string, origins: readonly string[] = []): string[] {
  const url = URL.canParse(text) ? new URL(text) : null
  if (!url || !/^https?:$/.test(url.protocol)) {
    throw new InvalidArgumentError(
      `Expected an address like https://name.example:8443, got "${clipped(text)}".`,
    )
  }
  return [...origins, url.origin]
}

/**
 * The key that people need to make rooms; undefined for none.
 *
 * errors: `config.invalid`; the key itself is not in it.
 */
export function roomKeyOf(
  { roomKey: given }: Pick<StartFlags, 'roomKey'>,
  environment: Readonly<Record<string, string | undefined>> = process.env,
): string | undefined {
  const [where, key] =
    given === undefined
      ? [roomKeyVariable, environment[roomKeyVariable] || undefined]
      : ['--room-key', given]
  if (key === undefined) return undefined
  if (key.length >= minKeyChars && !/\p{Cc}/u.test(key) && key === key.trim()) return key
  throw new TabringError(
    'config.invalid',
    `${where}: expected at least ${minKeyChars} characters in one line, without spaces around them, got ${key.length}. Create one with openssl rand -hex 16.`,
  )
}

/** What `--relay-rate` allows. units: bytes/s. */
export const relayRateOf = ({ relayRate = defaultRelayRate }: StartFlags): number =>
  relayRate === 0 ? Number.POSITIVE_INFINITY : 1e6 * relayRate
