import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { dataOfTabs, RankTabs } from '../support/rank-tabs.ts'

/** How a tab can go, and how soon the others must have stopped with the clear error. */
const deaths = [
  { how: 'closed', withinMs: 1_000 },
  { how: 'crashed', withinMs: 10_000 },
  { how: 'frozen', withinMs: 10_000 },
] as const

let tabs: RankTabs
beforeAll(async () => {
  tabs = await RankTabs.start()
})
afterEach(() => tabs.closeTabs())
afterAll(() => tabs.stop())

// Two rooms at once: setting them up, and waiting for what nobody answers, takes longer than what is looked at.
test.each(deaths)(
  'a tab that is $how in mid-run stops the others within $withinMs ms, over either kind of link',
  async ({ how, withinMs }) => {
    await Promise.all(
      (['webrtc', 'port'] as const).map(async (transport) => {
        const ranks = await tabs.open(3, transport, {
          data: dataOfTabs,
          epochs: 5000,
          hashEvery: 1000,
        })
        const victim = 1
        await Promise.all(ranks.map((tab) => tab.saw(({ event }) => event === 'step')))
        const began = performance.now()
        const { page } = ranks[victim]
        // Neither of the last two answers: the page is gone, or its worker never returns.
        if (how === 'closed') await page.close({ runBeforeUnload: false })
        else if (how === 'crashed') page.goto('chrome://crash').catch(() => undefined)
        else
          page
            .workers()[0]
            .evaluate(() => {
              for (;;) Math.random()
            })
            .catch(() => undefined)
        for (const [rank, tab] of ranks.entries()) {
          if (rank === victim) continue
          const done = await tab.done
          expect(done.ok, `${transport}: rank ${rank} must end with an error`).toBe(false)
          if (done.ok) continue
          expect(done.message, 'the error names the rank that is gone').toMatch(/rank 1/)
          const tookMs = done.atMs - began
          expect(tookMs, `${transport}: rank ${rank}: ${done.message}`).toBeLessThan(withinMs)
        }
      }),
    )
  },
)

test('a compute worker that ends makes its own page and the other ranks say so', async () => {
  const ranks = await tabs.open(2, 'webrtc', { data: dataOfTabs, epochs: 5000, hashEvery: 1000 })
  await Promise.all(ranks.map((tab) => tab.saw(({ event }) => event === 'step')))
  const [worker] = ranks[1].page.workers()
  await worker.evaluate(() => self.close())
  const own = await ranks[1].done
  expect(own).toMatchObject({ ok: false, code: 'worker.dead' })
  const other = await ranks[0].done
  expect(other).toMatchObject({ ok: false, message: expect.stringMatching(/rank 1|worker/) })
})
