import type { Browser } from 'playwright'
import type { AdapterChoice } from '../node/chromium.ts'
import { servePages } from '../node/own-pages.ts'
import { launchForTraining } from '../node/training-browser.ts'

/** What every measurement needs: the bench's pages on the real server, and a browser. */
export interface Host {
  /** Address of the bench's folder, with its final slash. */
  url: string
  browser: Browser
  close(): Promise<void>
}

/** Builds the pages as a release is built, serves them together with signaling, and starts the browser. */
export async function openHost(
  adapter: AdapterChoice,
  note: (line: string) => void,
  pages: readonly string[] = ['bench/page.html', 'bench/tab.html'],
): Promise<Host> {
  const toClose: (() => Promise<unknown>)[] = []
  const close = async () => {
    for (const one of toClose.reverse()) await one()
  }
  try {
    note('building the pages')
    const served = await servePages(...pages)
    toClose.push(() => served.close())
    const browser = await launchForTraining(adapter, { isHeaded: false, timesKernels: false }, note)
    toClose.push(() => browser.close())
    return { url: `${served.localUrl}bench/`, browser, close }
  } catch (thrown) {
    await close()
    throw thrown
  }
}
