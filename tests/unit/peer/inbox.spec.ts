import { expect, test } from 'vitest'
import {
  Inbox,
  maxUncheckedBytes,
  maxWaitingBytes,
} from '../../../src/peer/elastic/member-links.ts'

/** An inbox whose first message is being checked until `check` is called. */
function busy() {
  const inbox = new Inbox()
  let check: () => void = () => undefined
  const checked = new Promise<void>((resolve) => {
    check = resolve
  })
  inbox.put(1, () => checked, maxUncheckedBytes)
  return { inbox, check }
}

test('messages are taken in their order, although a check takes a while', async () => {
  const taken: number[] = []
  const { inbox, check } = busy()
  inbox.put(1, async () => void taken.push(1), maxUncheckedBytes)
  inbox.put(1, () => void taken.push(2), maxWaitingBytes)
  expect(taken).toEqual([])
  check()
  await new Promise(setImmediate)
  inbox.put(1, () => void taken.push(3), maxWaitingBytes)
  expect(taken).toEqual([1, 2, 3])
})

test('at most 1,024 passed messages of a neighbour wait for a check, and as many others', async () => {
  const taken: number[] = []
  const { inbox, check } = busy()
  const put = (max: number, at: number) => inbox.put(100, () => void taken.push(at), max)
  const countOf = (max: number) => {
    let count = 0
    while (count < 5000 && put(max, count)) count++
    return count
  }
  expect(countOf(maxUncheckedBytes)).toBe(1024)
  expect(countOf(maxWaitingBytes)).toBe(1024)
  expect(put(Number.POSITIVE_INFINITY, 0)).toBe(true)
  check()
  await new Promise(setImmediate)
  expect(taken.length).toBe(2049)
  expect(put(maxUncheckedBytes, 0)).toBe(true)
})

test('large messages count by their bytes', () => {
  const { inbox } = busy()
  const put = () => inbox.put(2 ** 20, () => undefined, maxUncheckedBytes)
  expect([put(), put(), put()]).toEqual([true, true, false])
})

test('messages that wait are dropped when their sender has lied', async () => {
  const taken: number[] = []
  const { inbox, check } = busy()
  inbox.put(1, () => void taken.push(1), maxWaitingBytes)
  inbox.clear()
  inbox.put(1, () => void taken.push(2), maxWaitingBytes)
  check()
  await new Promise(setImmediate)
  expect(taken).toEqual([2])
})
