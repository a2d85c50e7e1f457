import type { Page } from 'playwright'
import { expect, it } from 'vitest'
import { button, drivePages, invite, see } from '../support/page-driver.ts'

/** The built page as guests, hosts and phones see it. */

const driver = drivePages()

const view = (page: Page) => page.locator('.page').getAttribute('data-view')
const number = (page: Page) => page.locator('.understood')

it('a guest opens in the Show, trains with the host, and keeps the Lab over a reload', async () => {
  const host = await driver.openTab(
    `${driver.served.localUrl}?demo=playground&steps=60`,
    await driver.openContext({ isNew: true }),
  )
  // Settings of one's own, on one's own machine, are for the Lab.
  await see(host, 'Alone in the room')
  expect(await view(host)).toBe('lab')
  const link = await invite(host)
  await button(host, 'Show').click()

  const phone = { viewport: { width: 390, height: 844 }, isNew: true }
  const guest = await driver.openTab(link, await driver.openContext(phone))
  await see(guest, /^Waiting for .+ to start$/)
  expect(await view(guest)).toBe('show')
  await number(guest).getByText('how many of 100 points the network gets right').waitFor()
  for (const page of [host, guest]) {
    const avatars = page.getByRole('list', { name: 'Who is here' }).getByRole('listitem')
    await expect.poll(() => avatars.count()).toBe(2)
    expect(await avatars.first().textContent()).toContain(', host')
    expect(await page.locator('.readouts, #experiment, .member').count()).toBe(0)
  }
  await guest.getByLabel('Your name').fill('Ada Lovelace')
  await button(guest, 'OK').click()
  await host.getByRole('listitem').filter({ hasText: 'Ada Lovelace' }).waitFor()
  expect(await guest.locator('.name-ask').count()).toBe(0)
  const nameField = 'input[name="name"]'
  await expect.poll(() => guest.locator(nameField).inputValue()).toBe('Ada Lovelace')
  // A name that is given unasked is an answer too.
  await host.locator('.name-ask').waitFor()
  await host.locator(nameField).fill('Grace Hopper')
  await host.locator(nameField).press('Enter')
  await guest.getByRole('listitem').filter({ hasText: 'Grace Hopper' }).waitFor()
  await button(host, 'Lab').click()
  await button(host, 'Show').click()
  await number(host).waitFor()
  expect(await host.locator('.name-ask').count()).toBe(0)
  expect(await guest.locator('.status button').count()).toBe(0)
  expect(await host.locator('.status button:visible').allInnerTexts()).toEqual(['Start'])

  await button(host, 'Start').click()
  await Promise.all([host, guest].map((page) => see(page, 'Finished', 90_000)))
  for (const page of [host, guest])
    expect(await number(page).innerText()).toMatch(
      /^\d+\s+of 100 new points are right\s+after step 60$/,
    )
  expect(await guest.locator('.status button').allInnerTexts()).toEqual(['Download the model'])
  expect(await guest.locator('.show-ring .node').count()).toBe(2)

  // Of 96 points of a step each has half, and either can be left out.
  const part = guest.locator('.your-part')
  await part.getByText('Your part of step 60, which glows: 48 of 96 points').waitFor()
  const plane = (page: Page) => page.locator('.plane').getAttribute('aria-label')
  await expect.poll(() => plane(guest)).toContain('after step 60')
  const together = await plane(guest)
  const word = part.getByRole('button', { name: 'gradient', exact: true })
  await word.focus()
  await word.press('Enter')
  await part.getByRole('tooltip').getByText('A step goes the other way').waitFor()
  await word.press('Escape')
  await part.getByRole('tooltip').waitFor({ state: 'hidden' })
  await guest.getByRole('heading', { name: 'How a line learns to bend' }).waitFor()
  await button(guest, 'Without your part').click()
  await part.getByText('the points of the others alone. It is at step 60.').waitFor()
  await expect.poll(() => plane(guest)).toContain('after step 60')
  expect(await plane(guest)).not.toBe(together)
  await button(guest, 'Without your part').click()
  await expect.poll(() => plane(guest)).toBe(together)

  await button(guest, 'Lab').click()
  await guest.locator('#summary').waitFor()
  await guest.reload()
  await guest.locator('#experiment').waitFor()
  expect(await view(guest)).toBe('lab')
  await button(guest, 'Show').click()
  await guest.reload()
  await number(guest).waitFor()
  expect(await view(guest)).toBe('show')
}, 180_000)
