import type { Page } from 'playwright'
import { expect } from 'vitest'

// What tabs of an elastic run show, and faults for them.

export const stepOf = async (page: Page): Promise<number> =>
  Number.parseInt((await page.locator('.progress-words').textContent()) ?? '0', 10)

/** Resolves once the page has shown that step, or a later one. */
export const reaches = (page: Page, step: number, timeout = 90_000) =>
  expect.poll(() => stepOf(page), { timeout }).toBeGreaterThanOrEqual(step)

/** The sentences under the status. */
export const words = (page: Page) => page.locator('.status .words p').first().textContent()

export const says = (page: Page, text: RegExp, timeout = 60_000) =>
  expect.poll(() => words(page), { timeout }).toMatch(text)

/** What a tab that trains on without another one says. */
export const continuedWithout = / left: the run continued from step \d+\./
/** What a tab that has joined says. */
export const joined = /This tab joined after step \d+\./

/** The time that a step takes now. units: ms. */
export async function stepTime(page: Page): Promise<number> {
  const counted = 10
  const step = await stepOf(page)
  await reaches(page, step + 1)
  const beganMs = performance.now()
  const first = await stepOf(page)
  await reaches(page, first + counted)
  return (performance.now() - beganMs) / counted
}

/** `maxMs`, or that many steps on a machine whose time other work takes: there all takes longer. */
export const boundOf = (maxMs: number, stepMs: number, steps = 15): number =>
  Math.max(maxMs, steps * stepMs)

/** Loses a rank. Returns the time from the page's first word of the loss to the next step that it shows. units: ms. */
export async function timeOfLoss(page: Page, lose: () => unknown): Promise<number> {
  // A tab behind another draws a frame a second.
  await page.bringToFront()
  const watch = await page.evaluateHandle(() => {
    const textOf = (selector: string) => document.querySelector(selector)?.textContent ?? ''
    let lost: { atMs: number; step: number } | undefined
    const over = new Promise<number>((resolve, reject) => {
      const words = () => textOf('.status .words p')
      setTimeout(
        () => reject(new Error(`no step after a loss; the page says: ${words()}`)),
        240_000,
      )
      const observer = new MutationObserver(() => {
        const step = Number.parseInt(textOf('.progress-words'), 10)
        if (/ was lost\. The others decide/.test(words())) lost ??= { atMs: Date.now(), step }
        if (!lost || step <= lost.step) return
        observer.disconnect()
        resolve(Date.now() - lost.atMs)
      })
      observer.observe(document.body, { subtree: true, childList: true, characterData: true })
    })
    return { over }
  })
  lose()
  return watch.evaluate(({ over }) => over)
}

/**
 * Lets a tab lose its WebRTC connections, both ways and without a word, and get them back. Call it before they are made: the browser looks at
 * those alone that began under an emulated network.
 */
export async function silenceable(page: Page): Promise<(isSilent: boolean) => Promise<void>> {
  const set = await shapeable(page)
  return (isSilent) => set({ packetLoss: isSilent ? 100 : 0 })
}

/** What a tab's WebRTC connections are like. */
interface Shape {
  /** units: bytes/s; -1 for no limit. */
  readonly uploadThroughput?: number
  /** units: percent. */
  readonly packetLoss?: number
  /** How many packets wait where more are sent than go: later ones are lost. Default: all. */
  readonly packetQueueLength?: number
}

/** As `silenceable`, for connections of any kind. */
export async function shapeable(page: Page): Promise<(shape: Shape) => Promise<void>> {
  const session = await page.context().newCDPSession(page)
  await session.send('Network.enable')
  // Without some latency the browser emulates nothing.
  const ordinary = { offline: false, latency: 1, downloadThroughput: -1, uploadThroughput: -1 }
  const set = async (shape: Shape) => {
    await session.send('Network.emulateNetworkConditions', {
      ...ordinary,
      packetQueueLength: 0,
      ...shape,
    })
  }
  await set({})
  return set
}
