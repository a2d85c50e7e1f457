import { join } from 'node:path'
import type { Page } from 'playwright'
import { expect } from 'vitest'
import { violations } from './axe.ts'
import { pictures } from './page-driver.ts'

/** Wide and narrow, light and dark: the page fits, axe finds nothing, and a picture is left as `<name>-<width>-<scheme>.png`. */
export async function expectGoodLooks(page: Page, name: string): Promise<void> {
  for (const [width, colorScheme] of [
    [1280, 'light'],
    [1280, 'dark'],
    [390, 'light'],
    [390, 'dark'],
  ] as const) {
    await page.setViewportSize({ width, height: 900 })
    await page.emulateMedia({ colorScheme })
    const path = join(pictures, `${name}-${width}-${colorScheme}.png`)
    await page.screenshot({ path, fullPage: true })
    const tooWide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)
    const found = { tooWide: Math.max(0, tooWide), inTheWay: await violations(page) }
    expect({ path, ...found }).toEqual({ path, tooWide: 0, inTheWay: [] })
  }
}
