import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { dataOfTabs, RankTabs } from '../support/rank-tabs.ts'

let tabs: RankTabs
beforeAll(async () => {
  tabs = await RankTabs.start()
})
afterEach(() => tabs.closeTabs())
afterAll(() => tabs.stop())

const config = { data: dataOfTabs, steps: 150, seed: 3, batchSize: 64, hashEvery: 1000 } as const

async function trainAlone(
  disturb?: (tab: Awaited<ReturnType<RankTabs['open']>>[0]) => Promise<void>,
) {
  const [tab] = await tabs.open(1, 'webrtc', config)
  await disturb?.(tab)
  const end = await tab.done
  if (!end.ok) throw new Error(`${end.code}: ${end.message}`)
  const losses = tab.events.flatMap((event) => (event.event === 'step' ? [event.loss] : []))
  return { ...end.result, losses }
}

test('a run whose GPU process is killed goes on with another device and ends with the same bits', async () => {
  const undisturbed = await trainAlone()
  expect(undisturbed.lostDevices).toBe(0)
  const killed = await trainAlone(async (tab) => {
    await tab.saw((event) => event.event === 'step' && event.step >= 70)
    const session = await tabs.browser.newBrowserCDPSession()
    await session.send('Browser.crashGpuProcess')
    await session.detach()
  })
  expect(killed.lostDevices).toBe(1)
  expect(killed.record).toEqual(undisturbed.record)
  expect(killed.losses, 'steps that are done again are not told again').toEqual(undisturbed.losses)
  expect(killed.paramHash).toBe(undisturbed.paramHash)
  expect(killed.testAccuracy).toBe(undisturbed.testAccuracy)
})
