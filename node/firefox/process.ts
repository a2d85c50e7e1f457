import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'

/** For the profile: without these Firefox gives no WebGPU on Linux, and links no tabs of one machine that has no network. */
export const preferences = {
  'dom.webgpu.enabled': true,
  // The list has Mesa, and with it lavapipe.
  'gfx.webgpu.ignore-blocklist': true,
  // mDNS names do not resolve in many containers; plain host addresses do.
  'media.peerconnection.ice.obfuscate_host_addresses': false,
  'media.peerconnection.ice.loopback': true,
  // A rank, a process.
  'dom.ipc.processCount.webIsolated': 64,
  'app.update.disabledForTesting': true,
  'browser.shell.checkDefaultBrowser': false,
}

/** Keep the tabs that nobody looks at going at full speed: all but one of a launcher's. */
const againstThrottling = {
  'dom.min_background_timeout_value': 4,
  'dom.min_background_timeout_value_without_budget_throttling': 4,
  'dom.timeout.enable_budget_timer_throttling': false,
  'dom.workers.throttling.enabled': false,
  'dom.ipc.processPriorityManager.enabled': false,
}

/** On a loaded machine of two cores it took 5 s. */
const startTimeoutMs = 60_000

/**
 * Waits for the end of its input, which comes when the launcher has gone, by SIGKILL too; then nobody else ends Firefox or removes its profile.
 */
const guard = `
const [, group, profile] = process.argv
process.stdin.resume().on('end', () => {
  try { process.kill(Number(group), 'SIGKILL') } catch {}
  require('node:fs').rmSync(profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 })
})`

export interface FirefoxProcess {
  /** Where it takes WebDriver BiDi. */
  readonly address: string
  /** Ends it, and removes its profile. */
  close(): Promise<void>
}

export interface FirefoxOptions {
  readonly isHeaded: boolean
  /** True if hidden tabs are slowed, as in the Firefox of a person. Default false. */
  readonly throttles?: boolean
  readonly environment: NodeJS.ProcessEnv
}

/** Makes a profile with these preferences, and returns its path. */
export async function makeProfile(given: Readonly<Record<string, unknown>>): Promise<string> {
  const profile = await mkdtemp(join(tmpdir(), 'tabring-firefox-'))
  const lines = Object.entries(given).map(
    ([name, value]) => `user_pref("${name}", ${JSON.stringify(value)});\n`,
  )
  await writeFile(join(profile, 'user.js'), lines.join(''))
  return profile
}

/** Starts Firefox with a new profile. errors: its last words, where it ends or does not answer. */
export async function startFirefox(
  path: string,
  { isHeaded, throttles = false, environment }: FirefoxOptions,
): Promise<FirefoxProcess> {
  const profile = await makeProfile({ ...preferences, ...(!throttles && againstThrottling) })
  const child = spawn(
    path,
    [
      ...(isHeaded ? [] : ['--headless']),
      '--no-remote',
      '--profile',
      profile,
      '--remote-debugging-port=0',
      'about:blank',
    ],
    {
      stdio: ['ignore', 'ignore', 'pipe'],
      // A separate process group: Ctrl-C is the command's own affair.
      detached: process.platform !== 'win32',
      env: { ...environment, MOZ_CRASHREPORTER_DISABLE: '1' },
    },
  )
  const ended = new Promise<void>((resolve) => {
    child.once('exit', () => resolve())
    child.once('error', () => resolve())
  })
  const group = child.pid === undefined ? '0' : groupOf(child.pid)
  const watcher = spawn(process.execPath, ['-e', guard, '--', group, profile], {
    stdio: ['pipe', 'ignore', 'ignore'],
    detached: true,
  })
  watcher.unref()
  const close = async () => {
    if (child.pid !== undefined && child.exitCode === null) kill(group)
    await ended
    await rm(profile, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 })
    watcher.kill('SIGKILL')
  }
  try {
    return { address: await addressOf(child), close }
  } catch (thrown) {
    await close()
    throw thrown
  }
}

/** The id with which `process.kill` ends its helpers too, where the system has such. */
const groupOf = (pid: number): string => String(process.platform === 'win32' ? pid : -pid)

function kill(group: string): void {
  try {
    process.kill(Number(group), 'SIGKILL')
  } catch {
    // Gone meanwhile.
  }
}

function addressOf(child: ChildProcess): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = ''
    const last = () => text.trim().split('\n').at(-1) || 'it printed nothing'
    const timer = setTimeout(
      () => reject(new Error(`no answer within ${startTimeoutMs / 1000} s: ${last()}`)),
      startTimeoutMs,
    )
    const settle = (run: () => void) => {
      clearTimeout(timer)
      run()
    }
    child.stderr?.on('data', (chunk) => {
      // What it prints later is read too, or the pipe would fill.
      if (text.length < 100_000) text += chunk
      const address = /WebDriver BiDi listening on (ws:\S+)/.exec(text)?.[1]
      if (address) settle(() => resolve(address))
    })
    child.once('error', (error) => settle(() => reject(error)))
    child.once('close', (code) =>
      settle(() => reject(new Error(`it ended with ${code}: ${last()}`))),
    )
  })
}
