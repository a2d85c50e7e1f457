import { expect, test } from 'vitest'
import type { RunEvent } from '../../../src/trainer/watch/run-events.ts'
import { EventBatches } from '../../../src/worker/compute/event-batches.ts'

const step = (number: number) => ({ event: 'step', step: number }) as RunEvent
const phase: RunEvent = { event: 'phase', phase: 'broadcast', rank: 0 }
const test5: RunEvent = { event: 'phase', phase: 'evaluate', rank: 0 }
const value = { event: 'evaluation', step: 5 } as RunEvent

test('quick steps and tests go together, with the moment of each; anything else at once and in order', () => {
  let nowMs = 1000
  const due: { atMs: number; run: () => void }[] = []
  const posted: [number, string[]][] = []
  const nameOf = (event: RunEvent) => (event.event === 'step' ? `step ${event.step}` : event.event)
  const batches = new EventBatches(
    (events) => posted.push([nowMs, events.map(({ event, atMs }) => `${nameOf(event)} ${atMs}`)]),
    () => nowMs,
    (delayMs, run) => void due.push({ atMs: nowMs + delayMs, run }),
  )
  for (let number = 1; number <= 12; number++) {
    batches.add(step(number))
    if (number === 5) for (const event of [test5, value]) batches.add(event)
    nowMs += 20
    for (const timer of due.splice(0)) {
      if (timer.atMs <= nowMs) timer.run()
      else due.push(timer)
    }
  }
  batches.add(phase)
  expect(posted.map(([atMs, texts]) => [atMs, texts.length])).toEqual([
    [1000, 1],
    [1100, 6],
    [1200, 5],
    [1240, 3],
  ])
  expect(posted[3][1]).toEqual(['step 11 1200', 'step 12 1220', 'phase 1240'])
})
