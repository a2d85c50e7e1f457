import type { Browser, Page } from 'playwright'

/** Ids of the browser's renderer processes. */
async function renderers(browser: Browser): Promise<number[]> {
  const session = await browser.newBrowserCDPSession()
  const { processInfo } = await session.send('SystemInfo.getProcessInfo')
  await session.detach()
  return processInfo.flatMap(({ type, id }) => (type === 'renderer' ? [id] : []))
}

/** A tab, and what sends signals to its renderer processes. */
export interface OwnProcess {
  readonly page: Page
  signal(name: NodeJS.Signals): void
}

/** Opens a tab in a separate profile, so that its processes are those that come meanwhile. Other tabs must be open, with all that they start. */
export async function openInOwnProcess(
  browser: Browser,
  open: () => Promise<Page>,
): Promise<OwnProcess> {
  const before = new Set(await renderers(browser))
  const page = await open()
  const own = (await renderers(browser)).filter((id) => !before.has(id))
  if (own.length === 0) throw new Error('the tab has no process of its own')
  return {
    page,
    signal(name) {
      for (const id of own) {
        try {
          process.kill(id, name)
        } catch {
          // One that the browser kept in reserve may be gone.
        }
      }
    },
  }
}
