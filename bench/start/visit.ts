import type { Browser } from 'playwright'
import type { Served } from '../../node/serve.ts'
import { formatFragment, newRoomLink } from '../../src/peer/room/secret.ts'
import { type InjectedEnvironment, injectedName } from '../../src/util/injected.ts'
import { type StartMoment, startMark } from '../../src/worker/page/start-marks.ts'
import { openIn } from '../../tests/support/open-in.ts'

export interface Visit {
  /**
   * Files of JavaScript, by their path below the served folder, that were fetched from opening the page until Start could be pressed and nothing
   * more came: page, workers, and what these load.
   */
  readonly firstLoad: readonly string[]
  /** From the switch to the Lab until its instruments stood there. */
  readonly lab: readonly string[]
  /** From pressing Start to the first step. */
  readonly start: readonly string[]
  /** From pressing Start. units: ms. */
  readonly moments: Readonly<Record<StartMoment, number>>
  /** What it computed on, in words. */
  readonly adapter: string
}

/**
 * Opens a page in a new context, whose cache is empty, presses Start and waits for the first step.
 *
 * What is fetched is what the server was asked for: workers' requests are among it. `path` stands behind the server's address: by
 * default a room's link, as nothing would open the first screen.
 */
export async function visit(
  browser: Browser,
  served: Served,
  path = formatFragment(newRoomLink()),
): Promise<Visit> {
  const { asked, stop } = askedOf(served)
  const context = await browser.newContext({ viewport: { width: 1400, height: 900 } })
  try {
    // As where there is a GPU: with `auto` the software adapter gives way to the device cpu, which is loaded too.
    const environment: InjectedEnvironment = { variables: { TABRING_DEVICE: 'webgpu' }, args: [] }
    await context.addInitScript((given) => Object.assign(globalThis, given), {
      [injectedName]: environment,
    })
    await openIn('show', context)
    const page = await context.newPage()
    await page.goto(`${served.localUrl}${path}`)
    const start = page.locator('button.go:enabled', { hasText: /^Start$/ })
    await start.waitFor()
    for (let count = -1; count !== asked.length; await page.waitForTimeout(quietMs))
      count = asked.length
    // The Show lists members where one asks for them.
    await page.getByRole('button', { name: '1 tab', exact: true }).click()
    const adapter = await page.locator('.member .adapter').first().innerText()
    const firstLoad = [...asked]
    await page.getByRole('button', { name: 'Lab', exact: true }).click()
    await page.locator('.readouts').waitFor()
    const shown = [...asked]
    await start.click()
    await page.locator('.chart[aria-label*="at step"]').waitFor({ timeout: 120_000 })
    await page.locator('.chart canvas').first().waitFor()
    const marks = await page.evaluate(
      (prefix) =>
        performance
          .getEntriesByType('mark')
          .filter(({ name }) => name.startsWith(prefix))
          .map(({ name, startTime }): [string, number] => [name.slice(prefix.length), startTime]),
      startMark,
    )
    const atMs = Object.fromEntries(marks) as Record<StartMoment, number>
    const moments = Object.fromEntries(
      marks.map(([name, ms]) => [name, ms - atMs.pressed]),
    ) as Record<StartMoment, number>
    return {
      firstLoad,
      lab: shown.slice(firstLoad.length),
      start: asked.slice(shown.length),
      moments,
      adapter: adapter.replace(/\s+/g, ' '),
    }
  } finally {
    stop()
    await context.close()
  }
}

/** What comes without being asked for comes within so long, or one after the other. units: ms. */
const quietMs = 2_000

/** Files of JavaScript that are fetched from opening the bare address until the first screen's ranks have made a step. */
export async function visitFirstScreen(browser: Browser, served: Served): Promise<string[]> {
  const { asked, stop } = askedOf(served)
  const page = await browser.newPage()
  try {
    await page.goto(served.localUrl)
    await page.locator('.first-progress', { hasText: /step [1-9]/ }).waitFor()
    return [...asked]
  } finally {
    stop()
    await page.close()
  }
}

/** What the server is asked for until `stop` is called. */
function askedOf({ server }: Served): { asked: string[]; stop: () => void } {
  const asked: string[] = []
  const take = ({ url = '' }: { url?: string | undefined }) => {
    const name = url.replace(/[?#].*/, '').slice(1)
    if (name.endsWith('.js') && !asked.includes(name)) asked.push(name)
  }
  server.on('request', take)
  return { asked, stop: () => server.off('request', take) }
}
