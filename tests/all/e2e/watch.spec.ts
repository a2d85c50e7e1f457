import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { browserFlags } from '../../../node/chromium.ts'
import { reaches, says, stepOf } from '../../support/elastic-tabs.ts'
import { launchBrowser } from '../../support/launch-browser.ts'
import { button, invite, members, see, seeMembers } from '../../support/page-driver.ts'
import { driveRooms } from '../../support/page-rooms.ts'

// A tab without a rank sees what all see.

const { served, openContext, openTab, lossWords } = driveRooms()

test('a tab shows the steps and the loss of two that train when it watches', async () => {
  const context = await openContext()
  const maker = await openTab(
    context,
    `${served.localUrl}?demo=playground&steps=100000&maxStepsPerSec=20`,
  )
  const link = new URL(await invite(maker))
  const second = await openTab(context, link.href)
  await seeMembers(maker, 2)
  link.search = '?ranks=0'
  const watcher = await openTab(context, link.href)
  let bytes = 0
  watcher.on('websocket', (socket) =>
    socket.on('framereceived', ({ payload }) => {
      bytes += payload.length
    }),
  )
  await watcher.reload()
  await seeMembers(maker, 3)
  await says(watcher, /This tab watches\./)
  await maker.bringToFront()
  await button(maker, 'Start').click()
  await reaches(watcher, 5)
  const seen = await stepOf(watcher)
  await reaches(watcher, seen + 20)
  await says(watcher, /^This tab watches 2 ranks\./)
  expect(await members(watcher).allTextContents()).toEqual(
    expect.arrayContaining([expect.stringContaining('watching')]),
  )
  await watcher.bringToFront()
  const [before, beganMs] = [bytes, performance.now()]
  await reaches(watcher, (await stepOf(watcher)) + 60)
  const rate = (bytes - before) / ((performance.now() - beganMs) / 1000)
  // A picture of the model each second takes most of them.
  expect(rate).toBeLessThan(30_000)
  await expect.poll(() => watcher.locator('#demo canvas').count()).toBeGreaterThan(0)
  // One that comes to the run as a rank, and becomes an onlooker again.
  await button(watcher, 'Take part').click()
  await says(maker, /joined: the run continued/)
  await says(maker, /^3 ranks/)
  await button(watcher, 'Watch only').click()
  await says(maker, /^2 ranks .* left/)
  await reaches(watcher, (await stepOf(maker)) + 5)
  await watcher.close()
  await reaches(maker, (await stepOf(maker)) + 5)
  await says(maker, /^2 ranks/)
  const late = await openTab(context, link.href)
  await reaches(late, 5)
  await maker.bringToFront()
  await button(maker, 'Pause').click()
  await Promise.all([maker, second, late].map((page) => see(page, 'Paused')))
  // The onlooker gets the last step before the pause within a second.
  for (const page of [second, late]) {
    await expect.poll(() => stepOf(page)).toBe(await stepOf(maker))
    await expect.poll(() => lossWords(page)).toBe(await lossWords(maker))
  }
  await button(maker, 'Stop').click()
  await Promise.all([maker, second, late].map((page) => see(page, 'Stopped')))
}, 300_000)

test('a tab that can compute nothing watches a room where others train; alone it says what is missing', async () => {
  const webGpu = /webgpu/
  const args = browserFlags('software').filter((flag) => !webGpu.test(flag))
  // Without WebAssembly, and so without vectors.
  const poor = await launchBrowser({ args: [...args, '--js-flags=--jitless'] })
  try {
    const maker = await openTab(
      await openContext(),
      `${served.localUrl}?demo=playground&steps=100000&maxStepsPerSec=20&elastic=false`,
    )
    const link = new URL(await invite(maker))
    const second = await openTab(await openContext(), link.href)
    link.search = '?ranks=2'
    const watcher = await openTab(await openContext({ from: poor }), link.href)
    await seeMembers(maker, 3)
    await expect
      .poll(() => members(maker).allTextContents())
      .toEqual(expect.arrayContaining([expect.stringContaining('watching')]))
    await watcher.getByText(/^This tab can compute nothing, so it watches: /).waitFor()
    await maker.bringToFront()
    await button(maker, 'Start').click()
    await reaches(watcher, 20)
    await says(watcher, /^This tab watches 2 ranks\./)
    // That run would end without a rank.
    await second.bringToFront()
    expect(await button(second, 'Watch only').count()).toBe(0)
    const alone = await openTab(await openContext({ from: poor }), served.localUrl)
    await alone.getByText('The CPU cannot compute in this tab').first().waitFor()
  } finally {
    await poor.close()
  }
}, 180_000)

test('a tab that comes back after the end sees the result, saves the same model, and takes part in the next run', async () => {
  const context = await openContext()
  const maker = await openTab(context, `${served.localUrl}?demo=digits&steps=60&maxStepsPerSec=10`)
  const link = await invite(maker)
  const pupil = await openTab(context, link)
  await seeMembers(maker, 2)
  await maker.bringToFront()
  await button(maker, 'Start').click()
  await reaches(pupil, 5)
  await pupil.close()
  await see(maker, 'Finished')
  const late = await openTab(context, link)
  await see(late, 'Finished')
  const hashOf = (page: typeof maker) => page.getByTestId('param-hash').innerText()
  expect(await hashOf(late)).toBe(await hashOf(maker))
  await expect.poll(() => lossWords(late)).toBe(await lossWords(maker))
  const [own, saved] = await Promise.all(
    [maker, late].map(async (page) => {
      const coming = page.waitForEvent('download')
      await page.getByRole('button', { name: /^Download weights/ }).click()
      return readFile(await (await coming).path())
    }),
  )
  expect(saved.equals(own)).toBe(true)
  await maker.bringToFront()
  await button(maker, 'Start again').click()
  await reaches(late, 5)
  await says(maker, /^2 ranks/)
}, 200_000)
