import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { defineBrowserProvider } from '@vitest/browser'
import type { BrowserProvider } from 'vitest/node'
import { makeProfile, preferences } from '../../node/firefox/process.ts'

/** Besides those of a launcher's Firefox, which WebDriver sets there. */
const withoutDriver = {
  'browser.startup.page': 0,
  'datareporting.policy.dataSubmissionEnabled': false,
  'dom.disable_open_during_load': false,
  'dom.max_script_run_time': 0,
  'dom.min_background_timeout_value': 4,
}

/**
 * Vitest's pages in a headless Firefox, started for each: `executable` is its path. `environment` picks the Vulkan driver.
 *
 * Nothing drives the browser: the page runs its specs and reports over its socket.
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
          const profile = await makeProfile({ ...preferences, ...withoutDriver })
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
