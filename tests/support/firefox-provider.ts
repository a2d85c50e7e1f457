import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { defineBrowserProvider } from '@vitest/browser'
import type { BrowserProvider } from 'vitest/node'

/** WebGPU on Linux, on lavapipe too, and no pages or downloads that people would see. */
const preferences = {
  'dom.webgpu.enabled': true,
  'gfx.webgpu.ignore-blocklist': true,
  'media.peerconnection.ice.loopback': true,
  'media.peerconnection.ice.obfuscate_host_addresses': false,
  'browser.shell.checkDefaultBrowser': false,
  'browser.startup.page': 0,
  'datareporting.policy.dataSubmissionEnabled': false,
  'dom.disable_open_during_load': false,
  'dom.max_script_run_time': 0,
  'dom.min_background_timeout_value': 4,
  'app.update.auto': false,
}

/**
 * Vitest's pages in a headless Firefox, started for each: `executable` is its path. `environment` picks the Vulkan driver.
 *
 * Nothing drives the browser: the page runs its specs by itself and reports over its socket.
 */
export const firefox = (executable: string, environment: NodeJS.ProcessEnv) =>
  defineBrowserProvider({
    name: 'firefox',
    supportedBrowser: ['firefox'] as const,
    options: {},
    providerFactory: (): BrowserProvider => {
      const started = new Map<ChildProcess, string>()
      const end = async () => {
        for (const [child, profile] of started) {
          const closed = child.exitCode === null && child.signalCode === null && once(child, 'exit')
          child.kill()
          await closed
          rmSync(profile, { recursive: true, force: true, maxRetries: 5 })
        }
        started.clear()
      }
      return {
        name: 'firefox',
        supportsParallelism: false,
        getCommandsContext: () => ({}),
        async openPage(_sessionId, url) {
          await end()
          const profile = mkdtempSync(join(tmpdir(), 'tabring-firefox-'))
          const lines = Object.entries(preferences).map(
            ([name, value]) => `user_pref(${JSON.stringify(name)}, ${JSON.stringify(value)});`,
          )
          writeFileSync(join(profile, 'user.js'), lines.join('\n'))
          const args = ['--headless', '--no-remote', '--profile', profile, url]
          const child = spawn(executable, args, {
            env: { ...process.env, ...environment },
            stdio: 'ignore',
          })
          started.set(child, profile)
        },
        close: end,
      }
    },
  })
