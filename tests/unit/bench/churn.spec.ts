import { expect, test } from 'vitest'
import { deathsOf } from '../../../bench/churn/deaths.ts'
import { barsOf, cellsOf, formatReport, type Row } from '../../../bench/churn/report.ts'
import { Standing } from '../../../bench/churn/standing.ts'
import type { TabEvent } from '../../../node/train/tab-group.ts'
import { seededRandom } from '../../../src/util/virtual-env.ts'

/** How long each tab lived that was lost, where each lost one, oldest first, is replaced at once. */
function livesIn(deaths: ReturnType<typeof deathsOf>, tabs: number): number[] {
  const born = Array.from({ length: tabs }, () => 0)
  return deaths.map(({ atMs, pick }) => {
    const [bornMs] = born.splice(Math.floor(pick * tabs), 1)
    born.push(atMs)
    return atMs - bornMs
  })
}

test('deathsOf draws exponential lives of that mean', () => {
  const lives = livesIn(deathsOf(seededRandom(1), 3, 5000, 20_000_000), 3)
  const share = (isSo: (ms: number) => boolean) => lives.filter(isSo).length / lives.length
  expect(lives.length / 12_000).toBeCloseTo(1, 1)
  expect(lives.reduce((sum, ms) => sum + ms, 0) / lives.length / 5000).toBeCloseTo(1, 1)
  // Of exponential lives this part exceeds the mean, and twice the mean.
  expect(share((ms) => ms > 5000)).toBeCloseTo(Math.exp(-1), 1)
  expect(share((ms) => ms > 10_000)).toBeCloseTo(Math.exp(-2), 1)
})

test('deathsOf draws the same deaths from the same seed, in order, within the time', () => {
  const draw = (seed: number) => deathsOf(seededRandom(seed), 3, 5000, 60_000)
  const deaths = draw(7)
  expect(draw(7)).toEqual(deaths)
  expect(draw(8)).not.toEqual(deaths)
  expect(deaths.length).toBeGreaterThan(20)
  const times = deaths.map(({ atMs }) => atMs)
  expect(times).toEqual(times.toSorted((a, b) => a - b))
  expect(times.at(-1)).toBeLessThan(60_000)
  expect(new Set(deaths.map(({ how }) => how))).toEqual(new Set(['crash', 'close']))
})

const stepped = (step: number, rank = 0) => ({ event: 'step', step, rank }) as TabEvent

test('Standing counts a step once when it is computed again', () => {
  const standing = new Standing()
  for (const step of [1, 2, 3, 4]) standing.take(stepped(step))
  standing.take({ event: 'regrouped', step: 2, worldSize: 2, rank: 0 })
  expect(standing.step).toBe(2)
  for (const step of [3, 4, 5]) standing.take(stepped(step))
  expect(standing.step).toBe(5)
})

test('Standing counts the steps of rank 0 alone', () => {
  const standing = new Standing()
  standing.take(stepped(3))
  standing.take(stepped(2, 1))
  expect(standing.step).toBe(3)
})

test('Standing keeps what is in a checkpoint when the run ends', () => {
  const standing = new Standing()
  standing.take(stepped(9))
  standing.end()
  expect(standing.step, 'nothing was saved').toBe(0)
  for (const step of [9, 10]) standing.take(stepped(step))
  standing.take({ event: 'checkpoint', step: 10, name: 'step-10', isBest: false, rank: 0 })
  for (const step of [11, 12]) standing.take(stepped(step))
  standing.end()
  expect(standing.step).toBe(10)
})

const row = (way: Row['way'], life: number | null, round: number, steps: number): Row => ({
  way,
  life,
  round,
  steps,
  seconds: 10,
  lost: life === null ? 0 : 4,
  starts: 1,
})

test('goodput is relative to the same way without losses in the same round', () => {
  const ways = ['restart', 'elastic', 'exact'] as const
  const rows = ways.flatMap((way, at) => [
    row(way, null, 0, 100 * (at + 1)),
    row(way, null, 1, 200 * (at + 1)),
    row(way, 15, 1, 100 * (at + 1)),
    row(way, 15, 0, 70 * (at + 1)),
  ])
  const cells = cellsOf(rows)
  expect(cells.map(({ life, way }) => `${life} ${way}`)).toEqual([
    'null restart',
    'null elastic',
    'null exact',
    '15 restart',
    '15 elastic',
    '15 exact',
  ])
  const [exact] = cells.slice(-1)
  expect(exact).toMatchObject({ goodput: [21, 30], ratios: [0.7, 0.5], lost: 8, starts: 2 })
  const bars = barsOf(cells)
  expect(bars.map(({ name }) => name)).toEqual(['15 s, restart', '15 s, elastic', '15 s, exact'])
  expect(bars[2].value).toBeCloseTo(60)
  expect(bars[2].deviation).toBeCloseTo(10)
  expect(formatReport('Where.', cells)).toContain('60 %')
})
