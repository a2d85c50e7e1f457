import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { dataOfTabs, RankTabs } from '../support/rank-tabs.ts'

let tabs: RankTabs
beforeAll(async () => {
  tabs = await RankTabs.start()
})
afterEach(() => tabs.closeTabs())
afterAll(() => tabs.stop())

// Three tabs share one process for their adapters. When that is busy, it tells of all parts at once, which hides what went on: hence
// up to three times. An engine that does not overlap shows it never.
test('the first frame leaves while later parts of backward still run', { retry: 2 }, async () => {
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
  if (!first.ok) throw new Error(`${first.code}: ${first.message}`)
  const parts = first.result.record.buckets.length
  expect(parts).toBeGreaterThanOrEqual(3)
  const { timeline } = first.result
  const timesOf = (name: string) =>
    timeline.filter((entry) => entry.name.endsWith(name)).map(({ atMs }) => atMs)
  const [firstEnded] = timesOf('part 0 done')
  const [lastEnded] = timesOf(`part ${parts - 1} done`)
  // Of any bucket: where the first one is small, this rank's first chunk of it may be empty.
  const sent = Math.min(...timesOf('reduceScatter: first frame sent'))
  // With all of backward in one submit its parts end together, just before the first frame leaves.
  const backwardMs = lastEnded - firstEnded
  expect(sent, JSON.stringify(timeline)).toBeLessThan(lastEnded - 0.1 * backwardMs)
})
