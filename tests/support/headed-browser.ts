import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { delimiter, join } from 'node:path'
import { createInterface } from 'node:readline'
import type { Readable } from 'node:stream'
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright'
import {
  browserFlags,
  findBrowser,
  flagsAgainstThrottling,
  iceWithoutRoutePermissions,
} from '../../node/chromium.ts'

/** Chromium as a person has it, on a virtual screen: with windows, and with all that it does to tabs nobody looks at. */
export interface HeadedBrowser {
  readonly browser: Browser
  readonly context: BrowserContext
  /** The flags of the running process, as it sees them. */
  readonly flags: readonly string[]
  /** Opens a tab in a new window. */
  openWindow(): Promise<Page>
  /** Another tab in the window of `page`, in front of it. */
  openInFrontOf(page: Page): Promise<Page>
  close(): Promise<void>
}

const startTimeoutMs = 30_000

/**
 * Starts Xvfb and a Chromium in it, without any flag of Playwright's and without ours that keep hidden tabs running, and attaches to it
 * without emulating focus, which would make every tab say that it is visible.
 *
 * errors: an Error that names Xvfb where there is none.
 */
export async function openHeadedBrowser(more: readonly string[] = []): Promise<HeadedBrowser> {
  const toClose: (() => Promise<unknown>)[] = []
  const close = async () => {
    for (const one of toClose.splice(0).reverse()) await one()
  }
  try {
    const screen = await startScreen()
    toClose.push(() => stop(screen.process))
    const folder = await mkdtemp(join(tmpdir(), 'tabring-headed-'))
    toClose.push(() => rm(folder, { recursive: true, force: true, maxRetries: 5 }))
    const started = await startChromium(folder, screen.display, more)
    toClose.push(() => stop(started.process))
    const browser = await chromium.connectOverCDP(started.address, {
      noDefaults: true,
      isLocal: true,
    })
    toClose.push(() => browser.close())
    return await headed(browser, started.process, close)
  } catch (thrown) {
    await close()
    throw thrown
  }
}

async function headed(
  browser: Browser,
  { pid }: ChildProcess,
  close: () => Promise<void>,
): Promise<HeadedBrowser> {
  const [context] = browser.contexts()
  await context.grantPermissions(iceWithoutRoutePermissions)
  const devtools = await browser.newBrowserCDPSession()
  return {
    browser,
    context,
    flags: readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').slice(1),
    async openWindow() {
      const opened = context.waitForEvent('page')
      await devtools.send('Target.createTarget', { url: 'about:blank', newWindow: true })
      return opened
    },
    async openInFrontOf(page) {
      const own = await context.newCDPSession(page)
      const opened = context.waitForEvent('page')
      // As by a click on a link: without the gesture the browser blocks it.
      await own.send('Runtime.evaluate', {
        expression: "void open('about:blank')",
        userGesture: true,
      })
      await own.detach()
      return opened
    },
    close,
  }
}

async function startScreen(): Promise<{ process: ChildProcess; display: string }> {
  const found = (process.env.PATH ?? '')
    .split(delimiter)
    .some((folder) => existsSync(join(folder, 'Xvfb')))
  if (!found) {
    throw new Error(
      'headed browser: expected Xvfb on the PATH, got none. Install it: apt-get install xvfb.',
    )
  }
  // It takes a display that is free and writes its number to this descriptor.
  const child = spawn(
    'Xvfb',
    ['-displayfd', '3', '-screen', '0', '1280x800x24', '-nolisten', 'tcp'],
    { stdio: ['ignore', 'ignore', 'ignore', 'pipe'] },
  )
  const [line] = await firstLine(child, child.stdio[3] as Readable, /^\d+$/, 'Xvfb')
  return { process: child, display: `:${line}` }
}

async function startChromium(
  folder: string,
  display: string,
  more: readonly string[],
): Promise<{ process: ChildProcess; address: string }> {
  const flags = browserFlags('software').filter((flag) => !flagsAgainstThrottling.includes(flag))
  const child = spawn(
    findBrowser(),
    [
      ...flags,
      ...more,
      `--user-data-dir=${folder}`,
      '--remote-debugging-port=0',
      '--no-first-run',
      '--no-default-browser-check',
      '--password-store=basic',
      'about:blank',
    ],
    { stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, DISPLAY: display } },
  )
  const [, address] = await firstLine(
    child,
    child.stderr!,
    /^DevTools listening on (ws:.*)$/,
    'Chromium',
  )
  return { process: child, address }
}

/** The first line of `stream` that matches. errors: the process ended, or said nothing like it in time. */
function firstLine(
  child: ChildProcess,
  stream: Readable,
  pattern: RegExp,
  name: string,
): Promise<RegExpExecArray> {
  return new Promise((resolve, reject) => {
    const said: string[] = []
    const fail = (what: string) =>
      reject(new Error(`headed browser: ${name} ${what}. ${said.slice(-5).join(' ')}`))
    const timer = setTimeout(
      () => fail(`said nothing for ${startTimeoutMs / 1000} s`),
      startTimeoutMs,
    )
    child.once('error', (error) => fail(`did not start: ${error.message}`))
    child.once('exit', (code) => fail(`ended with code ${code}`))
    createInterface({ input: stream }).on('line', (line) => {
      said.push(line)
      const match = pattern.exec(line)
      if (!match) return
      clearTimeout(timer)
      resolve(match)
    })
  })
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return
  const ended = once(child, 'exit')
  child.kill('SIGTERM')
  const timer = setTimeout(() => child.kill('SIGKILL'), 5000)
  await ended
  clearTimeout(timer)
}
