import { afterEach, expect, test, vi } from 'vitest'
import { startWorker } from '../../../src/util/start-worker.ts'
import { startCompute } from '../../../src/worker/page/client.ts'

afterEach(() => {
  vi.unstubAllGlobals()
})

/** A browser's Worker that fails as given, as soon as its page listens. */
function failing(fields: object): typeof Worker {
  class Failing extends EventTarget {
    constructor() {
      super()
      queueMicrotask(() => this.dispatchEvent(Object.assign(new Event('error'), fields)))
    }
    readonly postMessage = () => undefined
    readonly terminate = () => undefined
  }
  vi.stubGlobal('Worker', Failing)
  return Failing as never
}

const whyOf = (start: () => Worker) =>
  new Promise<string>((resolve) => startWorker('Worker', start, resolve))

test('a missing file is named, however deep the call of the constructor is', async () => {
  const own = failing({})
  const deep = () => (() => new Worker(new URL('https://a.example/assets/rank.js')))()
  expect(await whyOf(deep)).toBe(
    'its file https://a.example/assets/rank.js, or one that it imports, could not be loaded; check that the server has it',
  )
  expect(globalThis.Worker).toBe(own)
})

test('an error of its script is passed with its place', async () => {
  failing({ message: 'Uncaught Error: torn', filename: 'https://a.example/rank.js', lineno: 7 })
  expect(await whyOf(() => new Worker('rank.js'))).toBe(
    'Uncaught Error: torn (https://a.example/rank.js:7)',
  )
})

test('the constructor is restored after a start that throws', () => {
  const own = failing({})
  const start = () => {
    throw new Error('mine')
  }
  expect(() => startWorker('Worker', start, () => undefined)).toThrow('mine')
  expect(globalThis.Worker).toBe(own)
})

test('the compute worker of a page names its file', async () => {
  failing({})
  const { dead } = startCompute(() => new Worker('/assets/compute.worker.js'))
  await expect(dead).rejects.toMatchObject({
    code: 'worker.dead',
    message: expect.stringContaining('its file /assets/compute.worker.js, or one'),
  })
})
