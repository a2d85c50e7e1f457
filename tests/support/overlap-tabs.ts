import type { Browser, Page } from 'playwright'
import { iceWithoutRoutePermissions } from '../../node/chromium.ts'
import { median } from '../../src/measure/median.ts'
import { newRoomUrl } from '../../src/peer/room/room-url.ts'
import type { OverlapTab, OverlapTask, OverlapTimes } from '../e2e/fixtures/overlap-page.ts'

declare global {
  var overlapTab: OverlapTab
}

/** The page, from the repository's root. */
export const overlapPage = 'tests/e2e/fixtures/overlap.html'

export interface OverlapTabs {
  readonly pages: readonly Page[]
  readonly adapter: string
  /** What each link takes. */
  readonly bytesPerSec: number
  /** Of the gradients. */
  readonly bytes: number
  readonly buckets: number
}

/** By round, of the slowest rank. units: ms. */
export type OverlapRounds = Omit<OverlapTimes, 'losses'>

/** How far from the wanted share an exchange may be before the links are set again, and how often that is tried. */
const tolerance = 0.1
const maxTries = 5

/**
 * Opens ranks of one group over WebRTC, whose links are slowed until an exchange takes about as long as a step's computing.
 *
 * A rate guessed from steps of one rank alone is off where ranks share cores: after joining, rounds are timed as they will be, and the links set again.
 */
export async function openOverlapTabs(
  browsers: readonly Browser[],
  url: string,
  ranks: number,
  task: OverlapTask,
  /** Of the computing time, how long an exchange should take. */
  share = 1,
): Promise<OverlapTabs> {
  let bytesPerSec: number | undefined
  for (let tries = 1; ; tries++) {
    const opened = await openAtRate(browsers, url, ranks, task, share, bytesPerSec)
    await timeRounds(opened.pages, 1)
    const times = await timeRounds(opened.pages, 3)
    const off = median(times.exchange) / median(times.compute) / share
    if (Math.abs(off - 1) <= tolerance || tries === maxTries) return opened
    bytesPerSec = opened.bytesPerSec * off
    for (const page of opened.pages) await page.context().close()
  }
}

/** Opens the pages at a rate. The browser paces only connections that are made after the rate was set, so another rate needs other pages. */
async function openAtRate(
  browsers: readonly Browser[],
  url: string,
  ranks: number,
  task: OverlapTask,
  share: number,
  givenRate: number | undefined,
): Promise<OverlapTabs> {
  const pages: Page[] = []
  for (let rank = 0; rank < ranks; rank++) {
    const context = await browsers[rank % browsers.length].newContext()
    await context.grantPermissions(iceWithoutRoutePermissions)
    const page = await context.newPage()
    await page.goto(url)
    await page.waitForFunction(() => globalThis.overlapTab !== undefined)
    pages.push(page)
  }
  const [bytes] = await Promise.all(
    pages.map((page) => page.evaluate((given) => globalThis.overlapTab.prepare(given), task)),
  )
  const bytesPerSec = givenRate ?? (await guessRate(pages, bytes, share))
  const initMethod = newRoomUrl(new URL(url).origin)
  for (const page of pages) {
    const devtools = await page.context().newCDPSession(page)
    await devtools.send('Network.enable')
    await devtools.send('Network.emulateNetworkConditions', {
      offline: false,
      latency: 0,
      downloadThroughput: -1,
      uploadThroughput: bytesPerSec,
      packetLoss: 0,
      packetQueueLength: 0,
    })
  }
  const [buckets] = await Promise.all(
    pages.map((page, rank) =>
      page.evaluate(([options, given]) => globalThis.overlapTab.join(options, given), [
        { initMethod, rank, worldSize: ranks, backend: 'webrtc' },
        task,
      ] as const),
    ),
  )
  const adapter = await pages[0].evaluate(() => globalThis.overlapTab.adapter())
  return { pages, adapter, bytesPerSec, bytes, buckets }
}

/** From steps that all ranks compute at once, the first of them warming up. */
async function guessRate(pages: readonly Page[], bytes: number, share: number): Promise<number> {
  const times = await Promise.all(
    pages.map((page) => page.evaluate((steps) => globalThis.overlapTab.alone(steps), 7)),
  )
  const computeMs = Math.max(...times.map((own) => median(own.slice(2))))
  const sent = (2 * (pages.length - 1) * bytes) / pages.length
  return sent / ((computeMs / 1000) * share)
}

/** Until the slowest rank has the first bucket on the host, by step: nothing can be sent to an end before. units: ms. */
export async function timeFirstBuckets(pages: readonly Page[], steps: number): Promise<number[]> {
  const firsts: number[] = []
  for (let step = 0; step < steps; step++) {
    const byRank = await Promise.all(
      pages.map((page) => page.evaluate(() => globalThis.overlapTab.timeline('overlap'))),
    )
    const ends = byRank.map((marks) => marks.find(([name]) => name === 'bucket 0 on the host')?.[1])
    if (ends.includes(undefined)) throw new Error('expected a mark for bucket 0, got none')
    firsts.push(Math.max(...(ends as number[])))
  }
  return firsts
}

/** errors: an Error where overlap changes a loss. */
export async function timeRounds(pages: readonly Page[], rounds: number): Promise<OverlapRounds> {
  const byRank = await Promise.all(
    pages.map((page) => page.evaluate((count) => globalThis.overlapTab.rounds(count), rounds)),
  )
  for (const { losses } of byRank)
    if (String(losses.overlap) !== String(losses.apart))
      throw new Error(
        `expected equal losses with and without overlap, got ${JSON.stringify(losses)}`,
      )
  const slowest = (kind: keyof OverlapRounds) =>
    byRank[0][kind].map((_, round) => Math.max(...byRank.map((times) => times[kind][round])))
  return {
    overlap: slowest('overlap'),
    apart: slowest('apart'),
    compute: slowest('compute'),
    exchange: slowest('exchange'),
  }
}
