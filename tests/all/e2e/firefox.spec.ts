import { once } from 'node:events'
import { readdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, test } from 'vitest'
import type { Tab } from '../../../node/tab.ts'
import { continuedWithout, joined, reaches, says, stepOf } from '../../support/elastic-tabs.ts'
import { press, seeText, statusText, textIn, useFirefox } from '../../support/firefox-pages.ts'
import { family, start, useLauncherFolder, write } from '../../support/launcher-folder.ts'
import { button, hashOf, invite, see, seeMembers } from '../../support/page-driver.ts'
import { driveRooms } from '../../support/page-rooms.ts'
import { useTrainFolder } from '../../support/train-folder.ts'

// Firefox on lavapipe, alone and beside Chromium on SwiftShader.

const { openContext, openRoom, openTab, served } = driveRooms()
const openInFirefox = useFirefox()
const folder = useTrainFolder()
useLauncherFolder()

const stepIn = async (tab: Tab) => Number.parseInt(await textIn(tab, '.progress-words'), 10)
const reachesIn = (tab: Tab, step: number) =>
  expect.poll(() => stepIn(tab), { timeout: 90_000 }).toBeGreaterThan(step)

/** Globals of the page that is hidden. */
interface Own {
  readonly front: Window
  ticks: number
}

test('a hidden page trains in Firefox', async () => {
  const page = await openInFirefox(`${served.localUrl}?steps=100000`)
  await press(page, 'Start')
  await reachesIn(page, 20)
  const first = await stepIn(page)
  await sleep(2000)
  const before = await stepIn(page)
  const perSecond = (before - first) / 2
  // Another tab of the window, in front.
  await page.evaluate(() => {
    const own: Own = { front: open('about:blank')!, ticks: 0 }
    Object.assign(globalThis, own)
    setInterval(() => (globalThis as unknown as Own).ticks++, 50)
  }, null)
  const visibility = () => page.evaluate(() => document.visibilityState, null)
  await expect.poll(visibility).toBe('hidden')
  await sleep(8000)
  expect(await visibility()).toBe('hidden')
  // Firefox slows it: at full speed a timer of 50 ms runs 20 times a second.
  const ticks = await page.evaluate(() => (globalThis as unknown as Own).ticks, null)
  expect(ticks).toBeLessThan(80)
  // A hidden page draws nothing: what it draws first afterwards was trained before.
  const drawn = await stepIn(page)
  await page.evaluate(() => (globalThis as unknown as Own).front.close(), null)
  await reachesIn(page, drawn)
  expect(await stepIn(page)).toBeGreaterThan(before + 2.5 * perSecond)
  await press(page, 'Stop')
  await seeText(page, statusText, /Stopped/)
}, 180_000)

test('tabs of either browser are closed in turn, and that of the other trains on', async () => {
  const [maker] = await openRoom(1, '?transport=webrtc&steps=100000')
  const guest = await openInFirefox(await invite(maker))
  await press(guest, 'Lab')
  await seeMembers(maker, 2)
  await button(maker, 'Start').click()
  await reaches(maker, 10)
  await maker.close()
  await seeText(guest, '.status .words', continuedWithout)
  await reachesIn(guest, (await stepIn(guest)) + 5)
  const joiner = await openTab(await openContext(), await textIn(guest, '#invite'))
  await says(joiner, joined)
  await reaches(joiner, 1)
  await guest.close()
  await says(joiner, continuedWithout)
  await reaches(joiner, (await stepOf(joiner)) + 5)
  await button(joiner, 'Stop').click()
}, 240_000)

test('an error of a program in Firefox is printed with its words and its stack', async () => {
  await write('fails.ts', "function load() {\n  throw new TypeError('load')\n}\nload()")
  const flags = ['--browser', 'firefox', '--no-check']
  const run = start('run', [...flags, 'fails.ts'])
  expect(await run.ended).toBe(1)
  expect(run.received.stderr).toMatch(/rank 0 failed first:\nTypeError: load\nload@fails\.ts:2:/)
}, 120_000)

const goesOn = /All tabs hold the same weights, but not those of a run without/
const unlike = /before step 12, the same on all ranks; not that of other tabs/
test.each([
  ['on the CPU in both browsers has the bits of any tabs', '', false],
  [
    'on WebGPU and on the CPU says that its bits depend on who trained',
    '&device=webgpu&maxStepsPerSec=3',
    true,
  ],
] as const)(
  'an exact run %s',
  async (_, device, isUnlike) => {
    const [maker] = await openRoom(1, `?transport=webrtc&steps=12&exact=true${device}`)
    const guest = await openInFirefox(await invite(maker))
    await press(guest, 'Lab')
    await seeMembers(maker, 2)
    await button(maker, 'Start').click()
    if (isUnlike) await seeText(guest, '.status .words', goesOn, 120_000)
    await see(maker, 'Finished', 120_000)
    await seeText(guest, statusText, /Finished/)
    expect(await textIn(guest, '[data-testid=param-hash]')).toBe(await hashOf(maker))
    await seeText(guest, 'main', isUnlike ? unlike : /before step 12, the same on all ranks/)
    for (const words of [await maker.locator('main').textContent(), await textIn(guest, 'main')])
      expect(unlike.test(words ?? '')).toBe(isUnlike)
  },
  300_000,
)

test.each([
  ['SIGINT', 130],
  ['SIGKILL', null],
] as const)(
  '%s ends Firefox with all its processes and its profile',
  async (signal, code) => {
    const profiles = async () =>
      (await readdir(tmpdir())).filter((name) => name.startsWith('tabring-firefox-'))
    const before = await profiles()
    const { child, received } = folder.start({}, '--json', '--browser', 'firefox')
    while (!received.stdout.includes('"event":"step"')) await once(child.stdout, 'data')
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
