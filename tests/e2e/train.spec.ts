import { expect, test } from 'vitest'
import {
  config,
  type Results,
  results,
  samples,
  serverBytes,
  useTrainTabs,
} from '../support/train-tabs.ts'

// tests/all/e2e/train.spec.ts has the other ways that links may take.

useTrainTabs()
const first = new Map<string, Results>()

test.each([
  [1, 'webrtc'],
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
  for (const [{ losses }] of runs) {
    losses.forEach((loss, i) => {
      expect(Math.abs(loss / alone.losses[i] - 1), `step ${i + 1}`).toBeLessThan(1e-5)
    })
  }
})

test('the server passes no gradient, and no offer that it could read', () => {
  const tabs = first.get('3 webrtc')!
  for (const tab of tabs) {
    // 12 steps of a model of 814,120 bytes leave the tab, none of them to the server.
    expect(tab.bytesSent).toBeGreaterThan(12 * 814_120)
    expect(serverBytes(tab)).toBeLessThan(100_000)
    const text = tab.frames.join('\n')
    expect(text).toContain('"welcome"')
    expect(text).toContain('"box"')
    expect(text).not.toMatch(/candidate|v=0|fingerprint|ice-ufrag/)
  }
})
