import { expect, test } from 'vitest'
import type { TabEvent } from '../../../node/train/tab-group.ts'
import { Stops } from '../../../scripts/exact/stops.ts'

const step = (rank = 0) => ({ event: 'step', rank }) as TabEvent
const regrouped = { event: 'regrouped', step: 0, worldSize: 2, rank: 0 } as const

/** Takes steps of rank 0 at those distances. Returns the time of the last one. */
function take(stops: Stops, fromMs: number, ...lengthsMs: number[]): number {
  let nowMs = fromMs
  for (const ms of lengthsMs) {
    nowMs += ms
    stops.take(step(), nowMs)
    stops.take(step(1), nowMs + 1)
  }
  return nowMs
}

test('Stops counts the time after a loss from its first report, from any rank', () => {
  const stops = new Stops()
  const nowMs = take(stops, 0, 100, 100, 100)
  stops.take({ event: 'lost', text: 'rank 1 lost rank 0.', who: 0, rank: 1 }, nowMs + 700)
  stops.take({ event: 'lost', text: 'rank 2 lost rank 0.', who: 0, rank: 2 }, nowMs + 800)
  stops.take(regrouped, nowMs + 900)
  take(stops, nowMs, 1700, 100)
  expect(stops.all).toEqual([{ isLoss: true, ms: 1000, ordinaryMs: 100, maxMs: 2000 }])
})

test('Stops allows ten steps after a loss where steps are slow', () => {
  const stops = new Stops()
  const nowMs = take(stops, 0, 100, 500, 500)
  stops.take({ event: 'lost', text: 'rank 0 lost rank 1.', who: 1, rank: 0 }, nowMs)
  stops.take(regrouped, nowMs)
  take(stops, nowMs, 3000)
  expect(stops.all).toEqual([{ isLoss: true, ms: 3000, ordinaryMs: 500, maxMs: 5000 }])
})

test('Stops counts what ranks that come cost beyond an ordinary step', () => {
  const stops = new Stops()
  let nowMs = take(stops, 0, 100, 100, 100)
  stops.take(regrouped, nowMs)
  nowMs = take(stops, nowMs, 500, 150, 150, 150)
  stops.take(regrouped, nowMs)
  take(stops, nowMs, 250, 100)
  expect(stops.all).toEqual([
    { isLoss: false, ms: 350, ordinaryMs: 150, maxMs: 500 },
    { isLoss: false, ms: 100, ordinaryMs: 150, maxMs: 500 },
  ])
})
