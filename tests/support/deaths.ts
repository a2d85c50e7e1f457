import type { Page, Worker } from 'playwright'
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { dataOfTabs, RankTabs, refuseChannels } from './rank-tabs.ts'

/**
 * How tabs can go, and how soon the others must have stopped with the clear error. Tabs of the last two do not answer, which takes the others
 * seconds of silence to notice: they are tested together, at a pace that does not overload a machine with that many tabs.
 */
const deaths = [
  { title: 'closed', hows: ['closed'], withinMs: 1_000, pace: {} },
  {
    title: 'crashed or frozen',
    hows: ['crashed', 'frozen'],
    withinMs: 10_000,
    // At 20 the tabs' own computation on the CPU takes both cores of a small machine.
    pace: { maxStepsPerSec: 5 },
  },
] as const
type How = (typeof deaths)[number]['hows'][number]

/** Every kind of link; the page of a pumped one works too, so there it is the page that freezes. */
const kinds = [
  { kind: 'webrtc', transport: 'webrtc', size: 3 },
  { kind: 'port', transport: 'port', size: 3 },
  { kind: 'webrtc, pumped by the page', transport: 'webrtc', size: 2, initScript: refuseChannels },
] as const

const victim = 1
/** Returns first, so that the tab is known to be frozen from then on. */
const freeze = () => {
  setTimeout(() => {
    for (;;) Math.random()
  })
}

/** Not one of the threads of its device. */
const computeWorker = (page: Page): Worker =>
  page.workers().find((worker) => !worker.url().includes('thread.worker'))!

/** Resolves when the tab was asked to close, has crashed or begins to be frozen: a busy machine takes a second or more until then. */
async function end(page: Page, how: How, isPumped: boolean): Promise<void> {
  const crash = how === 'crashed' ? page.waitForEvent('crash') : undefined
  const acts = {
    closed: () => page.close({ runBeforeUnload: false }),
    crashed: () => page.goto('chrome://crash'),
    frozen: () => (isPumped ? page.evaluate(freeze) : computeWorker(page).evaluate(freeze)),
  }
  // Of a page that has crashed nobody answers.
  const acted = acts[how]().catch(() => undefined)
  await (how === 'frozen' ? acted : crash)
}

/**
 * Tests of tabs that go in mid-run, in ways of those titles. `minMs` widens bounds below it, where other processes may run.
 */
export function deathTests(titles: readonly (typeof deaths)[number]['title'][], minMs = 0): void {
  const tested = deaths
    .filter(({ title }) => titles.includes(title))
    .map((death) => ({ ...death, withinMs: Math.max(death.withinMs, minMs) }))
  let tabs: RankTabs
  beforeAll(async () => {
    tabs = await RankTabs.start()
  })
  afterEach(() => tabs.closeTabs())
  afterAll(() => tabs.stop())

  // All rooms at once: setting them up, and waiting for what nobody answers, takes longer than what is looked at.
  test.each(tested)(
    'a tab that is $title in mid-run stops the others within $withinMs ms, over every kind of link',
    async ({ hows, withinMs, pace }) => {
      const config = { data: dataOfTabs, epochs: 5000, hashEvery: 1000, elastic: false, ...pace }
      const rooms = await Promise.all(
        hows.flatMap((how) =>
          kinds.map(async ({ kind, transport, size, ...more }) => {
            const initScript = 'initScript' in more ? more.initScript : undefined
            const ranks = await tabs.open(size, transport, config, initScript)
            await Promise.all(ranks.map((tab) => tab.saw(({ event }) => event === 'step')))
            return { what: `${how}, ${kind}`, how, ranks, isPumped: initScript !== undefined }
          }),
        ),
      )
      await Promise.all(
        rooms.map(async ({ what, how, ranks, isPumped }) => {
          await end(ranks[victim].page, how, isPumped)
          const began = performance.now()
          for (const [rank, tab] of ranks.entries()) {
            if (rank === victim) continue
            const done = await tab.done
            expect(done.ok, `${what}: rank ${rank} must end with an error`).toBe(false)
            if (done.ok) continue
            expect(done.message, 'the error names the rank that is gone').toMatch(/rank 1/)
            const tookMs = done.atMs - began
            expect(tookMs, `${what}: rank ${rank}: ${done.message}`).toBeLessThan(withinMs)
          }
        }),
      )
    },
  )
}
