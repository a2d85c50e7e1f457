import { existsSync } from 'node:fs'
import { TabringError } from '../src/util/errors.ts'

/** Names a browser executable and goes before every other way of finding one. */
export const browserVariable = 'TABRING_BROWSER'

export const browserKinds = ['chromium', 'firefox'] as const
export type BrowserKind = (typeof browserKinds)[number]

/** Which browser to start. */
export interface BrowserChoice {
  readonly kind: BrowserKind
  /** Of its executable; absent: an installed one. */
  readonly path?: string
  /** What named the path. */
  readonly by?: string
}

/** Of the flag `--browser`. */
export const browserHelp =
  'chromium, firefox, or the path of one (default: TABRING_BROWSER, else chromium)'

const isKind = (text: string): text is BrowserKind =>
  (browserKinds as readonly string[]).includes(text)

const kindOf = (path: string): BrowserKind =>
  /firefox|librewolf|nightly/i.test(path.split(/[\\/]/).at(-1)!) ? 'firefox' : 'chromium'

/** Which browser `--browser` names, a kind or a path; where it names no path, `TABRING_BROWSER` may. */
export function chosenBrowser(
  given?: string,
  environment: NodeJS.ProcessEnv = process.env,
): BrowserChoice {
  if (given !== undefined && !isKind(given))
    return { kind: kindOf(given), path: given, by: '--browser' }
  const named = environment[browserVariable]
  const kind = given ?? (named ? kindOf(named) : 'chromium')
  return named && kindOf(named) === kind ? { kind, path: named, by: browserVariable } : { kind }
}

const names = { chromium: 'Chrome or Chromium', firefox: 'Firefox' } as const

/**
 * Returns the path of the browser that is chosen, or of the first of `candidates` that is there.
 *
 * errors: `browser.missing` when there is none; its text says how to get one.
 */
export function findChosen(
  { kind, path, by }: BrowserChoice,
  candidates = installedPaths(kind, process.platform, process.env),
): string {
  if (path !== undefined) {
    if (existsSync(path)) return path
    throw new TabringError(
      'browser.missing',
      `browser: ${by} names ${path}, which does not exist. ${by === browserVariable ? 'Set it to' : `Use ${browserKinds.join(', ')}, or`} the path of a browser.`,
    )
  }
  const found = candidates.find((one) => one && existsSync(one))
  if (found) return found
  const install = kind === 'chromium' ? 'Run "npx playwright install chromium", install' : 'Install'
  throw new TabringError(
    'browser.missing',
    `browser: no ${names[kind]} found. ${install} one with your package manager, or set ${browserVariable} to its path.`,
  )
}

const macPath = (name: string, file: string) => `/Applications/${name}.app/Contents/MacOS/${file}`

/** By kind and platform, best first; on Windows, in the folders for programs. */
const places: Record<BrowserKind, Readonly<Record<string, readonly string[]>>> = {
  chromium: {
    linux: [
      '/usr/bin/google-chrome-stable',
      '/usr/bin/google-chrome',
      '/usr/bin/chromium',
      '/usr/bin/chromium-browser',
      '/snap/bin/chromium',
    ],
    darwin: [macPath('Google Chrome', 'Google Chrome'), macPath('Chromium', 'Chromium')],
    win32: ['Google\\Chrome\\Application\\chrome.exe', 'Chromium\\Application\\chrome.exe'],
  },
  firefox: {
    linux: ['/usr/bin/firefox', '/usr/bin/firefox-esr', '/snap/bin/firefox'],
    darwin: [macPath('Firefox', 'firefox')],
    win32: ['Mozilla Firefox\\firefox.exe'],
  },
}

/** Where browsers of that kind get installed on `platform`, best first. */
export function installedPaths(
  kind: BrowserKind,
  platform: string,
  environment: NodeJS.ProcessEnv,
): string[] {
  const own = Object.hasOwn(places[kind], platform) ? places[kind][platform] : []
  if (platform !== 'win32') return [...own]
  const folders = [
    environment.ProgramFiles,
    environment['ProgramFiles(x86)'],
    // Installed without an administrator's rights: for one user.
    environment.LOCALAPPDATA,
    'C:\\Program Files',
    'C:\\Program Files (x86)',
  ].filter((folder) => folder !== undefined && folder !== '')
  return own.flatMap((file) => [...new Set(folders)].map((folder) => `${folder}\\${file}`))
}

/** What to do where a browser does not start: `otherwise`, unless it lacks a display. */
export const adviceFor = (isHeaded: boolean, otherwise: string): string =>
  isHeaded
    ? `With --headed it needs a display: omit --headed, or start the command with xvfb-run. ${otherwise}`
    : otherwise
