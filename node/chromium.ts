import { existsSync, readdirSync } from 'node:fs'
import { chromium } from 'playwright'
import { TabringError } from '../src/util/errors.ts'

/** Names a browser executable and goes before every other way of finding one. */
export const browserVariable = 'TABRING_BROWSER'

/** Where browsers get installed on `platform`, best first. */
export function installedPaths(platform: string, environment: NodeJS.ProcessEnv): string[] {
  switch (platform) {
    case 'linux':
      return [
        '/usr/bin/google-chrome-stable',
        '/usr/bin/google-chrome',
        '/usr/bin/chromium',
        '/usr/bin/chromium-browser',
        '/snap/bin/chromium',
      ]
    case 'darwin':
      return [
        '/Applications/Google Chrome.app/Contents/MacOS/Google Chrome',
        '/Applications/Chromium.app/Contents/MacOS/Chromium',
      ]
    case 'win32': {
      const folders = [
        environment.ProgramFiles,
        environment['ProgramFiles(x86)'],
        // Installed without an administrator's rights: for one user.
        environment.LOCALAPPDATA,
        'C:\\Program Files',
        'C:\\Program Files (x86)',
      ].filter((folder) => folder !== undefined && folder !== '')
      return ['Google\\Chrome', 'Chromium'].flatMap((browser) =>
        [...new Set(folders)].map((folder) => `${folder}\\${browser}\\Application\\chrome.exe`),
      )
    }
    default:
      return []
  }
}

/**
 * Returns the path of a Chromium-family browser: the one `TABRING_BROWSER` names, Playwright's own, or an installed one.
 *
 * errors: `browser.missing` when there is none; its text says how to get one.
 */
export function findBrowser(environment: NodeJS.ProcessEnv = process.env): string {
  const named = environment[browserVariable]
  if (named) {
    if (existsSync(named)) return named
    throw new TabringError(
      'browser.missing',
      `browser: ${browserVariable} names ${named}, which does not exist. Point it at a Chrome or Chromium executable.`,
    )
  }
  const candidates = [chromium.executablePath(), ...installedPaths(process.platform, environment)]
  const found = candidates.find((path) => path && existsSync(path))
  if (found) return found
  throw new TabringError(
    'browser.missing',
    `browser: no Chrome or Chromium found. Run "npx playwright install chromium", install one with your package manager, or set ${browserVariable} to its path.`,
  )
}

export type AdapterChoice = 'auto' | 'software'

/** Keep the tabs that nobody looks at going at full speed: all but one of a launcher's. */
export const flagsAgainstThrottling: readonly string[] = [
  '--disable-background-timer-throttling',
  '--disable-renderer-backgrounding',
  '--disable-backgrounding-occluded-windows',
]

/** Where the Vulkan loader looks for drivers. */
const driverFolders = ['/usr/share', '/usr/local/share', '/etc'].map((top) => `${top}/vulkan/icd.d`)

const namesIn = (folder: string): string[] => (existsSync(folder) ? readdirSync(folder) : [])

/** Whether Linux shows this process a GPU and has a Vulkan driver for it; Mesa installs drivers for GPUs that are not there, too. */
export function hasVulkanGpu(environment: NodeJS.ProcessEnv, list = namesIn): boolean {
  const isThere =
    list('/dev').some((name) => /^nvidia\d/.test(name)) ||
    list('/dev/dri').some((name) => name.startsWith('renderD'))
  const isNamed = Boolean(environment.VK_DRIVER_FILES || environment.VK_ICD_FILENAMES)
  // lvp: lavapipe, which computes on the CPU.
  const isInstalled = driverFolders.some((folder) =>
    list(folder).some((name) => name.endsWith('.json') && !name.startsWith('lvp')),
  )
  return isThere && (isNamed || isInstalled)
}

/**
 * The command-line flags with which Tabring starts a headless Chromium.
 *
 * `software` forces SwiftShader, the CPU adapter that tests use; `auto` takes the machine's GPU where Chromium offers it.
 */
export function browserFlags(adapter: AdapterChoice): string[] {
  const runsAsRoot = process.platform === 'linux' && process.getuid?.() === 0
  return [
    // Chromium's sandbox refuses to start as root (containers, CI); an ordinary user keeps it.
    ...(runsAsRoot ? ['--no-sandbox'] : []),
    '--enable-unsafe-webgpu',
    ...(adapter === 'software'
      ? ['--use-webgpu-adapter=swiftshader']
      : process.platform === 'linux'
        ? [
            '--enable-features=Vulkan',
            '--disable-vulkan-surface',
            // Without a display Chromium would take no GPU at all (seen with an H100); without a GPU this flag keeps it from any adapter.
            ...(hasVulkanGpu(process.env) ? ['--use-angle=vulkan'] : []),
          ]
        : []),
    // mDNS names do not resolve in many containers; plain host addresses do.
    '--disable-features=WebRtcHideLocalIpsWithMdns',
    // Without a default route only loopback is left, and Chromium needs to be told that it may use it.
    '--allow-loopback-in-peer-connection',
    ...flagsAgainstThrottling,
  ]
}

/** Permissions without which Chromium gathers no ICE candidates on a machine that has no default route. */
export const iceWithoutRoutePermissions = ['microphone', 'camera']
