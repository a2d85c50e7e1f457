import { chromium } from 'playwright'
import { type BrowserChoice, chosenBrowser, findChosen, installedPaths } from './browser-choice.ts'
import { hasVulkanGpu } from './vulkan.ts'

/**
 * Returns the path of a Chromium-family browser: the one that is chosen, by default with `TABRING_BROWSER`, Playwright's own, or an installed one.
 *
 * errors: `browser.missing` when there is none; its text says how to get one.
 */
export const findBrowser = (choice: BrowserChoice = chosenBrowser('chromium')): string =>
  findChosen(choice, [
    chromium.executablePath(),
    ...installedPaths('chromium', process.platform, process.env),
  ])

export type AdapterChoice = 'auto' | 'software'

/** Keep the tabs that nobody looks at going at full speed: all but one of a launcher's. */
export const flagsAgainstThrottling: readonly string[] = [
  '--disable-background-timer-throttling',
  '--disable-renderer-backgrounding',
  '--disable-backgrounding-occluded-windows',
]

/** Features to switch off. Chromium heeds the last such flag alone, so Playwright's own list is without effect. */
const unwanted = [
  // mDNS names do not resolve in many containers; plain host addresses do.
  'WebRtcHideLocalIpsWithMdns',
  // Two pages that a window loads, even headless, for an address bar that nobody sees: 0.3 s of a core each (Chromium 156).
  'WebUIOmniboxPopup',
  'WebUIOmniboxAimPopup',
]

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
    `--disable-features=${unwanted.join()}`,
    // Without a default route only loopback is left, and Chromium needs a flag that it may use it.
    '--allow-loopback-in-peer-connection',
    ...flagsAgainstThrottling,
  ]
}

/** Permissions without which Chromium gathers no ICE candidates on a machine that has no default route. */
export const iceWithoutRoutePermissions = ['microphone', 'camera']
