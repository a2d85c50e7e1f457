import { expect, test } from 'vitest'
import { servePages } from '../../../node/own-pages.ts'
import { launchBrowser } from '../../support/launch-browser.ts'
import { openOverlapTabs, overlapPage, timeRounds } from '../../support/overlap-tabs.ts'

// What the overlap saves is a benchmark: `npm run bench -- overlap`. This is what makes it possible, by a step's own marks; a step that
// the machine disturbs may hide it, so one round of several must show it.
test('over links as slow as the computing, the first bucket is reduced before backward has ended', async () => {
  const served = await servePages(overlapPage)
  const browsers = [await launchBrowser(), await launchBrowser()]
  try {
    const task = { width: 128, layers: 8, batch: 1024, bucketCapMb: 0.07 }
    const url = `${served.localUrl}${overlapPage}`
    const { pages, buckets } = await openOverlapTabs(browsers, url, 2, task)
    expect(buckets).toBe(8)
    const seen = []
    for (let round = 0; round < 10; round++) {
      await timeRounds(pages, 1)
      const [marks] = await Promise.all(
        pages.map((page) => page.evaluate(() => globalThis.overlapTab.timeline('overlap'))),
      )
      const at = (name: string) => marks.find(([mark]) => mark === name)![1]
      if (at('bucket 0 reduced') < at('part 7 done')) return
      seen.push(marks)
    }
    expect.fail(`no round of ${seen.length} overlaps: ${JSON.stringify(seen)}`)
  } finally {
    for (const browser of browsers) await browser.close()
    await served.close()
  }
})
