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
const first = new Map<number, Results>()

test.each([1, 3])(
  '%d tabs over WebRTC train one model and hold equal parameters',
  async (ranks) => {
    const ends = await results(ranks, 'webrtc', config)
    first.set(ranks, ends)
    expect(ends.map(({ rank }) => rank)).toEqual([...Array(ranks).keys()])
    expect(new Set(ends.map(({ result }) => result.paramHash)).size).toBe(1)
    expect(ends[0].losses).toHaveLength(12)
    for (const { losses } of ends) expect(losses).toEqual(ends[0].losses)
    // Two epochs, and two full batches of the third.
    expect(ends.reduce((sum, { result }) => sum + result.samples, 0)).toBe(2 * samples + 2 * 64)
  },
)

test('every step of three tabs has the loss of one', () => {
  const [alone] = first.get(1)!
  const [{ losses }] = first.get(3)!
  losses.forEach((loss, i) => {
    expect(Math.abs(loss / alone.losses[i] - 1), `step ${i + 1}`).toBeLessThan(1e-5)
  })
})

test('the server passes no gradient, and no offer that it could read', () => {
  const tabs = first.get(3)!
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
