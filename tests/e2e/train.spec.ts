import { afterAll, afterEach, beforeAll, expect, test } from 'vitest'
import { dataOfTabs, RankTabs, refuseChannels, withoutWebRtc } from '../support/rank-tabs.ts'

/** Four batches of 64 and a last one of 30, which leaves the second of three ranks 8 samples and the third none. */
const samples = 4 * 64 + 30

let tabs: RankTabs
beforeAll(async () => {
  tabs = await RankTabs.start({ train: samples })
})
afterEach(() => tabs.closeTabs())
afterAll(() => tabs.stop())

async function results(
  ranks: number,
  transport: Parameters<RankTabs['open']>[1],
  config: Parameters<RankTabs['open']>[2],
  initScript?: Parameters<RankTabs['open']>[3],
) {
  const opened = await tabs.open(ranks, transport, config, initScript)
  const ends = await Promise.all(opened.map((tab) => tab.done))
  return ends.map((end, i) => {
    if (!end.ok) throw new Error(`${end.code}: ${end.message}`)
    const losses = opened[i].events.flatMap((event) => (event.event === 'step' ? event.loss : []))
    return { ...end, losses }
  })
}

const config = {
  data: dataOfTabs,
  steps: 12,
  seed: 7,
  batchSize: 64,
  bucketCapMb: 0.01,
  hashEvery: 5,
} as const
type Results = Awaited<ReturnType<typeof results>>
const first = new Map<string, Results>()

test.each([
  [1, 'webrtc'],
  [2, 'webrtc'],
  [3, 'webrtc'],
  [3, 'port'],
] as const)(
  '%d tabs over %s train one model and hold equal parameters',
  async (ranks, transport) => {
    const ends = await results(ranks, transport, config)
    first.set(`${ranks} ${transport}`, ends)
    expect(ends.map(({ rank }) => rank)).toEqual([...Array(ranks).keys()])
    expect(new Set(ends.map(({ result }) => result.paramHash)).size).toBe(1)
    expect(ends[0].losses).toHaveLength(12)
    for (const { losses } of ends) expect(losses).toEqual(ends[0].losses)
    // Two epochs, and two full batches of the third.
    expect(ends.reduce((sum, { result }) => sum + result.samples, 0)).toBe(2 * samples + 2 * 64)
  },
)

test('equal records end with equal bits, over every link; and every step has the loss of one rank', () => {
  const runs = [first.get('3 webrtc')!, first.get('3 port')!]
  expect(new Set(runs.map(([{ result }]) => result.paramHash)).size).toBe(1)
  const [alone] = first.get('1 webrtc')!
  for (const [{ losses }] of [...runs, first.get('2 webrtc')!]) {
    losses.forEach((loss, i) => {
      expect(Math.abs(loss / alone.losses[i] - 1), `step ${i + 1}`).toBeLessThan(1e-5)
    })
  }
})

test('where data channels cannot go to a worker the page pumps them, to the same bits', async () => {
  const ends = await results(2, 'webrtc', config, refuseChannels)
  const hashes = [...ends, ...first.get('2 webrtc')!].map(({ result }) => result.paramHash)
  expect(new Set(hashes).size).toBe(1)
})

test('where WebRTC is taken away two tabs train through the server, to the same bits', async () => {
  const ends = await results(2, 'relay', config, withoutWebRtc)
  const hashes = [...ends, ...first.get('2 webrtc')!].map(({ result }) => result.paramHash)
  expect(new Set(hashes).size).toBe(1)
})

test('three tabs of which one has no WebRTC fall back to the server on its links alone, to the same bits', async () => {
  const scripts = [undefined, withoutWebRtc, undefined]
  const ends = await results(3, 'fallback', config, scripts)
  expect(ends.map(({ links }) => links)).toEqual([
    ['relay', 'webrtc'],
    ['relay', 'relay'],
    ['webrtc', 'relay'],
  ])
  const hashes = [...ends, ...first.get('3 webrtc')!].map(({ result }) => result.paramHash)
  expect(new Set(hashes).size).toBe(1)
  for (const { bytesSent } of ends) expect(bytesSent).toBeGreaterThan(100_000)
})

test('three tabs train with the kernels that rank 0 has measured for the rows of each', async () => {
  const ends = await results(3, 'webrtc', {
    data: dataOfTabs,
    steps: 2,
    seed: 7,
    batchSize: 10,
    tune: true,
  })
  expect(new Set(ends.map(({ result }) => result.paramHash)).size).toBe(1)
  const records = ends.map(({ result }) => result.record)
  const [{ measured, shares, adapters }] = records
  expect(shares).toEqual([4, 3, 3])
  expect(adapters).toHaveLength(3)
  for (const record of records) {
    expect(record.measured).toEqual(measured)
    expect(record.adapters).toEqual(adapters)
    // Every rank multiplies its own rows, with the variants that were measured for them.
    const products = Object.entries(record.variants).filter(([call]) => call.startsWith('matmul'))
    expect(products).not.toEqual([])
    expect(Object.fromEntries(products)).toEqual(
      Object.fromEntries(products.map(([call]) => [call, measured[call]])),
    )
  }
  expect(records[1].variants).not.toEqual(records[0].variants)
})
