import { join } from 'node:path'
import type { Page } from 'playwright'
import { expect } from 'vitest'
import { violations } from './axe.ts'
import { pictures } from './page-driver.ts'

/** Wide and narrow, light and dark: the page fits, as does what its panels show, axe finds nothing, and a picture is left as `<name>-<width>-<scheme>.png`. */
export async function expectGoodAppearance(page: Page, name: string): Promise<void> {
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
    const tooWide = await page.evaluate(() =>
      [document.documentElement, ...document.querySelectorAll('.panel')]
        .filter(({ scrollWidth, clientWidth }) => scrollWidth > clientWidth)
        .map((wide) => wide.querySelector('h2')?.textContent),
    )
    expect({ path, tooWide, inTheWay: await violations(page) }).toEqual({
      path,
      tooWide: [],
      inTheWay: [],
    })
  }
}
