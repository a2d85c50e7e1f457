import { afterAll, beforeAll, expect, test } from 'vitest'
import { dataOfTabs, RankTabs } from '../support/rank-tabs.ts'

// tests/all/e2e/death.spec.ts has tabs that close, crash and freeze, tests/all/timing/death.spec.ts how soon it is noticed.
let tabs: RankTabs
beforeAll(async () => {
  tabs = await RankTabs.start()
})
afterAll(() => tabs.stop())

test('its own page and the other ranks report a compute worker that ends', async () => {
  const ranks = await tabs.open(2, 'webrtc', { data: dataOfTabs, epochs: 5000, elastic: false })
  await Promise.all(ranks.map((tab) => tab.saw(({ event }) => event === 'step')))
  const [worker] = ranks[1].page.workers()
  await worker.evaluate(() => self.close())
  const own = await ranks[1].done
  expect(own).toMatchObject({ ok: false, code: 'worker.dead' })
  const other = await ranks[0].done
  expect(other).toMatchObject({ ok: false, message: expect.stringMatching(/rank 1|worker/) })
})
