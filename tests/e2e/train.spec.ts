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
  initScript?: () => void,
) {
  const opened = await tabs.open(ranks, transport, config, initScript)
  const ends = await Promise.all(opened.map((tab) => tab.done))
  return ends.map((end) => {
    if (!end.ok) throw new Error(`${end.code}: ${end.message}`)
    return end
  })
}

const config = { steps: 12, seed: 7, batchSize: 64, bucketCapMb: 0.01, hashEvery: 5 } as const
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
    expect(new Set(ends.map(({ result }) => result.loss)).size).toBe(1)
    expect(ends.reduce((sum, { result }) => sum + result.samples, 0)).toBe(12 * 64)
  },
)

test('equal records end with equal bits, over every link; and with the loss of one rank', () => {
  const runs = [first.get('3 webrtc')!, first.get('3 port')!]
  expect(new Set(runs.map(([{ result }]) => result.paramHash)).size).toBe(1)
  const [alone] = first.get('1 webrtc')!
  for (const [{ result }] of runs) {
    expect(Math.abs(result.loss / alone.result.loss - 1)).toBeLessThan(1e-5)
  }
})

/** As in browsers whose data channels cannot be transferred. */
const refuseChannels = () => {
  const original = MessagePort.prototype.postMessage as (...args: unknown[]) => void
  MessagePort.prototype.postMessage = function (this: MessagePort, ...args: unknown[]) {
    if (args[0] instanceof RTCDataChannel) throw new DOMException('refused', 'DataCloneError')
    original.apply(this, args)
  }
}

test('where data channels cannot go to a worker the page pumps them, to the same bits', async () => {
  const ends = await results(2, 'webrtc', config, refuseChannels)
  const hashes = [...ends, ...first.get('2 webrtc')!].map(({ result }) => result.paramHash)
  expect(new Set(hashes).size).toBe(1)
})

test('three tabs train with the kernels that rank 0 has measured', async () => {
  const tuned = { steps: 2, seed: 7, batchSize: 12, tune: true }
  const ends = await results(3, 'webrtc', tuned)
  expect(new Set(ends.map(({ result }) => result.paramHash)).size).toBe(1)
  // All shares have four rows, so all ranks multiply alike; only their slices of the optimizer differ.
  const products = ends.map(({ result }) =>
    JSON.stringify(
      Object.entries(result.record.variants).filter(([call]) => call.startsWith('matmul')),
    ),
  )
  expect(new Set(products).size).toBe(1)
  expect(products[0]).not.toBe('[]')
})

test('the first frame leaves while later parts of backward still run', async () => {
  const [first] = await results(3, 'webrtc', { ...config, model: 'cnn', steps: 4, batchSize: 48 })
  const parts = first.result.record.buckets.length
  expect(parts).toBeGreaterThanOrEqual(3)
  const { timeline } = first.result
  const timesOf = (name: string) =>
    timeline.filter((entry) => entry.name.endsWith(name)).map(({ atMs }) => atMs)
  const [firstEnded] = timesOf('part 0 done')
  const [lastEnded] = timesOf(`part ${parts - 1} done`)
  // Of any bucket: where the first one is small, this rank's first chunk of it may be empty.
  const sent = Math.min(...timesOf('reduceScatter: first frame sent'))
  expect(sent, JSON.stringify(timeline)).toBeLessThan((firstEnded + lastEnded) / 2)
})
