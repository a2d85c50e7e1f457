import type { Browser, Page } from 'playwright'
import { expect, test } from 'vitest'
import {
  boundOf,
  continuedWithout,
  joined,
  reaches,
  says,
  silenceable,
  stepOf,
  stepTime,
  words,
} from '../../support/elastic-tabs.ts'
import { launchBrowser } from '../../support/launch-browser.ts'
import { openInOwnProcess } from '../../support/own-process.ts'
import { button, hashOf, invite, see, seeMembers } from '../../support/page-driver.ts'
import { driveRooms } from '../../support/page-rooms.ts'

// Tabs of an elastic run that are cut off, sleep, lose their device or come back before anybody missed them.

const { browser, openContext, openRoom, openTab } = driveRooms()

async function finishEqual(pages: readonly Page[]): Promise<string | null> {
  await Promise.all(pages.map((page) => see(page, 'Finished', 360_000)))
  const [hash, ...others] = await Promise.all(pages.map(hashOf))
  expect(others).toEqual(others.map(() => hash))
  return hash
}

test('a tab whose connections fall silent is left out, tries until they are back, joins again, and ends with the weights of the others', async () => {
  const pages = await openRoom(3, '?demo=digits&steps=300&maxStepsPerSec=3', false)
  const [maker, other, third] = pages
  const silence = await silenceable(third)
  await button(maker, 'Start').click()
  await reaches(maker, 10)
  const stepMs = await stepTime(maker)
  await silence(true)
  const cutAtMs = Date.now()
  await see(third, 'Left out of the run')
  await Promise.all([maker, other].map((page) => says(page, continuedWithout)))
  const ms = Date.now() - cutAtMs
  console.log(`steps of ${stepMs} ms; trains on ${ms} ms after the connections fell silent`)
  // Eight seconds of silence, and the next roster.
  expect(ms).toBeLessThan(8000 + boundOf(5000, stepMs, 13))
  await says(
    third,
    /The others train; this tab joins them once it is ready\.|^This tab waits: its /,
  )
  await reaches(maker, (await stepOf(maker)) + 5)
  // Its first new links are given up.
  await see(third, 'Left out of the run')
  await silence(false)
  // On a busy machine the link may measure slow up to three times, 70 s in all.
  await says(third, joined, 150_000)
  await finishEqual(pages)
}, 600_000)

test('a tab that was stopped until the others went on without it hears that when it wakes, and joins again', async () => {
  const pages = await openRoom(2, '?demo=digits&steps=240&maxStepsPerSec=5')
  const [maker, other] = pages
  const link = await invite(maker)
  const sleeper = await openInOwnProcess(browser(), async () => openTab(await openContext(), link))
  try {
    await seeMembers(maker, 3)
    await button(maker, 'Start').click()
    await reaches(maker, 20)
    const asked = await sleeper.page.evaluateHandle(() => {
      const asked: string[] = []
      new MutationObserver(() => {
        for (const { textContent } of document.querySelectorAll('button'))
          if (/^Continue without /.test(textContent ?? '')) asked.push(textContent ?? '')
      }).observe(document.body, { subtree: true, childList: true, characterData: true })
      return asked
    })
    const pace = maker.locator('.progress-words span').last()
    const stepsPerSec = /^[\d.]+ steps\/s · .+ left$/
    await expect.poll(() => pace.textContent()).toMatch(stepsPerSec)
    expect(await maker.locator('.chunks circle').count()).toBeGreaterThan(0)
    sleeper.signal('SIGSTOP')
    // While all wait nothing looks as if they did not.
    await says(maker, /No answer from rank 2 /)
    expect(await pace.textContent()).toBe('')
    expect(await maker.locator('.chunks circle').count()).toBe(0)
    await Promise.all([maker, other].map((page) => says(page, continuedWithout)))
    await reaches(maker, (await stepOf(maker)) + 5)
    await expect.poll(() => pace.textContent()).toMatch(stepsPerSec)
    sleeper.signal('SIGCONT')
    await see(sleeper.page, 'Left out of the run')
    await says(sleeper.page, joined)
    expect(await asked.jsonValue()).toEqual([])
    await finishEqual([...pages, sleeper.page])
  } finally {
    sleeper.signal('SIGCONT')
  }
}, 300_000)

test('a tab that was stopped until the others had finished sees their result when it wakes', async () => {
  const pages = await openRoom(2, '?demo=digits&steps=60&maxStepsPerSec=5')
  const [maker] = pages
  const link = await invite(maker)
  const sleeper = await openInOwnProcess(browser(), async () => openTab(await openContext(), link))
  try {
    await seeMembers(maker, 3)
    await button(maker, 'Start').click()
    await reaches(maker, 20)
    sleeper.signal('SIGSTOP')
    await finishEqual(pages)
    sleeper.signal('SIGCONT')
    await see(sleeper.page, 'Finished')
    const [accuracy] = (await words(maker))!.match(/^[\d.]+ % of the test samples are right/)!
    expect(await words(sleeper.page)).toContain(accuracy)
    expect(await words(sleeper.page)).toMatch(/This tab was away|the weights after step/)
  } finally {
    sleeper.signal('SIGCONT')
  }
}, 300_000)

test('a tab whose process is killed and that is loaded again before it is missed comes in as a new member', async () => {
  const pages = await openRoom(2, '?demo=digits&steps=240&maxStepsPerSec=5')
  const [maker, other] = pages
  const link = await invite(maker)
  const { page, signal } = await openInOwnProcess(browser(), async () =>
    openTab(await openContext(), link),
  )
  const session = await page.context().newCDPSession(page)
  await seeMembers(maker, 3)
  await button(maker, 'Start').click()
  await reaches(maker, 20)
  const crashed = page.waitForEvent('crash')
  signal('SIGKILL')
  await crashed
  // Playwright gives up pages that have crashed.
  await session.send('Page.reload')
  const read = async (selector: string) => {
    const expression = `document.querySelector('${selector}')?.textContent ?? ''`
    const { result } = await session.send('Runtime.evaluate', { expression })
    return result.value as string
  }
  await expect.poll(() => read('.status .words p'), { timeout: 60_000 }).toMatch(joined)
  for (const one of [maker, other])
    await says(one, /^3 ranks .* joined: the run continued from step \d+\.$/)
  const hash = await finishEqual([maker, other])
  await expect.poll(() => read('[data-testid=param-hash]'), { timeout: 30_000 }).toBe(hash)
}, 300_000)

test('a tab that loses its GPU in an exact run opens it again; no finished step is lost, and all end with the bits of one tab', async () => {
  const settings = '?demo=digits&steps=160&exact=true&device=webgpu'
  const [maker] = await openRoom(1, `${settings}&maxStepsPerSec=10`)
  const second: Browser = await launchBrowser()
  try {
    const link = (await invite(maker)).replace('#', '?device=webgpu#')
    const page = await openTab(await openContext({ from: second }), link)
    const pages = [maker, page]
    await Promise.all(pages.map((one) => seeMembers(one, 2)))
    const resumed: number[] = []
    for (const one of pages)
      one.on('console', (message) => {
        const found = /Training resumes from step (\d+)\./.exec(message.text())
        if (found) resumed.push(Number(found[1]))
      })
    await button(maker, 'Start').click()
    await reaches(maker, 60)
    const step = Math.max(...(await Promise.all(pages.map(stepOf))))
    const session = await second.newBrowserCDPSession()
    await session.send('Browser.crashGpuProcess')
    await session.detach()
    await expect.poll(() => resumed.length, { timeout: 30_000 }).toBe(2)
    expect(resumed[0]).toBe(resumed[1])
    expect(resumed[0]).toBeGreaterThanOrEqual(step)
    for (const one of pages) await says(one, /lost its device .*and opened another\./)
    const hash = await finishEqual(pages)
    const [alone] = await openRoom(1, settings)
    await button(alone, 'Start').click()
    expect(await finishEqual([alone])).toBe(hash)
  } finally {
    await second.close()
  }
}, 300_000)
