import type { Browser } from 'playwright'
import { ensureBuilt } from './build.ts'
import type { AdapterChoice } from './chromium.ts'
import { servePages } from './own-pages.ts'
import { type Served, type ServeOptions, serve } from './serve.ts'
import { type LaunchOptions, launchForTraining } from './training-browser.ts'

export interface HostOptions
  extends Partial<LaunchOptions>,
    Pick<ServeOptions, 'mounts' | 'writable'> {
  readonly adapter: AdapterChoice
  /** Takes words for people: what is built, and on what the browser computes. */
  readonly note: (line: string) => void
  /** HTML files of the repository that are built and served alone, as `servePages` does. Default: the release's pages, with mounts and writable folders. */
  readonly pages?: readonly string[]
}

/** Pages on the real server, and a browser that can compute. */
export interface TrainingHost {
  readonly served: Served
  readonly browser: Browser
  /** Ends the browser, then the server. */
  close(): Promise<void>
}

/** Builds pages if they are stale, serves them together with signaling on a free port, and starts a browser. errors: those of building and of `launchForTraining`. */
export async function openTrainingHost(options: HostOptions): Promise<TrainingHost> {
  const { adapter, note, pages, mounts, writable, ...looks } = options
  const served = pages
    ? await servePages(...pages)
    : await serve({ root: await ensureBuilt({ log: note }), port: 0, mounts, writable })
  try {
    const seen = { isHeaded: false, timesKernels: false, ...looks }
    const browser = await launchForTraining(adapter, seen, note)
    const close = async () => {
      try {
        await browser.close()
      } finally {
        await served.close()
      }
    }
    return { served, browser, close }
  } catch (thrown) {
    await served.close()
    throw thrown
  }
}
