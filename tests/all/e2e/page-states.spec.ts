import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Page } from 'playwright'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type {} from '../../e2e/fixtures/states.tsx'
import { repository } from '../../support/repository.ts'
import { openStates, type StatesPage } from '../../support/states-page.ts'

/**
 * Every designed state of the page at three widths: nothing sticks out, nothing complains, every control has a name.
 * Each is photographed for people to look at, in test-results/states. With TABRING_PICTURES naming a folder, the pictures
 * go there, dark ones and the narrowest too.
 */
const chosen = process.env.TABRING_PICTURES
const pictures = chosen || join(repository, 'test-results', 'states')
const sizes = [
  { width: 1400, height: 900, isPhotographed: true },
  { width: 390, height: 844, isPhotographed: true },
  { width: 375, height: 667, isPhotographed: false },
]

/** The charts are drawn on the frame after a state is shown. */
const drawn = (page: Page) =>
  page.evaluate(
    () => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))),
  )

let opened: StatesPage
beforeAll(async () => {
  opened = await openStates()
  mkdirSync(pictures, { recursive: true })
})
afterAll(() => opened?.close())

const views = ['lab', 'show'] as const
const inViews = sizes.flatMap((size) => views.map((view) => ({ ...size, view })))

it.each(inViews)('all states of the $view fit a page of $width px', async ({ view, ...size }) => {
  const { page, complaints } = opened
  await page.setViewportSize(size)
  for (const name of await page.evaluate(() => window.states.names)) {
    const found = await page.evaluate(
      async ([shown, view]) => {
        await window.states.show(shown, view)
        const { scrollWidth } = document.documentElement
        const controls = [...document.querySelectorAll('input, select, button, a')]
        const nameless = controls.filter((control) => {
          const labels = 'labels' in control ? (control.labels as NodeList | null) : null
          return !labels?.length && !control.getAttribute('aria-label') && !control.textContent
        })
        const readings = [...document.querySelectorAll('.readout .value')]
        const cut = readings.filter((one) => one.scrollWidth > one.clientWidth)
        return {
          tooWide: scrollWidth - innerWidth,
          nameless: nameless.map((one) => one.outerHTML),
          cut: cut.map((one) => one.textContent),
        }
      },
      [name, view] as const,
    )
    expect(found, name).toEqual({ tooWide: 0, nameless: [], cut: [] })
    if (!chosen && !size.isPhotographed) continue
    for (const colorScheme of chosen ? (['light', 'dark'] as const) : (['light'] as const)) {
      await page.emulateMedia({ colorScheme })
      await drawn(page)
      const path = join(pictures, `state-${name}-${view}-${size.width}-${colorScheme}.jpg`)
      await page.screenshot({ path, fullPage: true, type: 'jpeg', quality: 85 })
    }
  }
  expect(complaints).toEqual([])
})

it.each(sizes)('the table of twelve ranks stays in its panel, $width px wide', async (size) => {
  const { page, complaints } = opened
  await page.setViewportSize(size)
  await page.evaluate(() => window.states.show('training-twelve'))
  await page.getByText('Every link in numbers').click()
  const table = page.getByRole('region', { name: 'Rates of every link' }).getByRole('table')
  await table.waitFor()
  expect(await table.getByRole('row').count()).toBe(13)
  const first = await table.getByRole('row').nth(1).getByRole('cell').allInnerTexts()
  expect(first[0]).toBe('')
  for (const text of first.slice(1)) expect(text).toMatch(/^[\d.]+ [KM]iB$/)
  expect(await page.evaluate(() => document.documentElement.scrollWidth - innerWidth)).toBe(0)
  if (chosen)
    await page.screenshot({ path: join(pictures, `links-${size.width}.png`), fullPage: true })
  await page.getByText('Every link in numbers').click()
  expect(complaints).toEqual([])
})

it('the QR code opens by the keyboard, says the link, and Escape gives the focus back', async () => {
  const { page, complaints } = opened
  await page.setViewportSize(sizes[0])
  await page.evaluate(() => window.states.show('lobby-maker'))
  const button = page.getByRole('button', { name: 'QR code' })
  await button.focus()
  await page.keyboard.press('Enter')
  const dialog = page.getByRole('dialog', { name: 'Scan to join this room' })
  const link = await page.locator('#invite').inputValue()
  const code = dialog.getByRole('img', { name: `QR code of ${link}` })
  await code.and(page.locator('[data-is=drawn]')).waitFor()
  const box = (await code.boundingBox())!
  expect(box.width).toBeGreaterThan(400)
  expect(box.height).toBe(box.width)
  if (chosen) await page.screenshot({ path: join(pictures, 'qr-1400.png') })
  await page.keyboard.press('Escape')
  await dialog.waitFor({ state: 'detached' })
  expect(await button.evaluate((one) => one === document.activeElement)).toBe(true)

  // Alone, it is there without a click; it is missing where phones could not open the link.
  await page.evaluate(() => window.states.show('alone'))
  await page.locator('#room .qr[data-is=drawn]').waitFor()
  await page.evaluate(() => window.states.show('lobby-local'))
  expect(await page.locator('.qr').count()).toBe(0)
  await page.getByRole('button', { name: 'QR code' }).click()
  const why = page.getByRole('dialog', { name: 'Phones cannot open this link yet' })
  expect(await why.textContent()).toContain('npm start -- --host')
  expect(await why.getByRole('img').count()).toBe(0)
  await why.getByRole('button', { name: 'Close' }).click()
  await why.waitFor({ state: 'detached' })
  expect(complaints).toEqual([])
})

it('the code is one that a reader reads: its modules are those of the link', async () => {
  const { page } = opened
  await page.evaluate(() => window.states.show('alone'))
  const code = page.locator('#room .qr[data-is=drawn]')
  await code.waitFor()
  const link = await page.locator('#invite').inputValue()
  const { encode } = await import('uqr')
  const { data, size } = encode(link, { ecc: 'L', boostEcc: true, border: 0 })
  // What is on the screen, module by module, against the library's own table.
  const dark = await code.evaluate((svg, count) => {
    const path = svg.querySelector('path')!
    const at = (x: number, y: number) => {
      const point = (svg as unknown as SVGSVGElement).createSVGPoint()
      point.x = x
      point.y = y
      return path.isPointInFill(point)
    }
    const side = count + 8
    return Array.from({ length: side }, (_, y) =>
      Array.from({ length: side }, (_, x) => at(x + 0.5, y + 0.5)),
    )
  }, size)
  const expected = dark.map((row, y) => row.map((_, x) => data[y - 4]?.[x - 4] ?? false))
  expect(dark).toEqual(expected)
})
