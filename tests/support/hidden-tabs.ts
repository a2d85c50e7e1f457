import { setTimeout as sleep } from 'node:timers/promises'
import type { Page } from 'playwright'
import { type HeadedBrowser, openHeadedBrowser } from './headed-browser.ts'
import { dataOfTabs, type RankTab, RankTabs } from './rank-tabs.ts'

/** Tabs that train over WebRTC in separate windows, and may be hidden there. */
export interface HiddenTabs {
  readonly headed: HeadedBrowser
  readonly tabs: readonly RankTab[]
  /** Puts another tab in front of each, or takes those away. */
  hide(): Promise<void>
  show(): Promise<void>
  /** Each tab's word: `document.visibilityState`. */
  states(): Promise<string[]>
  /** Steps a second over the next `seconds`, and how often a page's own timer of 50 ms ran in a second, in each tab. */
  measure(seconds: number): Promise<{ stepsPerSec: number; timersPerSec: number[] }>
  close(): Promise<void>
}

interface Ticking {
  tabringTicks: number
}

/** Opens them and returns when they train. `more`: further flags of the browser. errors: those of the run, where one ends. */
export async function openHiddenTabs(
  ranks: number,
  more: readonly string[] = [],
  transport: 'webrtc' | 'port' = 'webrtc',
): Promise<HiddenTabs> {
  const headed = await openHeadedBrowser(more)
  let rankTabs: RankTabs | undefined
  const close = async () => {
    await headed.close()
    await rankTabs?.stop()
  }
  try {
    rankTabs = await RankTabs.start({ train: 2048 }, async () => headed.browser)
    // It trains until its tabs are closed.
    const config = { data: dataOfTabs, seed: 7, batchSize: 64, steps: 1_000_000 } as const
    const tabs = await rankTabs.open(ranks, transport, config, undefined, () => headed.openWindow())
    for (const { page } of tabs) await page.evaluate(startTicking)
    const ended = Promise.race(
      tabs.map(async ({ done }) => {
        const end = await done
        throw new Error(`training ended: ${end.ok ? 'too early' : `${end.code}: ${end.message}`}`)
      }),
    )
    ended.catch(() => undefined)
    const [first] = tabs
    await Promise.race([first.saw((event) => event.event === 'step' && event.step >= 20), ended])
    const covers: Page[] = []
    return {
      headed,
      tabs,
      close,
      async hide() {
        for (const { page } of tabs) covers.push(await headed.openInFrontOf(page))
        await reach(tabs, 'hidden')
      },
      async show() {
        for (const cover of covers.splice(0)) await cover.close()
        await reach(tabs, 'visible')
      },
      states: () => statesOf(tabs),
      async measure(seconds) {
        const count = () => first.events.filter(({ event }) => event === 'step').length
        const ticks = () => Promise.all(tabs.map(({ page }) => page.evaluate(readTicks)))
        const ticksBefore = await ticks()
        const before = count()
        const began = performance.now()
        await Promise.race([sleep(seconds * 1000), ended])
        const tookSec = (performance.now() - began) / 1000
        const stepsPerSec = (count() - before) / tookSec
        const timersPerSec = (await ticks()).map((after, i) => (after - ticksBefore[i]) / tookSec)
        return { stepsPerSec, timersPerSec }
      },
    }
  } catch (thrown) {
    await close()
    throw thrown
  }
}

const statesOf = (tabs: readonly RankTab[]) =>
  Promise.all(tabs.map(({ page }) => page.evaluate(() => document.visibilityState)))

async function reach(tabs: readonly RankTab[], state: DocumentVisibilityState): Promise<void> {
  // Not waitForFunction, which polls by animation frames: a hidden page has none.
  for (let tries = 0; tries < 100; tries++) {
    if ((await statesOf(tabs)).every((one) => one === state)) return
    await sleep(50)
  }
  throw new Error(`headed browser: expected all tabs ${state}, got ${await statesOf(tabs)}`)
}

/**
 * What the browser does to a timer of the page shows that it throttles. As text: in a function that has a name, tsx calls a helper that
 * the page has not.
 */
const startTicking =
  'globalThis.tabringTicks = 0; (function tick() { tabringTicks++; setTimeout(tick, 50) })()'

const readTicks = () => (globalThis as unknown as Ticking).tabringTicks
