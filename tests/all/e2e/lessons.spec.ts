import type { Page } from 'playwright'
import { expect, it } from 'vitest'
import { button, drivePages, invite, see, seeMembers } from '../../support/page-driver.ts'

/** The course, as pupils go through it. */

const { served, openTab } = drivePages()

const predict = async (page: Page, choice: string) => {
  const lesson = page.locator('.lesson')
  expect(await lesson.getByRole('list').count()).toBe(0)
  await lesson.getByLabel(choice).check()
  await button(page, 'That is my prediction').click()
}
const goal = (page: Page, at: number) => page.locator('.lesson-goals li').nth(at)
const ticked = (page: Page, at: number) =>
  goal(page, at).getByText('reached:').waitFor({ state: 'attached', timeout: 90_000 })
const open = async (page: Page, lesson: string) => {
  await page.goto(`${served.localUrl}class/`)
  await page.getByRole('link', { name: lesson }).click()
}

it('a lesson says what was right, and is done, when its goals are reached after a wrong prediction', async () => {
  const page = await openTab(`${served.localUrl}class/`)
  await open(page, 'Lesson 1')
  await see(page, 'Alone in the room')
  await predict(page, 'It learns the same, 50 times as fast.')
  await button(page, 'Start').click()
  await ticked(page, 0)
  await see(page, 'Finished')
  // The settings of a goal go into the address, beside the lesson.
  await goal(page, 1).getByRole('button', { name: 'Set it' }).click()
  await page.waitForURL(/lesson=1.*lr=1/)
  await button(page, 'Start again').click()
  await ticked(page, 1)
  await page.getByText('It was: It jumps about, and stays worse.').waitFor()
  await page.goto(`${served.localUrl}class/`)
  await page
    .getByRole('listitem')
    .filter({ hasText: 'One machine learns' })
    .getByText('Done')
    .waitFor()
}, 180_000)

it('a lesson of three tabs ticks its goals when one is lost and another comes', async () => {
  const page = await openTab(`${served.localUrl}class/`)
  await open(page, 'Lesson 4')
  await predict(page, 'They go back a little, and go on as two.')
  await button(page, 'Lab').click()
  const link = await invite(page)
  const others = [await openTab(link), await openTab(link)]
  for (const other of others) await other.getByText('Lesson 4: One is lost').waitFor()
  await seeMembers(page, 3)
  await page.bringToFront()
  await button(page, 'Start').click()
  await ticked(page, 0)
  await others[0].close()
  await ticked(page, 1)
  await openTab(link)
  await ticked(page, 2)
  await page.getByText('It came true.').waitFor()
}, 180_000)

it('a lesson of two ranks ticks its goals when they train apart and then together', async () => {
  const page = await openTab(`${served.localUrl}class/`)
  await open(page, 'Lesson 2')
  await predict(page, 'The same on both: they have the same network.')
  await button(page, 'Lab').click()
  await openTab(await invite(page))
  await page.bringToFront()
  await ticked(page, 0)
  await button(page, 'Start').click()
  await ticked(page, 1)
  await see(page, 'Finished')
  await goal(page, 2).getByRole('button', { name: 'Set it' }).click()
  await button(page, 'Start again').click()
  await ticked(page, 2)
  await page.getByText('It was: Right in its own sector only').waitFor()
}, 180_000)

it('the page names a lesson when it does not have it', async () => {
  const page = await openTab(`${served.localUrl}?lesson=9`)
  await page.getByText('This page has no lesson 9.').waitFor()
})
