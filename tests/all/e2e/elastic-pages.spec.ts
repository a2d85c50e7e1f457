import { readFile } from 'node:fs/promises'
import { expect, test } from 'vitest'
import { seededRandom } from '../../../src/util/virtual-env.ts'
import {
  boundOf,
  continuedWithout,
  joined,
  reaches,
  says,
  stepOf,
  stepTime,
  timeOfLoss,
  words,
} from '../../support/elastic-tabs.ts'
import { loseTab } from '../../support/lose-tab.ts'
import { openInOwnProcess } from '../../support/own-process.ts'
import {
  button,
  hashOf,
  invite,
  see,
  seeMembers,
  status,
  watchStates,
} from '../../support/page-driver.ts'
import { driveRooms } from '../../support/page-rooms.ts'

// A room trains on, without a click, when tabs close, crash and come.

const { openRoom, openTab, openContext, browser, picture, actOn } = driveRooms()
const query = '?epochs=1&steps=240&maxStepsPerSec=20'

test.each([
  ['of one browser, by ports', true],
  ['of three profiles, by WebRTC', false],
])(
  'three tabs %s: one is closed, and the others train on',
  async (_how, isShared) => {
    const pages = await openRoom(3, query, isShared)
    await button(pages[0], 'Start').click()
    await reaches(pages[0], 60)
    const others = [pages[0], pages[2]]
    const stepMs = await stepTime(pages[0])
    const ms = await timeOfLoss(pages[0], () => void pages[1].close())
    console.log(`steps of ${stepMs} ms; the next one ${ms} ms after the loss was noticed`)
    // Steps since the newest kept state are done again first.
    expect(ms).toBeLessThan(boundOf(5000, stepMs, 40))
    await Promise.all(others.map((page) => see(page, 'Finished', 120_000)))
    const hashes = await Promise.all(others.map(hashOf))
    expect(hashes[1]).toBe(hashes[0])
  },
  240_000,
)

test.each([
  ['close', 0, true],
  ['close', 150, true],
  ['close', 0, false],
  ['crash', 0, true],
  ...[0, 50, 100, 150, 250].map((ms) => ['crash', ms, false] as const),
] as const)(
  'the host is lost by a %s %i ms after it has pressed Start, one browser: %s; the others begin without it',
  async (how, ms, isShared) => {
    const [maker, ...others] = await openRoom(3, '?demo=digits&steps=20', isShared)
    await button(maker, 'Start').click()
    await new Promise((resolve) => setTimeout(resolve, ms))
    await loseTab(maker, how)
    await Promise.all(others.map((page) => see(page, 'Finished')))
    const [hash, other] = await Promise.all(others.map(hashOf))
    expect(other).toBe(hash)
  },
  120_000,
)

test('a paused run whose host crashes stays paused until the next host resumes it', async () => {
  const pages = await openRoom(3, '?demo=digits&steps=40&maxStepsPerSec=5', false)
  const [maker, next, third] = pages
  await button(maker, 'Start').click()
  await reaches(maker, 5)
  await button(maker, 'Pause').click()
  await Promise.all(pages.map((page) => see(page, 'Paused')))
  const step = await stepOf(next)
  await loseTab(maker, 'crash')
  await seeMembers(next, 2)
  // As long as it takes to notice a tab that says nothing, and to form the next group.
  await new Promise((resolve) => setTimeout(resolve, 12_000))
  for (const page of [next, third]) {
    expect(await status(page).textContent()).toBe('Paused')
    expect(await stepOf(page)).toBe(step)
  }
  await button(next, 'Resume').click()
  await Promise.all([next, third].map((page) => see(page, 'Finished', 120_000)))
  expect(await hashOf(third)).toBe(await hashOf(next))
}, 240_000)

test('a tab that opens the link joins the run; another crashes; the rest finish', async () => {
  const pages = await openRoom(2, query)
  await button(pages[0], 'Start').click()
  await reaches(pages[0], 30)
  const late = await openTab(pages[0].context(), await invite(pages[0]))
  await says(late, joined)
  await says(pages[0], /^3 ranks .* joined: the run continued from step \d+\.$/)
  await picture(pages[0], 'elastic')
  const crashed = pages[1].waitForEvent('crash')
  await pages[1].goto('chrome://crash').catch(() => undefined) // never answers
  await crashed
  await Promise.all([pages[0], late].map((page) => see(page, 'Finished', 120_000)))
  expect(await hashOf(late)).toBe(await hashOf(pages[0]))
}, 300_000)

test.each([3, 12])(
  'a tab that comes %i steps before the end joins this run or is in the next one',
  async (left) => {
    const pages = await openRoom(2, '?demo=digits&steps=60&maxStepsPerSec=5')
    const [maker] = pages
    const link = await invite(maker)
    await button(maker, 'Start').click()
    await reaches(maker, 60 - left)
    const late = await openTab(maker.context(), link)
    await Promise.all(pages.map((page) => see(page, 'Finished', 120_000)))
    await seeMembers(maker, 3)
    await see(late, /^(Finished|The run is over|Waiting for .+ to start)$/)
    const title = await late.locator('.status h2').innerText()
    console.log(`${left} steps before the end: the late tab says ${title}`)
    await button(maker, 'Start again').click()
    await says(late, /^3 ranks/)
    await Promise.all([...pages, late].map((page) => see(page, 'Finished', 120_000)))
    const [hash, ...others] = await Promise.all([...pages, late].map(hashOf))
    expect(others).toEqual([hash, hash])
  },
  300_000,
)

test('the maker removes a tab from an elastic run: the others train on', async () => {
  const pages = await openRoom(3, '?steps=100000')
  const [maker, second, third] = pages
  await button(maker, 'Start').click()
  await Promise.all(pages.map((page) => see(page, 'Training')))
  await actOn(maker, 2, 'Remove')
  await third.locator('.notice[data-kind="removed"]').waitFor()
  for (const page of [maker, second]) await says(page, continuedWithout)
  const step = await stepOf(maker)
  await reaches(maker, step + 5)
  await button(maker, 'Stop').click()
  await see(second, 'Stopped')
}, 120_000)

const seed = Number(process.env.TABRING_SEED ?? 1)

test('tabs close, crash, stop answering and come at random steps: the rest reach the goal, and with exact the bits of one tab', async () => {
  const random = seededRandom(seed)
  const steps = Array.from({ length: 4 }, () => 20 + Math.floor(120 * random())).sort(
    (a, b) => a - b,
  )
  console.log(`seed ${seed}: at steps ${steps}`)
  const settings = '?demo=digits&steps=260&exact=true'
  const pages = await openRoom(3, `${settings}&maxStepsPerSec=20`)
  const [maker, second] = pages
  const statesOf = await watchStates(maker)
  const link = await invite(maker)
  const stopped = await openInOwnProcess(browser(), async () => openTab(await openContext(), link))
  await seeMembers(maker, 4)
  await maker.bringToFront()
  await button(maker, 'Start').click()
  const losing = async (how: string, lose: () => void) => {
    const stepMs = await stepTime(maker)
    const beganMs = performance.now()
    const ms = await timeOfLoss(maker, lose)
    console.log(`${how}: steps of ${stepMs} ms; the next one ${ms} ms after the loss was noticed`)
    expect(ms).toBeLessThan(boundOf(2000, stepMs))
    return { stepMs, passedMs: performance.now() - beganMs }
  }
  try {
    await reaches(maker, steps[0])
    await losing('closed', () => void second.close())
    await reaches(maker, steps[1])
    const lost = losing('stopped', () => stopped.signal('SIGSTOP'))
    await says(maker, /No answer from rank \d \(.+\) for more than 3 seconds\./)
    const { stepMs, passedMs } = await lost
    console.log(`trains on ${passedMs} ms after the tab stopped`)
    // Eight seconds of silence, and the next roster.
    expect(passedMs).toBeLessThan(8000 + boundOf(5000, stepMs))
    await reaches(maker, steps[2])
    const late = await openTab(maker.context(), link)
    await says(maker, / joined: the run continued from step \d+\.$/)
    await reaches(maker, steps[3])
    await losing('crashed', () => {
      pages[2].goto('chrome://crash').catch(() => undefined) // never answers
    })
    await Promise.all([maker, late].map((page) => see(page, 'Finished', 120_000)))
    const hash = await hashOf(maker)
    expect(await hashOf(late)).toBe(hash)
    const [alone] = await openRoom(1, settings)
    await button(alone, 'Start').click()
    await see(alone, 'Finished', 120_000)
    expect(await hashOf(alone)).toBe(hash)
    const downloaded = alone.waitForEvent('download')
    await button(alone, 'Download log (for npm run replay)').click()
    const log = JSON.parse(await readFile(await (await downloaded).path(), 'utf8'))
    const after = new Map<number, string>(log.states)
    const seen = await statesOf()
    const seenAt = Object.keys(seen).map(Number)
    console.log(`the page showed the state hash of ${seenAt.length} steps`)
    expect(seenAt.filter((step) => step > steps[1]).length).toBeGreaterThan(5)
    expect(seen).toEqual(
      Object.fromEntries(seenAt.map((step) => [step, after.get(step - 1)?.slice(0, 8)])),
    )
    expect(await words(maker)).toMatch(/^9\d\.\d+ % of the test samples are right/)
  } finally {
    stopped.signal('SIGKILL')
    await stopped.page.close().catch(() => undefined)
  }
}, 300_000)

test('a tab whose memory is damaged takes the state of the others, and all end with the bits of one tab', async () => {
  const settings = '?demo=digits&steps=160&exact=true'
  const pages = await openRoom(3, `${settings}&maxStepsPerSec=20`)
  const [maker, poor] = pages
  const inWorkers = (work: () => void) =>
    Promise.all(poor.workers().map((worker) => worker.evaluate(work)))
  await inWorkers(() => {
    const made: WebAssembly.Memory[] = []
    Object.assign(globalThis, { made })
    const { Memory } = WebAssembly
    WebAssembly.Memory = class extends Memory {
      constructor(size: WebAssembly.MemoryDescriptor) {
        super(size)
        made.push(this)
      }
    }
  })
  await button(maker, 'Start').click()
  await reaches(maker, 60)
  await inWorkers(() => {
    const { made = [] } = globalThis as unknown as { made?: WebAssembly.Memory[] }
    // Its second third has first moments.
    for (const { buffer } of made) {
      const all = new Float32Array(buffer)
      all.fill(0.5, all.length >> 1, (all.length >> 1) + 100)
    }
  })
  for (const page of pages)
    await says(
      page,
      /After step \d+ the state of rank 1 differed from that of ranks 0 and 2, and is replaced by it\./,
    )
  await Promise.all(pages.map((page) => see(page, 'Finished', 120_000)))
  const [alone] = await openRoom(1, settings)
  await button(alone, 'Start').click()
  await see(alone, 'Finished', 120_000)
  const hash = await hashOf(alone)
  for (const page of pages) expect(await hashOf(page)).toBe(hash)
}, 300_000)
