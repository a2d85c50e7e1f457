import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { dataOfTabs, RankTabs } from '../../support/rank-tabs.ts'

let tabs: RankTabs
beforeAll(async () => {
  tabs = await RankTabs.start({ device: 'webgpu' })
})
afterEach(() => tabs.closeTabs())
afterAll(() => tabs.stop())

const config = {
  data: dataOfTabs,
  steps: 150,
  seed: 3,
  batchSize: 64,
  hashEvery: 1000,
  // Measured, it may differ between two runs, and with it the order of additions of three ranks.
  bucketCapMb: 25,
} as const

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

test('a run whose GPU process is killed continues on another device and ends with the same bits', async () => {
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

test('three tabs whose GPU process is killed all continue, without a click, and end with the same bits', async () => {
  const run = async (disturb?: () => Promise<void>) => {
    const ranks = await tabs.open(3, 'webrtc', {
      ...config,
      model: 'cnn',
      steps: 64,
      batchSize: 24,
    })
    await ranks[1].saw((event) => event.event === 'step' && event.step >= 54)
    await disturb?.()
    const ends = await Promise.all(ranks.map(({ done }) => done))
    const results = ends.map((end) => {
      if (!end.ok) throw new Error(`${end.code}: ${end.message}`)
      return end.result
    })
    const received = ranks.map(({ events }) =>
      events.flatMap((event) => (event.event === 'step' ? [event.step] : [])),
    )
    return { results, received }
  }
  const undisturbed = await run()
  await tabs.closeTabs()
  const killed = await run(async () => {
    const session = await tabs.browser.newBrowserCDPSession()
    await session.send('Browser.crashGpuProcess')
    await session.detach()
  })
  expect(killed.results.map(({ lostDevices }) => lostDevices)).toEqual([1, 1, 1])
  for (const { paramHash, testAccuracy, record } of killed.results) {
    expect(paramHash).toBe(undisturbed.results[0].paramHash)
    expect(testAccuracy).toBe(undisturbed.results[0].testAccuracy)
    expect(record.adapters).toEqual(undisturbed.results[0].record.adapters)
  }
  for (const steps of killed.received)
    expect(steps).toEqual(Array.from({ length: 64 }, (_, i) => i + 1))
})
