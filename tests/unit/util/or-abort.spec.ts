import { getEventListeners } from 'node:events'
import { expect, test } from 'vitest'
import { orAbort } from '../../../src/util/or-abort.ts'

test('orAbort leaves no listener when its promise settles', async () => {
  const { signal } = new AbortController()
  expect(await orAbort(Promise.resolve(3), signal)).toBe(3)
  await expect(orAbort(Promise.reject(new Error('no')), signal)).rejects.toThrow('no')
  expect(getEventListeners(signal, 'abort')).toEqual([])
})

test('orAbort rejects with the reason when the signal aborts, or has aborted', async () => {
  const abort = new AbortController()
  const never = new Promise(() => undefined)
  const waiting = orAbort(never, abort.signal)
  abort.abort(new Error('stopped'))
  await expect(waiting).rejects.toThrow('stopped')
  await expect(orAbort(never, abort.signal)).rejects.toThrow('stopped')
})
