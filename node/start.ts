import { spawn } from 'node:child_process'
import { resolve } from 'node:path'
import { CommanderError } from 'commander'
import { messageOf } from '../src/util/errors.ts'
import { checked, launcherParameter } from '../src/util/switches.ts'
import { ensureBuilt } from './build.ts'
import { usageProblem } from './command-line.ts'
import { checkDataFolder, idxMount } from './data-folder.ts'
import { EventLog } from './event-log.ts'
import { deviceOf } from './flag-rules.ts'
import { givenCertificate } from './given-certificate.ts'
import { iceOptionsOf } from './ice/ice-flags.ts'
import { dataMount } from './mounts.ts'
import { type Served, serve } from './serve.ts'
import { relayRateOf, roomKeyOf, type StartFlags, startFlags } from './start-flags.ts'

/** The page's address on this machine, with the data folder and the devices chosen where there are some. */
function pageUrl(served: Served, flags: StartFlags): string {
  const { data, numThreads, visibleDevices } = flags
  const url = new URL(served.localUrl)
  const words = JSON.stringify({ device: deviceOf(flags), numThreads, visibleDevices })
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
  if (roomKeyOf(flags) !== undefined) {
    lines.push('  The page asks for the room key of this server before it creates one.')
  }
  if (served.certificate) {
    lines.push(
      '',
      '  The certificate is self-signed: each browser warns once. Choose "Advanced" and proceed.',
      `  It is stored in ${served.certificate.folder}.`,
    )
  } else if (flags.host === undefined) {
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
  const flags = startFlags(process.argv.slice(2))
  const { visibleDevices } = flags
  const ice = iceOptionsOf(flags)
  const roomKey = roomKeyOf(flags)
  const certificate = await givenCertificate(flags)
  if (visibleDevices !== undefined) checked('launcher', { visibleDevices })
  if (flags.data !== undefined) await checkDataFolder(resolve(flags.data))
  const root = await ensureBuilt({ force: flags.forceBuild, log: (line) => console.log(line) })
  const eventLog =
    flags.log === undefined
      ? null
      : EventLog.open(resolve(flags.log), (line) => console.error(line))
  const served = await serve({
    root,
    port: flags.port,
    strictPort: flags.port !== undefined,
    host: flags.host,
    ...(certificate && { certificate, names: certificate.names }),
    mounts: flags.data === undefined ? undefined : { [dataMount]: idxMount(resolve(flags.data)) },
    signaling: {
      allowedOrigins: flags.allowOrigin ?? [],
      relay: flags.relay ?? false,
      asks: flags.ask ?? false,
      limits: { relayBytesPerSec: relayRateOf(flags) },
      trustsProxy: flags.trustProxy ?? false,
      log: (line) => console.error(line),
      ...(ice && { ice }),
      ...(eventLog && { onEvent: (event) => eventLog.write(event) }),
      ...(roomKey !== undefined && { roomKey }),
    },
  })
  console.log(greeting(served, flags))
  if (flags.open) openBrowser(pageUrl(served, flags))

  let isEnding = false
  const end = () => {
    if (isEnding) process.exit(1) // asked twice
    isEnding = true
    void served.close().then(() => {
      eventLog?.close()
      process.exit(0)
    })
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
