import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { WebSocket } from 'ws'
import { findBrowser } from '../../node/chromium.ts'

/**
 * Writes an executable for TABRING_BROWSER: the browser, which a test reaches besides through the debugging port. Returns its path.
 *
 * For commands that start browsers, whose tabs a test breaks.
 */
export const debuggedBrowser = (folder: string, port: number): Promise<string> =>
  browserWith(folder, `--remote-debugging-port=${port}`)

/** Writes an executable for TABRING_BROWSER: the browser with more flags. Returns its path. */
export async function browserWith(folder: string, flags: string): Promise<string> {
  const path = join(folder, 'browser.sh')
  await writeFile(path, `#!/bin/sh\nexec "${findBrowser()}" ${flags} "$@"\n`, { mode: 0o755 })
  return path
}

interface Target {
  type: string
  title: string
  url: string
  webSocketDebuggerUrl: string
}

/** A way into one tab. */
export interface DebuggedTab {
  /** Resolves with the answer's result. */
  send(method: string, params?: object): Promise<unknown>
  /** Kills the tab's renderer process. */
  crash(): void
}

/** A tab of the browser behind `port` that has this title. */
export async function debugTab(port: number, title: string): Promise<DebuggedTab> {
  const [target] = await targetsOf(port, title)
  return reach(target.webSocketDebuggerUrl)
}

/** All of them, each with its address. */
export async function debugTabs(
  port: number,
  title: string,
): Promise<(DebuggedTab & { readonly url: string })[]> {
  const targets = await targetsOf(port, title)
  return Promise.all(
    targets.map(async ({ url, webSocketDebuggerUrl }) => ({
      url,
      ...(await reach(webSocketDebuggerUrl)),
    })),
  )
}

/** At least one. */
async function targetsOf(port: number, title: string): Promise<Target[]> {
  const answer = await fetch(`http://127.0.0.1:${port}/json/list`)
  const targets = (await answer.json()) as Target[]
  const found = targets.filter((one) => one.type === 'page' && one.title === title)
  if (found.length === 0)
    throw new Error(`no tab "${title}" among ${targets.map((one) => one.title)}`)
  return found
}

/** Ends the browser behind `port`, with all its tabs. */
export async function crashBrowser(port: number): Promise<void> {
  const answer = await fetch(`http://127.0.0.1:${port}/json/version`)
  const { webSocketDebuggerUrl } = (await answer.json()) as Target
  // The end of the connection answers.
  ;(await reach(webSocketDebuggerUrl)).send('Browser.crash').catch(() => undefined)
}

async function reach(url: string): Promise<DebuggedTab> {
  const socket = new WebSocket(url)
  // The browser ends with its tabs.
  socket.on('error', () => undefined)
  await once(socket, 'open')
  let calls = 0
  const ask = (method: string, params: object) => {
    const id = ++calls
    socket.send(JSON.stringify({ id, method, params }))
    return id
  }
  return {
    send: (method, params = {}) =>
      new Promise((resolve, reject) => {
        const id = ask(method, params)
        const onMessage = (data: unknown) => {
          const message = JSON.parse(String(data))
          if (message.id !== id) return
          socket.off('message', onMessage)
          if (message.error) reject(new Error(`${method}: ${message.error.message}`))
          else resolve(message.result)
        }
        socket.on('message', onMessage)
      }),
    crash: () => void ask('Page.crash', {}),
  }
}
