import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Browser } from 'playwright'
import { build } from 'vite'
import type { AdapterChoice } from '../node/chromium.ts'
import { type Served, serve } from '../node/serve.ts'
import { launchForTraining } from '../node/train/browser.ts'

/** What every measurement needs: the bench's pages on the real server, and a browser. */
export interface Host {
  /** Address of the bench's folder, with its final slash. */
  url: string
  browser: Browser
  close(): Promise<void>
}

const repository = join(import.meta.dirname, '..')

/** Builds the pages as a release is built, serves them together with signaling, and starts the browser. */
export async function openHost(
  adapter: AdapterChoice,
  note: (line: string) => void,
): Promise<Host> {
  const toClose: (() => Promise<unknown>)[] = []
  const close = async () => {
    for (const one of toClose.reverse()) await one()
  }
  try {
    note('building the pages')
    const root = await mkdtemp(join(tmpdir(), 'tabring-bench-'))
    toClose.push(() => rm(root, { recursive: true }))
    await build({
      root: repository,
      configFile: false,
      logLevel: 'error',
      base: './',
      worker: { format: 'es' },
      build: {
        outDir: root,
        emptyOutDir: true,
        target: 'es2023',
        chunkSizeWarningLimit: 4000,
        rolldownOptions: {
          input: ['page', 'tab'].map((name) => join(import.meta.dirname, `${name}.html`)),
        },
      },
    })
    const served: Served = await serve({ root, port: 0 })
    toClose.push(() => served.close())
    const browser = await launchForTraining(adapter, { isHeaded: false, timesKernels: false }, note)
    toClose.push(() => browser.close())
    return { url: `${served.localUrl}bench/`, browser, close }
  } catch (thrown) {
    await close()
    throw thrown
  }
}
