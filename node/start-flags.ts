import { Command, InvalidArgumentError, Option } from 'commander'
import type { DeviceType } from '../src/util/device.ts'
import { addIceFlags, type IceFlags } from './ice/ice-flags.ts'
import { dataMount } from './mounts.ts'
import { defaultPort } from './serve.ts'

/** What `npm start` was asked for. */
export interface StartFlags extends IceFlags {
  port?: number
  host?: boolean | string
  data?: string
  allowOrigin?: string[]
  relay?: boolean
  trustProxy?: boolean
  device?: DeviceType
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
      'let tabs send their data through this server, encrypted end to end, where a network blocks WebRTC; anyone who can reach the port may use it',
    )
    .addOption(
      new Option(
        '--device <which>',
        'device of the page in tabs of this machine: webgpu, or cpu, which is slow (default: webgpu)',
      ).choices(['cpu', 'webgpu']),
    )
    .option(
      '--visible-devices <list>',
      'WebGPU devices that the page sees on this machine, renumbered from 0: 0,2',
    )
    .option(
      '--trust-proxy',
      'for a server behind a proxy: count limits by the last address in X-Forwarded-For, which that proxy must set',
    )
    .option('--open', 'open the page in the browser')
    .option('--force-build', 'build the page even if it is up to date')
  addIceFlags(command)
    .helpOption('-h, --help', 'show this help')
    .exitOverride()
    .configureOutput({ writeErr: () => undefined })
  return command
}

/**
 * Reads the command line, which begins behind the script's name.
 *
 * errors: CommanderError, for `--help` with the exit code 0.
 */
export const startFlags = (argv: readonly string[]): StartFlags =>
  startCommand().parse(argv, { from: 'user' }).opts<StartFlags>()

function parsePort(text: string): number {
  const port = Number(text)
  if (!Number.isInteger(port) || port < 0 || port > 65_535) {
    throw new InvalidArgumentError(`Expected a whole number from 0 to 65535, got "${text}".`)
  }
  return port
}

function addOrigin(text: string, origins: readonly string[] = []): string[] {
  const url = URL.canParse(text) ? new URL(text) : null
  if (!url || !/^https?:$/.test(url.protocol)) {
    throw new InvalidArgumentError(
      `Expected an address like https://name.example:8443, got "${text}".`,
    )
  }
  return [...origins, url.origin]
}
