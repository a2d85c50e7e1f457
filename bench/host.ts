import type { Browser } from 'playwright'
import type { AdapterChoice } from '../node/chromium.ts'
import { openTrainingHost } from '../node/training-host.ts'

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
  note('building the pages')
  const { served, browser, close } = await openTrainingHost({ adapter, note, pages })
  return { url: `${served.localUrl}bench/`, browser, close }
}
