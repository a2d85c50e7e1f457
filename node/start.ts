import { spawn } from 'node:child_process'
import { resolve } from 'node:path'
import { Command, CommanderError, InvalidArgumentError, Option } from 'commander'
import type { DeviceType } from '../src/util/device.ts'
import { messageOf } from '../src/util/errors.ts'
import { checked, launcherParameter } from '../src/util/switches.ts'
import { ensureBuilt } from './build.ts'
import { cpuSwitch, usageProblem } from './command-line.ts'
import { checkDataFolder, idxMount } from './data-folder.ts'
import { addIceFlags, type IceFlags, iceOptionsOf } from './ice/ice-flags.ts'
import { dataMount } from './mounts.ts'
import { defaultPort, type Served, serve } from './serve.ts'

interface StartFlags extends IceFlags {
  port?: number
  host?: boolean | string
  data?: string
  allowOrigin?: string[]
  relay?: boolean
  device?: DeviceType
  visibleDevices?: string
  open?: boolean
  forceBuild?: boolean
}

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
  .option('--open', 'open the page in the browser')
  .option('--force-build', 'build the page even if it is up to date')
addIceFlags(command)
  .helpOption('-h, --help', 'show this help')
  .exitOverride()
  .configureOutput({ writeErr: () => undefined })

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

/** The page's address on this machine, with the data folder and the devices chosen where there are some. */
function pageUrl(served: Served, { data, device, visibleDevices }: StartFlags): string {
  const url = new URL(served.localUrl)
  const words = JSON.stringify({ cpu: cpuSwitch(device), visibleDevices })
  if (data !== undefined) url.search = `?data=${dataMount}`
  if (words !== '{}') url.searchParams.set(launcherParameter, words)
  return url.href
}

/** What a person reads once the server is up. */
function greeting(served: Served, flags: StartFlags): string {
  const lines = ['', `  Tabring is at  ${pageUrl(served, flags)}`]
  for (const url of served.lanUrls) lines.push(`  on the network ${url}`)
  if (served.certificate && served.lanUrls.length === 0)
    lines.push('  no network address was found: connect this machine to a network')
  for (const origin of flags.allowOrigin ?? []) lines.push(`  and through    ${origin}/`)
  if (flags.data !== undefined) {
    lines.push('', `  Data: ${resolve(flags.data)}, at ${dataMount} on the page.`)
  }
  lines.push(
    '',
    '  Open it in one tab to create a room. Open the link that it shows in more tabs',
    '  or on other machines, then press Start in the first tab.',
  )
  if (served.certificate) {
    lines.push(
      '',
      '  The certificate is self-signed: each browser warns once. Choose "Advanced" and proceed.',
      `  It is stored in ${served.certificate.folder}.`,
    )
  } else {
    lines.push('', '  For other machines: npm start -- --host')
  }
  lines.push('', '  Press Ctrl-C to stop.', '')
  return lines.join('\n')
}

function openBrowser(url: string): void {
  const [program, ...args] =
    process.platform === 'darwin'
      ? ['open', url]
      : process.platform === 'win32'
        ? ['cmd', '/c', 'start', '', url]
        : ['xdg-open', url]
  const child = spawn(program, args, { stdio: 'ignore', detached: true })
  child.once('error', (error) =>
    console.error(`--open: could not run ${program} (${error.message}). Open ${url} yourself.`),
  )
  child.unref()
}

async function main(): Promise<void> {
  const flags = command.parse().opts<StartFlags>()
  const { visibleDevices } = flags
  const ice = iceOptionsOf(flags)
  if (visibleDevices !== undefined) checked('launcher', { visibleDevices })
  if (flags.data !== undefined) await checkDataFolder(resolve(flags.data))
  const root = await ensureBuilt({ force: flags.forceBuild, log: (line) => console.log(line) })
  const served = await serve({
    root,
    port: flags.port,
    strictPort: flags.port !== undefined,
    host: flags.host,
    mounts: flags.data === undefined ? undefined : { [dataMount]: idxMount(resolve(flags.data)) },
    signaling: {
      allowedOrigins: flags.allowOrigin ?? [],
      relay: flags.relay ?? false,
      log: (line) => console.error(line),
      ...(ice && { ice }),
    },
  })
  console.log(greeting(served, flags))
  if (flags.open) openBrowser(pageUrl(served, flags))

  let isEnding = false
  const end = () => {
    if (isEnding) process.exit(1) // asked twice
    isEnding = true
    void served.close().then(() => process.exit(0))
  }
  process.on('SIGINT', end)
  process.on('SIGTERM', end)
}

main().catch((thrown) => {
  if (thrown instanceof CommanderError && thrown.exitCode === 0) process.exit(0)
  const text =
    thrown instanceof CommanderError
      ? `${usageProblem(thrown)} See npm start -- --help.`
      : messageOf(thrown)
  console.error(`start: ${text}`)
  process.exit(1)
})
