import { expect, test } from 'vitest'
import { dataOfTabs, refuseChannels, withoutWebRtc } from '../../support/rank-tabs.ts'
import {
  config,
  type Results,
  results,
  serverBytes,
  useTrainTabs,
} from '../../support/train-tabs.ts'

useTrainTabs()

const known = new Map<number, Promise<Results>>()
/** The run of that many tabs over WebRTC. */
function overWebRtc(ranks: number): Promise<Results> {
  const run = known.get(ranks) ?? results(ranks, 'webrtc', config)
  known.set(ranks, run)
  return run
}

test('2 tabs over webrtc train one model and follow one tab', async () => {
  const [[alone], two] = [await overWebRtc(1), await overWebRtc(2)]
  expect(new Set(two.map(({ result }) => result.paramHash)).size).toBe(1)
  two[0].losses.forEach((loss, i) => {
    expect(Math.abs(loss / alone.losses[i] - 1), `step ${i + 1}`).toBeLessThan(1e-5)
  })
})

test('3 tabs over ports train one model, to the bits of three over WebRTC', async () => {
  const ends = await results(3, 'port', config)
  const hashes = [...ends, ...(await overWebRtc(3))].map(({ result }) => result.paramHash)
  expect(new Set(hashes).size).toBe(1)
})

test('where data channels cannot go to a worker the page pumps them, to the same bits', async () => {
  const ends = await results(2, 'webrtc', config, refuseChannels)
  const hashes = [...ends, ...(await overWebRtc(2))].map(({ result }) => result.paramHash)
  expect(new Set(hashes).size).toBe(1)
})

test('where WebRTC is taken away two tabs train through the server, to the same bits', async () => {
  const ends = await results(2, 'relay', config, withoutWebRtc)
  // What tests/e2e/train.spec.ts measures does see gradients, where they take this way.
  for (const tab of ends) expect(serverBytes(tab)).toBeGreaterThan(tab.bytesSent)
  const hashes = [...ends, ...(await overWebRtc(2))].map(({ result }) => result.paramHash)
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
  const hashes = [...ends, ...(await overWebRtc(3))].map(({ result }) => result.paramHash)
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
