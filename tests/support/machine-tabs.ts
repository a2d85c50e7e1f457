import type { Browser, Page } from 'playwright'
import { iceWithoutRoutePermissions } from '../../node/chromium.ts'
import { newRoomUrl } from '../../src/peer/room/room-url.ts'
import type { MachineTab, Place, SumKind } from '../e2e/fixtures/machines-page.ts'

declare global {
  var machineTab: MachineTab
}

/** The page, from the repository's root. */
export const machinesPage = 'tests/e2e/fixtures/machines.html'

export interface MachineTabs {
  /** By rank. */
  readonly pages: readonly Page[]
  readonly places: readonly Place[]
}

/**
 * Opens ranks of one group: those of a machine are tabs of one browser context and reach each other by ports, the others over WebRTC, whose
 * packets the browser makes late.
 *
 * `latencyMs`: on each tab's way out and way in, so a round trip is four of it. `ranks`: on each machine.
 */
export async function openMachineTabs(
  browser: Browser,
  url: string,
  ranks: readonly number[],
  latencyMs: number,
): Promise<MachineTabs> {
  const pages: Page[] = []
  for (const count of ranks) {
    const context = await browser.newContext()
    await context.grantPermissions(iceWithoutRoutePermissions)
    for (let tab = 0; tab < count; tab++) {
      const page = await context.newPage()
      await page.goto(url)
      await page.waitForFunction(() => globalThis.machineTab !== undefined)
      const devtools = await context.newCDPSession(page)
      await devtools.send('Network.enable')
      // It holds for connections that are made from now on.
      await devtools.send('Network.emulateNetworkConditions', {
        offline: false,
        latency: latencyMs,
        downloadThroughput: -1,
        uploadThroughput: -1,
      })
      pages.push(page)
    }
  }
  const initMethod = newRoomUrl(url)
  const places = await Promise.all(
    pages.map((page, rank) =>
      page.evaluate((options) => globalThis.machineTab.join(options), {
        initMethod,
        rank,
        worldSize: pages.length,
      }),
    ),
  )
  return { pages, places }
}

/** Milliseconds of the slowest rank by kind of sum, one a round, in turns. */
export async function timeSums<Kind extends SumKind>(
  { pages }: MachineTabs,
  kinds: readonly Kind[],
  sizeBytes: number,
  rounds: number,
): Promise<Record<Kind, number[]>> {
  const times = Object.fromEntries(kinds.map((kind) => [kind, [] as number[]])) as Record<
    Kind,
    number[]
  >
  // The first round wakes the links up.
  for (let round = -1; round < rounds; round++)
    for (let at = 0; at < kinds.length; at++) {
      const kind = kinds[(round + 1 + at) % kinds.length]!
      const all = await Promise.all(
        pages.map((page) =>
          page.evaluate(([size, name]) => globalThis.machineTab.time(size, name), [
            sizeBytes,
            kind,
          ] as const),
        ),
      )
      if (round >= 0) times[kind].push(Math.max(...all))
    }
  return times
}
