import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { dataOfTabs, RankTabs } from '../../support/rank-tabs.ts'

let tabs: RankTabs
beforeAll(async () => {
  tabs = await RankTabs.start()
})
afterEach(() => tabs.closeTabs())
afterAll(() => tabs.stop())

/** Runs three tabs; returns how far before the end of backward the first frame left, as a share of backward, and what was recorded. */
async function lead() {
  const config = {
    data: dataOfTabs,
    seed: 7,
    bucketCapMb: 0.01,
    model: 'cnn',
    steps: 4,
    batchSize: 48,
  } as const
  const opened = await tabs.open(3, 'webrtc', config)
  const [first] = await Promise.all(opened.map((tab) => tab.done))
  await tabs.closeTabs()
  if (!first.ok) throw new Error(`${first.code}: ${first.message}`)
  const parts = first.result.record.buckets.length
  expect(parts).toBeGreaterThanOrEqual(3)
  const { timeline } = first.result
  const runTimesOf = (name: string) =>
    timeline.filter((entry) => entry.name.endsWith(name)).map(({ atMs }) => atMs)
  const [firstEnded] = runTimesOf('part 0 done')
  const [lastEnded] = runTimesOf(`part ${parts - 1} done`)
  // Of any bucket: where the first one is small, this rank's first chunk of it may be empty.
  const sent = Math.min(...runTimesOf('reduceScatter: first frame sent'))
  return { share: (lastEnded - sent) / (lastEnded - firstEnded), timeline }
}

// Three tabs share one process for their adapters. While that is busy it reports all parts at once, which hides the overlap: so one run
// of several must show it. An engine that submits all of backward at once never does, its parts end together.
test('the first frame leaves while later parts of backward still run', async () => {
  const leads = []
  for (let run = 0; run < 5; run++) {
    leads.push(await lead())
    if (leads[run].share > 0.1) return
  }
  expect.fail(`no run of ${leads.length} overlaps: ${JSON.stringify(leads)}`)
})
