import { join } from 'node:path'
import type { Page } from 'playwright'
import { expect, test } from 'vitest'
import type { Tab } from '../../../node/tab.ts'
import { reaches, says } from '../../support/elastic-tabs.ts'
import { press, seeText, statusText, textIn, useFirefox } from '../../support/firefox-pages.ts'
import { openInOwnProcess } from '../../support/own-process.ts'
import { button, hashOf, pictures, see } from '../../support/page-driver.ts'
import { driveRooms } from '../../support/page-rooms.ts'

// A teacher and eight pupils, each in a browser profile: what each of them sees is photographed from the first page to the result.

const { served, browser, openContext, openTab } = driveRooms()
const openInFirefox = useFirefox((text) => text.startsWith('WebRTC: ICE failed'))

const phone = { viewport: { width: 390, height: 844 }, hasTouch: true }
const nameField = 'Your name, as the others see it:'

/** Opens a tab as somebody who was never here, and gives their name. */
async function openAs(name: string, url: string, options: object = {}): Promise<Page> {
  const page = await openTab(await openContext({ isNew: true, ...options }), url)
  await giveName(page, name)
  return page
}

async function giveName(page: Page, name: string): Promise<void> {
  await page.getByLabel(nameField).fill(name)
  await button(page, 'OK').click()
}

async function giveNameInFirefox(tab: Tab, name: string): Promise<void> {
  await seeText(tab, '.name-ask', /Your name/)
  await tab.evaluate((given) => {
    const field = document.querySelector<HTMLInputElement>('.name-ask input')!
    field.value = given
    field.dispatchEvent(new Event('input', { bubbles: true }))
  }, name)
  await press(tab, 'OK')
}

async function photographAll(pages: Readonly<Record<string, Page>>, stage: string): Promise<void> {
  for (const [name, page] of Object.entries(pages)) {
    await page.bringToFront()
    await page.screenshot({ path: join(pictures, `pupils-${stage}-${name}.png`), fullPage: true })
  }
}

test('a teacher and eight pupils end with one model when one sleeps, one comes late, one leaves and one watches', async () => {
  const teacher = await openTab(await openContext({ isNew: true }), served.localUrl)
  teacher.setDefaultTimeout(20_000)
  await teacher.screenshot({ path: join(pictures, 'pupils-0-first-teacher.png') })
  await teacher.goto(`${served.localUrl}?demo=playground&steps=400&maxStepsPerSec=5`)
  await button(teacher, 'Show').click()
  const own = teacher.getByRole('textbox', { name: 'This tab' })
  await own.fill('Ms Hopper')
  await own.press('Enter')
  const link = await teacher.evaluate(() => location.href)
  const { hash } = new URL(link)
  const room = `${served.localUrl}${hash}`

  const ada = await openAs('Ada', room)
  const mia = await openAs('Mia', room, phone)
  // Ben types the code that the teacher reads aloud.
  await button(teacher, 'Invite people').click()
  await button(teacher, 'Short code').click()
  const code = teacher.getByLabel('Short code').filter({ hasText: /^\w{3} \w{3}$/ })
  await code.waitFor()
  const ben = await openTab(await openContext({ isNew: true }), served.localUrl)
  await button(ben, 'Enter a code').click()
  await ben.getByLabel('Code of the room').fill(await code.innerText())
  await button(ben, 'Join').click()
  await giveName(ben, 'Ben')
  const caro = await openInFirefox(room)
  await giveNameInFirefox(caro, 'Caro')
  const dan = await openAs('Dan', room)
  await button(dan, 'Watch only').click()
  const eva = await openInOwnProcess(browser(), () => openAs('Eva', room))
  const gil = await openAs('Gil', room)
  try {
    await see(teacher, 'Ready with 7 ranks')
    const early = { teacher, ada, ben, mia, dan, eva: eva.page, gil }
    await photographAll(early, '1-ready')
    await teacher.bringToFront()
    await button(teacher, 'Start').click()
    await reaches(teacher, 20)
    await photographAll(early, '2-training')
    // Eva's lid is closed; Gil's tab is.
    eva.signal('SIGSTOP')
    await gil.close()
    await says(teacher, /left: the run continued/, 120_000)
    const { eva: _eva, gil: _gil, ...there } = early
    await photographAll(there, '3-continued')
    const fin = await openAs('Fin', room)
    await says(fin, /This tab joined after step \d+\./, 120_000)
    eva.signal('SIGCONT')
    await says(eva.page, /This tab joined after step \d+\./, 120_000)
    const late = { ...there, fin, eva: eva.page }
    await photographAll(late, '4-joined')
    await teacher.bringToFront()
    await see(teacher, 'Finished', 300_000)
    await Promise.all(Object.values(late).map((page) => see(page, 'Finished')))
    await seeText(caro, statusText, /Finished/)
    const back = await openTab(await openContext({ isNew: true }), room)
    await see(back, 'Finished')
    await photographAll({ ...late, gil: back }, '5-finished')
    const { dan: _dan, ...trained } = { ...late, gil: back }
    const hashes = await Promise.all(
      Object.values(trained).map(async (page) => {
        await button(page, 'Lab').click()
        return hashOf(page)
      }),
    )
    await press(caro, 'Lab')
    await seeText(caro, '[data-testid=param-hash]', /\w/)
    expect(new Set([...hashes, await textIn(caro, '[data-testid=param-hash]')]).size).toBe(1)
  } finally {
    eva.signal('SIGCONT')
  }
}, 900_000)
