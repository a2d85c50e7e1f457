import type { ChildProcess } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll } from 'vitest'
import { type DebuggedTab, debuggedBrowser, debugTab } from './debugged-browser.ts'
import { freePort } from './free-port.ts'
import { type Run, startLauncher } from './launcher-process.ts'

/** `tabring run` in a folder with a user's programs, and a way into its tabs. */

export let folder: string
let port: number
let browser: string
const children: ChildProcess[] = []

/** Gives a spec a folder with these files, and ends what it started there after each test. */
export function useDebuggedLauncher(files: Readonly<Record<string, string>>): void {
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'tabring-debugged-'))
    for (const [name, text] of Object.entries(files)) await write(name, text)
    port = await freePort()
    browser = await debuggedBrowser(folder, port)
  })
  afterEach(() => {
    for (const child of children.splice(0)) child.kill('SIGKILL')
  })
  afterAll(() => rm(folder, { recursive: true }))
}

export const write = (name: string, text: string) => writeFile(join(folder, name), text)

/** Starts `tabring run` with these flags and arguments. */
export function start(...argv: readonly string[]): Run {
  const run = startLauncher(folder, 'run', argv, { TABRING_BROWSER: browser })
  children.push(run.child)
  return run
}

export const tabOf = (title: string): Promise<DebuggedTab> => debugTab(port, title)

/** Kills the renderer of the tab that has this title: `rank 1 of 2`. */
export async function crash(title: string): Promise<void> {
  const tab = await tabOf(title)
  tab.crash()
}

/** The browser's flag by which a test finds its process. */
export const browserFlag = (): string => `--remote-debugging-port=${port}`

/** The ranks' lines of one form, which has a group for the rank and one for the words, sorted by rank. */
export const linesOf = ({ received }: Run, form: RegExp): string[] =>
  [...received.stdout.matchAll(form)].map(([, rank, words]) => `${rank} ${words}`).sort()
