import { afterAll, afterEach, beforeAll, expect } from 'vitest'
import { chosenBrowser, findChosen } from '../../node/browser-choice.ts'
import { launchFirefox } from '../../node/firefox/launch.ts'
import type { FirefoxTabs } from '../../node/firefox/tabs.ts'
import type { Tab } from '../../node/tab.ts'

/**
 * A headless Firefox on lavapipe for the tests of this file, which slows hidden tabs as that of a person does; returns what opens a page, as on
 * a separate machine. A test fails that leaves an error behind, thrown by a page or on its console, but for texts that are expected.
 */
export function useFirefox(
  isExpected: (text: string) => boolean = () => false,
): (url: string) => Promise<Tab> {
  let firefox: FirefoxTabs
  const tabs: Tab[] = []
  const complaints: string[] = []
  const complain = (text: string) => {
    if (!isExpected(text)) complaints.push(text)
  }
  beforeAll(async () => {
    const path = findChosen(chosenBrowser('firefox'))
    const options = { isHeaded: false, timesKernels: false, throttles: true }
    firefox = await launchFirefox(path, 'software', options, () => undefined)
  }, 120_000)
  afterAll(() => firefox?.close())
  afterEach(async () => {
    await Promise.all(tabs.splice(0).map((tab) => tab.close()))
    expect(complaints.splice(0)).toEqual([])
  })
  return async (url) => {
    const tab = await firefox.openTab({
      origin: new URL(url).origin,
      onError: (error) => complain(error.message),
      onConsole: (type, text) => type === 'error' && complain(text),
    })
    tabs.push(tab)
    await tab.load(url, 30_000)
    return tab
  }
}

/** The text of the first element that `selector` finds, or what a field holds; empty where there is none. */
export const textIn = (tab: Tab, selector: string): Promise<string> =>
  tab.evaluate((given) => {
    const found = document.querySelector(given)
    return (found instanceof HTMLInputElement ? found.value : found?.textContent) ?? ''
  }, selector)

/** Waits until that text matches. */
export async function seeText(tab: Tab, selector: string, text: RegExp, timeout = 60_000) {
  await expect.poll(() => textIn(tab, selector), { timeout, interval: 100 }).toMatch(text)
}

/** Where the page says how it fares. */
export const statusText = '.status h2 [role=status]'

/** Presses the button of that name, as soon as it can be pressed. */
export async function press(tab: Tab, name: string): Promise<void> {
  const pressed = () =>
    tab.evaluate((wanted) => {
      const buttons = [...document.querySelectorAll('button')]
      const found = buttons.find((one) => !one.disabled && one.textContent?.trim() === wanted)
      found?.click()
      return found !== undefined
    }, name)
  await expect.poll(pressed, { timeout: 120_000, interval: 100, message: name }).toBe(true)
}
