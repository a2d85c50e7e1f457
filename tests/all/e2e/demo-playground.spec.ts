import type { Page } from 'playwright'
import { expect, test } from 'vitest'
import { noViolations, violationsByColours } from '../../support/axe.ts'
import { button, drivePages, photograph, see, seeRun } from '../../support/page-driver.ts'

// tests/all/e2e/demos.spec.ts has the other demos, and this one on several ranks.

const { served, openTab } = drivePages()
const picture = (page: Page, name: string) => photograph(page, `demo-${name}`)

test('trains on points that were drawn, and ticks off its stated result', async () => {
  const page = await openTab(`${served.localUrl}demos/playground/?steps=20`)
  await see(page, 'Alone in the room')
  await button(page, 'Draw your own').click()
  await page.locator('#settings-error').filter({ hasText: 'draw at least 10 points' }).waitFor()
  expect(await button(page, 'Start').isDisabled()).toBe(true)
  const box = (await page.locator('.plane').boundingBox())!
  const stroke = async (x: number) => {
    // Pressing a button below the plane has scrolled.
    await page.locator('.plane').scrollIntoViewIfNeeded()
    const { x: left, y: top } = (await page.locator('.plane').boundingBox())!
    await page.mouse.move(left + x * box.width, top + 0.15 * box.height)
    await page.mouse.down()
    await page.mouse.move(left + x * box.width, top + 0.85 * box.height, { steps: 30 })
    await page.mouse.up()
  }
  await stroke(0.25)
  await button(page, '■ class 1').click()
  await stroke(0.75)
  await page.getByText(/^\d+ points. The next run trains on them/).waitFor()
  await page.waitForURL(/[?&]given=/)
  expect(page.url()).not.toContain('data=given')
  await picture(page, 'playground-drawing')
  // The same points in another room.
  const shown = (one: Page) =>
    one
      .locator('.plane canvas')
      .nth(1)
      .evaluate((canvas) => (canvas as HTMLCanvasElement).toDataURL())
  const copy = await openTab(page.url().replace(/#.*/, ''))
  await see(copy, 'Alone in the room')
  await expect.poll(() => button(copy, 'Start').isEnabled()).toBe(true)
  await expect.poll(() => shown(copy)).toBe(await shown(page))
  await button(copy, 'Draw your own').click()
  await button(copy, 'Clear').click()
  await expect.poll(() => button(copy, 'Start').isDisabled()).toBe(true)
  expect(copy.url()).not.toContain('given')
  // By the keyboard: ten points in a row, of both classes, and the last one taken away again.
  const plane = copy.getByRole('application', { name: 'Plane to draw points on' })
  await plane.focus()
  await copy.keyboard.press('ArrowUp')
  for (let i = 0; i < 10; i++) {
    if (i === 9) {
      await copy.getByText('9 points; 1 more needed before Start.').waitFor()
      await copy.getByRole('button', { name: '■ class 1' }).click()
      await plane.focus()
    }
    await copy.keyboard.press('Enter')
    await copy.keyboard.press('ArrowRight')
  }
  await copy.getByText('Cursor at x 0.50, y 0.05').waitFor({ state: 'attached' })
  await expect.poll(() => button(copy, 'Start').isEnabled()).toBe(true)
  await picture(copy, 'playground-keyboard')
  await copy.getByRole('application', { name: 'Plane to draw points on' }).press('Delete')
  await copy.getByText('9 points; 1 more').waitFor()
  await expect.poll(() => button(copy, 'Start').isDisabled()).toBe(true)
  await copy.close()
  await page.bringToFront()
  await button(page, '8, 8').click()
  await button(page, 'ReLU').click()
  await page.waitForURL(/model=relu-8-8/)
  await button(page, 'Start').click()
  await see(page, 'Finished')
  const units = page.getByRole('img', {
    name: 'What each of the 8 units outputs across the plane',
  })
  await units.first().scrollIntoViewIfNeeded()
  await page.getByText('Layer 2: 8 ReLU units').waitFor()
  // Pictures of units that lean somewhere, and not the same way.
  const colours = () =>
    units.nth(1).evaluate((canvas) => {
      const { width, height } = canvas as HTMLCanvasElement
      const context = (canvas as HTMLCanvasElement).getContext('2d')!
      const { data } = context.getImageData(0, 0, width, height)
      return new Set(new Uint32Array(data.buffer)).size
    })
  await expect.poll(colours).toBeGreaterThan(20)
  await picture(page, 'playground-drawn')
  // Both before the page is drawn again.
  const choices = [button(page, '16, 16'), button(page, 'tanh')]
  const [units16, tanh] = await Promise.all(choices.map((one) => one.elementHandle()))
  await page.evaluate(
    (both) => {
      for (const one of both) (one as HTMLElement).click()
    },
    [units16, tanh],
  )
  await page.waitForURL((url) => !url.searchParams.has('model'))

  await button(page, 'two spirals').click()
  await page.getByLabel('More settings').or(page.getByText('More settings')).click()
  await page.getByLabel('Steps', { exact: true }).fill('')
  await button(page, 'Start again').click()
  await seeRun(page, 2)
  await see(page, 'Finished')
  await page.locator('.expected [data-is=reached]').waitFor()
  await picture(page, 'playground-spiral')
  expect(await violationsByColours(page)).toEqual(noViolations)
})
