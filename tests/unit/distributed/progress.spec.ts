import { afterEach, expect, test, vi } from 'vitest'
import { progressName, reportProgress } from '../../../src/distributed/launcher/progress.ts'

afterEach(() => vi.unstubAllGlobals())

test("progress goes to the launcher's page function as JSON", () => {
  const take = vi.fn()
  vi.stubGlobal(progressName, take)
  reportProgress({ step: 3, totalSteps: 10, loss: Number.NaN })
  expect(take.mock.calls).toEqual([['{"step":3,"totalSteps":10,"loss":null}']])
})

test('without a launcher nothing happens', () => {
  expect(() => reportProgress({ step: 1, totalSteps: 2 })).not.toThrow()
})

test('a worker sends it to its page over the channel', async () => {
  vi.stubGlobal('WorkerGlobalScope', class {})
  const page = new BroadcastChannel(progressName)
  const heard = new Promise((resolve) => {
    page.onmessage = ({ data }) => resolve(data)
  })
  reportProgress({ step: 1, totalSteps: 2 })
  expect(await heard).toBe('{"step":1,"totalSteps":2}')
  page.close()
})

test('numbers out of range and unknown names are errors', () => {
  expect(() => reportProgress({ step: 1.5, totalSteps: 2 })).toThrow(
    'step must be a whole number of 0 or more, got 1.5',
  )
  expect(() => reportProgress({ step: 1, total: 2 } as never)).toThrow('got "total"')
})
