import { afterAll, beforeAll, expect } from 'vitest'
import { getDefaultDevice } from '../../src/graph/memory/default-runtime.ts'
import { nextTask } from '../../src/util/next-task.ts'
import './equal-bits.ts'
import { destroyRings } from './process-ring.ts'

// Unit specs share their worker's modules and timers, so what one leaves behind reaches the next.

const timerCount = () =>
  process.getActiveResourcesInfo().filter((resource) => resource === 'Timeout').length

/** Milliseconds until the next task: the shortest of five waits, since a collection of garbage may delay one. */
async function shortestTaskMs(): Promise<number> {
  let min = Number.POSITIVE_INFINITY
  for (let wait = 0; wait < 5; wait++) {
    const startMs = performance.now()
    await nextTask()
    min = Math.min(min, performance.now() - startMs)
  }
  return min
}

/** Groups that have left wait for their links to close. */
const waitMs = 10_000

let timersBefore = 0
beforeAll(() => {
  timersBefore = timerCount()
})

afterAll(async () => {
  const { type } = getDefaultDevice()
  // Of `auto`, before and after it is known that Node has no GPU.
  expect(['webgpu', 'cpu'], 'this spec changed the default device; set it back').toContain(type)
  destroyRings()
  const deadlineMs = performance.now() + waitMs
  while (timerCount() > timersBefore && performance.now() < deadlineMs) {
    await new Promise((resolve) => setTimeout(resolve, 10))
  }
  expect(
    timerCount(),
    'this spec leaves timers behind; end the groups and servers that it makes',
  ).toBeLessThanOrEqual(timersBefore)
  expect(
    await shortestTaskMs(),
    'this spec leaves work behind that takes the whole worker; end what it starts',
  ).toBeLessThan(20)
}, 2 * waitMs)
