import { expect, test } from 'vitest'
import { PartQueue } from '../../../src/graph/run/part-queue.ts'

/** A device that runs parts of `durations` one after the other; returns what was submitted when, and when each ended. */
async function run(queue: PartQueue, clock: { ms: number }, durations: readonly number[]) {
  const received: string[] = []
  const ends: (() => void)[] = []
  let running = 0
  let freeMs = clock.ms
  const submitting = (async () => {
    queue.begin()
    for (const part of durations.keys()) {
      await queue.room()
      received.push(`submit ${part}`)
      queue.submitted(part, new Promise((resolve) => ends.push(resolve)))
    }
  })()
  while (running < durations.length) {
    for (let i = 0; i < 20; i++) await Promise.resolve()
    freeMs += durations[running]
    clock.ms = freeMs
    received.push(`end ${running}`)
    ends[running++]()
  }
  await submitting
  await queue.ran()
  return received
}

const queueOf = (count: number, isPaced: boolean) => {
  const clock = { ms: 0 }
  return { clock, queue: new PartQueue(count, isPaced, () => clock.ms) }
}
const allAtOnce = ['submit 0', 'submit 1', 'submit 2', 'submit 3']
const inOrder = ['end 0', 'end 1', 'end 2', 'end 3']

test('one long part is queued after the running one, once parts are known to be long', async () => {
  const { clock, queue } = queueOf(4, true)
  const durations = [50, 20, 20, 20]
  expect(await run(queue, clock, durations)).toEqual([...allAtOnce, ...inOrder])
  expect(await run(queue, clock, durations)).toEqual([
    'submit 0',
    'submit 1',
    'end 0',
    'submit 2',
    'end 1',
    'submit 3',
    'end 2',
    'end 3',
  ])
})

test('short parts are queued up to ten milliseconds of them', async () => {
  const { clock, queue } = queueOf(4, true)
  const durations = [1, 6, 6, 6]
  await run(queue, clock, durations)
  expect((await run(queue, clock, durations)).slice(0, 4)).toEqual([
    'submit 0',
    'submit 1',
    'submit 2',
    'end 0',
  ])
  await run(queue, clock, [1, 1, 1, 1])
  expect(await run(queue, clock, [1, 1, 1, 1])).toEqual([...allAtOnce, ...inOrder])
})

test('without pacing all parts are submitted at once, and ran() waits for the last', async () => {
  const { clock, queue } = queueOf(4, false)
  for (let i = 0; i < 2; i++)
    expect(await run(queue, clock, [50, 50, 50, 50])).toEqual([...allAtOnce, ...inOrder])
})

test('whenSubmitted waits for its part, and an error of a part comes out of room() and ran()', async () => {
  const { clock, queue } = queueOf(3, true)
  await run(queue, clock, [50, 50, 50])
  queue.begin()
  let isSubmitted = false
  const waiting = queue.whenSubmitted(1).then(() => {
    isSubmitted = true
  })
  queue.submitted(0, Promise.reject(new Error('lost')))
  await Promise.resolve()
  expect(isSubmitted).toBe(false)
  queue.submitted(1, new Promise(() => undefined))
  await waiting
  await expect(queue.room()).rejects.toThrow('lost')
})

test('a part of a failed run that ends during the next run does not count there', async () => {
  const { clock, queue } = queueOf(4, true)
  await run(queue, clock, [50, 50, 50, 50])
  let endLate!: () => void
  const late = new Promise<void>((resolve) => {
    endLate = resolve
  })
  let endFirst!: () => void
  const first = new Promise<void>((resolve) => {
    endFirst = resolve
  })
  queue.begin()
  queue.submitted(0, Promise.reject(new Error('lost')))
  queue.submitted(1, late)
  await expect(queue.room()).rejects.toThrow('lost')
  queue.begin()
  queue.submitted(0, first)
  queue.submitted(1, new Promise(() => undefined))
  endLate()
  for (let i = 0; i < 20; i++) await Promise.resolve()
  const room = queue.room()
  expect(room).toBeInstanceOf(Promise)
  clock.ms += 50
  endFirst()
  await room
  expect(queue.room()).toBeUndefined()
})
