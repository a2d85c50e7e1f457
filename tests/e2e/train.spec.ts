import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { RankTabs } from '../support/rank-tabs.ts'

let tabs: RankTabs
beforeAll(async () => {
  tabs = await RankTabs.start()
})
afterEach(() => tabs.closeTabs())
afterAll(() => tabs.stop())

async function results(
  ranks: number,
  transport: 'webrtc' | 'port',
  config: Parameters<RankTabs['open']>[2],
) {
  const opened = await tabs.open(ranks, transport, config)
  const ends = await Promise.all(opened.map((tab) => tab.done))
  return ends.map((end) => {
    if (!end.ok) throw new Error(`${end.code}: ${end.message}`)
    return end
  })
}

const config = { steps: 12, seed: 7, batchSize: 64, bucketCapMb: 0.01, hashEvery: 5 } as const

test.each([
  [1, 'webrtc'],
  [2, 'webrtc'],
  [3, 'webrtc'],
  [3, 'port'],
] as const)(
  '%d tabs over %s train one model and hold equal parameters',
  async (ranks, transport) => {
    const ends = await results(ranks, transport, config)
    expect(ends.map(({ rank }) => rank)).toEqual([...Array(ranks).keys()])
    expect(new Set(ends.map(({ result }) => result.paramHash)).size).toBe(1)
    expect(new Set(ends.map(({ result }) => result.loss)).size).toBe(1)
    expect(ends.reduce((sum, { result }) => sum + result.samples, 0)).toBe(12 * 64)
  },
)

test('ranks see the losses of one rank', async () => {
  const [alone] = await results(1, 'webrtc', config)
  const [three] = await results(3, 'webrtc', config)
  expect(Math.abs(three.result.loss / alone.result.loss - 1)).toBeLessThan(1e-5)
})

test('equal records end with equal bits, over every link', async () => {
  const hashes = [
    await results(3, 'webrtc', config),
    await results(3, 'webrtc', config),
    await results(3, 'port', config),
  ].map(([first]) => first.result.paramHash)
  expect(new Set(hashes).size).toBe(1)
})

test('data channels carry 2(N-1)/N of the parameters each step', async () => {
  // With the default cap: few frames, so that what is measured is the ring and not its smallest messages.
  const steps = 150
  const ends = await results(3, 'webrtc', { ...config, steps, bucketCapMb: 1, hashEvery: 50 })
  const parameterBytes = 4 * (784 * 256 + 256 + 256 * 10 + 10)
  for (const { rank, bytesSentOnChannels } of ends) {
    const ratio = bytesSentOnChannels / (((2 * 2) / 3) * parameterBytes * steps)
    expect(Math.abs(ratio - 1), `rank ${rank}: ${bytesSentOnChannels} bytes`).toBeLessThan(0.05)
  }
})

test('the first frame leaves before the last part of backward has ended', async () => {
  const [first] = await results(3, 'webrtc', { ...config, model: 'cnn', batchSize: 96 })
  expect(first.result.record.buckets.length).toBeGreaterThanOrEqual(3)
  const { timeline } = first.result
  const at = (name: string) => timeline.find((entry) => entry.name === name)?.atMs
  const sent = at('bucket 0 reduceScatter: first frame sent')
  const ended = at('backward done')
  expect(sent, JSON.stringify(timeline)).toBeDefined()
  expect(ended).toBeDefined()
  expect(sent!).toBeLessThan(ended!)
})
