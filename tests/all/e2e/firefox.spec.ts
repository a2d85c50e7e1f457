import { once } from 'node:events'
import { readdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { expect, test } from 'vitest'
import { continuedWithout, reaches, says, stepOf } from '../../support/elastic-tabs.ts'
import { press, seeText, statusText, textIn, useFirefox } from '../../support/firefox-pages.ts'
import { family } from '../../support/launcher-folder.ts'
import { button, hashOf, invite, see, seeMembers } from '../../support/page-driver.ts'
import { driveRooms } from '../../support/page-rooms.ts'
import { useTrainFolder } from '../../support/train-folder.ts'

// Firefox on lavapipe, alone and beside Chromium on SwiftShader.

const { openRoom, served } = driveRooms()
const openInFirefox = useFirefox()
const folder = useTrainFolder()

test('a hidden page trains in Firefox', async () => {
  const page = await openInFirefox(`${served.localUrl}?steps=100000`)
  await press(page, 'Start')
  await seeText(page, statusText, /Training/)
  const step = async () => Number.parseInt(await textIn(page, '.progress-words'), 10)
  await expect.poll(step, { timeout: 60_000 }).toBeGreaterThan(0)
  const before = await step()
  // Another tab of the window, in front.
  await page.evaluate(() => {
    Object.assign(globalThis, { front: open('about:blank') })
  }, null)
  const visibility = () => page.evaluate(() => document.visibilityState, null)
  await expect.poll(visibility).toBe('hidden')
  await new Promise((resolve) => setTimeout(resolve, 5000))
  expect(await visibility()).toBe('hidden')
  // A hidden page draws once a second at most.
  await page.evaluate(() => (globalThis as unknown as { front: Window }).front.close(), null)
  await expect.poll(step, { timeout: 5000 }).toBeGreaterThan(before + 30)
  await press(page, 'Stop')
  await seeText(page, statusText, /Stopped/)
}, 180_000)

test('a tab of Firefox is closed, and that of Chromium trains on', async () => {
  const [maker] = await openRoom(1, '?transport=webrtc&steps=100000')
  const guest = await openInFirefox(await invite(maker))
  await seeMembers(maker, 2)
  await button(maker, 'Start').click()
  await reaches(maker, 20)
  await guest.close()
  await says(maker, continuedWithout)
  await reaches(maker, (await stepOf(maker)) + 5)
  await button(maker, 'Stop').click()
}, 180_000)

test('with exact, tabs of both browsers hold equal parameters, and say that those depend on who trained', async () => {
  const [maker] = await openRoom(1, '?transport=webrtc&steps=12&exact=true')
  const guest = await openInFirefox(await invite(maker))
  await seeMembers(maker, 2)
  await button(maker, 'Start').click()
  await see(maker, 'Finished', 120_000)
  await seeText(guest, statusText, /Finished/)
  expect(await textIn(guest, '[data-testid=param-hash]')).toBe(await hashOf(maker))
  const unlike = /before step 12, the same on all ranks; not that of other tabs/
  await seeText(guest, 'main', unlike)
  expect(await maker.locator('main').textContent()).toMatch(unlike)
}, 300_000)

test.each([
  ['SIGINT', 130],
  ['SIGKILL', null],
] as const)(
  '%s ends Firefox with all its processes and its profile',
  async (signal, code) => {
    const profiles = async () =>
      (await readdir(tmpdir())).filter((name) => name.startsWith('tabring-firefox-'))
    const before = await profiles()
    const { child, told } = folder.start({}, '--json', '--browser', 'firefox')
    while (!told.stdout.includes('"event":"step"')) await once(child.stdout, 'data')
    const own = (await profiles()).filter((name) => !before.includes(name))
    expect(own.length).toBeGreaterThan(0)
    const all = await family(child.pid!)
    expect(all.length).toBeGreaterThan(3)
    child.kill(signal)
    expect((await once(child, 'close'))[0]).toBe(code)
    const left = async () => (await Promise.all(all.map(family))).flat()
    await expect.poll(left, { timeout: 10_000 }).toEqual([])
    // Others of this machine may have come and gone meanwhile.
    const ownLeft = async () => (await profiles()).filter((name) => own.includes(name))
    await expect.poll(ownLeft, { timeout: 10_000 }).toEqual([])
  },
  120_000,
)
