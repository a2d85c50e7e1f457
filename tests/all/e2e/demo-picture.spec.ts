import { encode } from 'fast-png'
import type { Page } from 'playwright'
import { expect, it } from 'vitest'
import { noViolations, violationsByColours } from '../../support/axe.ts'
import {
  button,
  drivePages,
  dropOn,
  invite,
  photograph,
  see,
  seeMembers,
  seeRun,
} from '../../support/page-driver.ts'

/** The picture demo as people use it. */
const { served, openTab } = drivePages()

const picture = (page: Page, name: string) =>
  photograph(page, `demo-picture-${name}`, { part: '#demo' })

/** A red disc on a blue slope, 300 x 150 pixels: scaled down as it is dropped. */
function discPng(): Uint8Array {
  const [width, height] = [300, 150]
  const data = new Uint8Array(3 * width * height)
  for (let i = 0; i < width * height; i++) {
    const [x, y] = [i % width, Math.floor(i / width)]
    const isDisc = Math.hypot(x - 200, y - 75) < 50
    data.set(isDisc ? [230, 40, 30] : [20, 60, Math.round((255 * x) / width)], 3 * i)
  }
  return encode({ width, height, data, channels: 3 })
}

/** Drops a file on the demo, as a person would. */
const drop = (page: Page, bytes: Uint8Array, name: string, type: string) =>
  dropOn(page.locator('.demo.picture'), { [name]: bytes }, type)

const decibels = async (page: Page) =>
  Number.parseFloat((await page.locator('.closeness').getAttribute('data-decibels')) || 'NaN')
/** How close the learned picture is to the original, in its upper and in its lower half. units: dB. */
const halves = (page: Page) =>
  page.locator('.pictures').evaluate((pictures) => {
    const [original, learned] = ['Original', 'Learned'].map((name) => {
      const canvas = pictures.querySelector<HTMLCanvasElement>(`canvas[aria-label="${name}"]`)!
      const { width, height } = canvas
      return canvas.getContext('2d')!.getImageData(0, 0, width, height).data
    })
    const middle = original.length / 2
    const between = (from: number, to: number) => {
      let sum = 0
      for (let i = from; i < to; i++) sum += ((original[i] - learned[i]) / 255) ** 2
      return -10 * Math.log10(sum / ((3 / 4) * (to - from)))
    }
    return { above: between(0, middle), below: between(middle, original.length) } as Record<
      string,
      number
    >
  })
/** Red, green and blue of the picture of that name, at shares of its width and height. */
const colourAt = (page: Page, title: string, x: number, y: number) =>
  page.getByRole('img', { name: title, exact: true }).evaluate(
    (canvas, [across, down]) => {
      const { width, height } = canvas as HTMLCanvasElement
      const context = (canvas as HTMLCanvasElement).getContext('2d')!
      const { data } = context.getImageData(across * width, down * height, 1, 1)
      return [...data.subarray(0, 3)]
    },
    [x, y],
  )

it('learns a picture that is dropped, on two tabs; each alone knows its band', async () => {
  const maker = await openTab(`${served.localUrl}demos/picture/?steps=300`)
  await see(maker, 'Alone in the room')
  await maker.getByRole('img', { name: 'Original', exact: true }).waitFor()
  expect(await colourAt(maker, 'Learned', 0.5, 0.5)).toEqual([128, 128, 128])
  await picture(maker, 'lobby')

  // Alone, and but for the number of steps as it comes: to its stated result.
  await button(maker, 'Start').click()
  await see(maker, 'Finished')
  await maker.locator('.expected [data-is=reached]').waitFor()
  await maker.getByText('More settings', { exact: true }).click()
  await maker.getByLabel('Steps', { exact: true }).fill('150')

  await drop(maker, Buffer.from('no picture'), 'notes.txt', 'text/plain')
  await maker
    .getByText('notes.txt: this browser cannot read it as a picture (text/plain)')
    .waitFor()
  await picture(maker, 'no-picture')
  await drop(maker, discPng(), 'disc.png', 'image/png')
  await maker.getByText('128 × 64 pixels').waitFor()
  await expect.poll(() => maker.locator('#setting-data').inputValue()).toBe('given')
  expect(maker.url()).not.toContain('given')
  const [red, , blue] = await colourAt(maker, 'Original', 2 / 3, 0.5)
  expect(red - blue).toBeGreaterThan(150)

  // The second tab has it from the first one.
  const second = await openTab(await invite(maker))
  await seeMembers(maker, 2)
  const pages = [maker, second]
  await button(maker, 'Start again').click()
  for (const page of pages) {
    await seeRun(page, 2)
    await see(page, 'Finished')
  }
  for (const page of pages) {
    await expect.poll(() => decibels(page)).toBeGreaterThan(25)
    const learned = await colourAt(page, 'Learned', 2 / 3, 0.5)
    expect(learned[0] - learned[2]).toBeGreaterThan(150)
  }
  await button(maker, 'the error').click()
  await maker.getByRole('img', { name: 'Error', exact: true }).waitFor()
  await picture(maker, 'learned')
  expect(await violationsByColours(maker)).toEqual(noViolations)
  await button(maker, 'twice as fine').click()
  const finer = maker.getByRole('img', { name: 'Learned, twice as fine' })
  await expect.poll(() => finer.getAttribute('width')).toBe('256')

  // Without an exchange: right in its own band, and not so elsewhere.
  await button(maker, 'a boat at sunset (built in)').click()
  await button(maker, 'own band').click()
  await button(maker, 'off: each rank alone').click()
  await maker.waitForURL(/strategy=alone&partition=own-slice/)
  await button(maker, 'the error').click()
  await button(maker, 'Start again').click()
  for (const page of pages) {
    await seeRun(page, 3)
    await see(page, 'Finished')
  }
  for (const [rank, page] of pages.entries()) {
    await page.getByText(/outlined: this tab's band, 50 % of the pixels/).waitFor()
    // Of two tabs the first has the upper half.
    const [own, others] = rank === 0 ? ['above', 'below'] : ['below', 'above']
    await expect.poll(async () => (await halves(page))[own]).toBeGreaterThan(20)
    const found = await halves(page)
    console.log(`rank ${rank}: ${JSON.stringify(found)} dB`)
    expect(found[others]).toBeLessThan(found[own] - 5)
    // With an exchange it is at 24 here.
    expect(await decibels(page)).toBeLessThan(20)
  }
  await picture(maker, 'alone-rank-0')
  await picture(second, 'alone-rank-1')
}, 240_000)
