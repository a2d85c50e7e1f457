import { spawn } from 'node:child_process'
import { Command, InvalidArgumentError } from 'commander'
import { messageOf, TabringError } from '../src/util/errors.ts'
import { ensureBuilt } from './build.ts'
import { defaultPort, type Served, serve } from './serve.ts'

interface StartFlags {
  port?: number
  host?: boolean | string
  open: boolean
  forceBuild: boolean
}

const command = new Command('npm start --')
  .description('Serves the training page together with the signaling server on one port.')
  .option(
    '-p, --port <number>',
    `port (default: ${defaultPort}, or the next free one; a port given here is taken or fails)`,
    parsePort,
  )
  .option(
    '--host [address]',
    'let other machines in, over HTTPS; with an address: listen on that one only',
  )
  .option('--open', 'open the page in the browser', false)
  .option('--force-build', 'build the page even when it is up to date', false)

function parsePort(text: string): number {
  const port = Number(text)
  if (!Number.isInteger(port) || port < 0 || port > 65_535) {
    throw new InvalidArgumentError('Expected a whole number from 0 to 65535.')
  }
  return port
}

/** What a person reads once the server is up. */
function greeting(served: Served): string {
  const lines = ['', `  Tabring is at  ${served.localUrl}`]
  for (const url of served.lanUrls) lines.push(`  in the network ${url}`)
  lines.push(
    '',
    '  Open it in one tab: a room is made. Open the link that it shows in more tabs',
    '  or on other machines, then press start in the first.',
  )
  if (served.certificate) {
    lines.push(
      '',
      '  The certificate is self-signed: each browser warns once, choose "Advanced" and proceed.',
      `  It is kept in ${served.certificate.folder}.`,
    )
  } else {
    lines.push('', '  For other machines: npm start -- --host')
  }
  lines.push('', '  Ctrl-C ends it.', '')
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
  const root = await ensureBuilt({ force: flags.forceBuild, log: (line) => console.log(line) })
  const served = await serve({
    root,
    port: flags.port,
    strictPort: flags.port !== undefined,
    host: flags.host,
    signaling: { log: (line) => console.error(line) },
  })
  console.log(greeting(served))
  if (flags.open) openBrowser(served.localUrl)

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
  console.error(thrown instanceof TabringError ? thrown.message : `start: ${messageOf(thrown)}`)
  process.exit(1)
})
