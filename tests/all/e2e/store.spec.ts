import { expect, test } from 'vitest'
import { servePages } from '../../../node/own-pages.ts'
import type {} from '../../e2e/fixtures/store-page.ts'
import { launchBrowser } from '../../support/launch-browser.ts'

// The room's store with browsers' own WebSockets and origins: pages and workers that share it.

const fixture = 'tests/e2e/fixtures/store.html'

test('two tabs with a worker each share a store, and a server that stops ends their waits', async () => {
  const served = await servePages(fixture)
  const browser = await launchBrowser()
  try {
    const tabs = await Promise.all(
      ['a', 'b'].map(async () => {
        const page = await (await browser.newContext()).newPage()
        await page.goto(`http://127.0.0.1:${served.port}/${fixture}`)
        await page.waitForFunction(() => window.storePage !== undefined)
        return page
      }),
    )
    const url = await tabs[0].evaluate(() => window.storePage.newRoomUrl())
    const met = await Promise.all(
      tabs.map((tab, i) =>
        tab.evaluate(([room, name]) => window.storePage.meetTwice(room, name, 4), [url, 'ab'[i]]),
      ),
    )
    const all = met.flat()
    expect(all.map(({ rank }) => rank).sort()).toEqual([0, 1, 2, 3])
    expect([...all[0].names].sort()).toEqual(['a', "a's worker", 'b', "b's worker"])
    for (const { rank, names } of all) {
      expect(names).toEqual(all[0].names)
      expect(names[rank]).toMatch(/^[ab]/)
    }
    const ends = Promise.all(tabs.map((tab) => tab.evaluate(() => window.storePage.ends())))
    await served.close()
    expect(await ends).toEqual(Array(2).fill(Array(2).fill('peer.lost')))
  } finally {
    await browser.close()
    await served.close()
  }
})
