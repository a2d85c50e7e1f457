import { afterEach, expect, test, vi } from 'vitest'
import { getNumThreads, setNumThreads } from '../../src/gpu/num-threads.ts'
import { openWasm } from '../../src/gpu/wasm/open.ts'

afterEach(() => {
  vi.restoreAllMocks()
  vi.unstubAllGlobals()
})

test('the device cpu says how many threads are left when the browser ends one between two steps', async () => {
  const workers: Worker[] = []
  const construct = (target: typeof Worker, args: ConstructorParameters<typeof Worker>) => {
    const worker = new target(...args)
    workers.push(worker)
    return worker
  }
  vi.stubGlobal('Worker', new Proxy(Worker, { construct }))
  const warn = vi.spyOn(console, 'warn').mockReturnValue()
  setNumThreads(2)
  const gpu = await openWasm()
  const held = async () =>
    (await navigator.locks.query()).held?.filter(({ name }) => name?.startsWith('tabring-thread'))
  await expect.poll(held).toHaveLength(1)
  expect(getNumThreads()).toBe(2)
  // As a browser that is short of memory does.
  workers[0].terminate()
  await expect
    .poll(() => warn.mock.calls)
    .toContainEqual([
      'tabring: the device cpu computes on 1 of 2 threads: a worker ended (the browser ended it).',
    ])
  expect(getNumThreads()).toBe(1)
  expect(gpu.facts.description).toContain('1 thread; a worker ended')
  gpu.close()
})
