import { afterEach, expect, test, vi } from 'vitest'
import { getNumThreads, setNumThreads } from '../../../src/gpu/num-threads.ts'
import { openWasm } from '../../../src/gpu/wasm/open.ts'
import { Runtime } from '../../../src/graph/memory/runtime.ts'
import { RunLog } from '../../../src/trainer/watch/run-log.ts'
import { startTask } from '../../support/task-ranks.ts'

afterEach(() => vi.restoreAllMocks())

test('each rank reports and logs, with the step, that a thread of one has ended', async () => {
  const size = 2
  vi.spyOn(console, 'warn').mockReturnValue()
  const { Worker } = process.getBuiltinModule('node:worker_threads')
  const listens = vi.spyOn(Worker.prototype, 'on')
  const threads = getNumThreads()
  setNumThreads(2)
  const runtimes: Runtime[] = []
  const stopping = new AbortController()
  const config = { demo: 'playground', steps: 100_000, batchSize: 12, bucketCapMb: 1 } as const
  const open = async (rank: number) => {
    const runtime = new Runtime(await openWasm())
    runtimes[rank] = runtime
    return runtime
  }
  const { signal } = stopping
  const { ranks, close } = await startTask(size, config, open, () => ({ signal }))
  try {
    const [begun] = await Promise.all(ranks.map((rank) => rank.until('devices')))
    const two = 'CPU in WebAssembly, 2 threads'
    expect(begun.devices).toEqual(Array(size).fill(two))
    await ranks[0].until('step', ({ step }) => step > 20)
    const worker = listens.mock.contexts[0] as InstanceType<typeof Worker>
    await worker.terminate()
    const changes = await Promise.all(
      ranks.map((rank) => rank.until('devices', ({ step }) => step !== undefined)),
    )
    const at = runtimes.findIndex(({ facts }) => facts.description.includes('1 thread;'))
    const one = 'CPU in WebAssembly, 1 thread (a worker ended (it exited with 1))'
    const devices = runtimes.map((_, rank) => (rank === at ? one : two))
    for (const [rank, change] of changes.entries()) {
      expect(change).toMatchObject({ step: changes[0].step, devices, rank })
      expect(change.adapter).toEqual({ ...runtimes[rank].facts })
      const log = new RunLog()
      for (const event of ranks[rank].events) log.add(event)
      expect(log.file({}, null).devices).toEqual([{ step: change.step, devices }])
    }
  } finally {
    stopping.abort()
    await Promise.all(ranks.map(({ end }) => end.catch(() => undefined)))
    close()
    for (const { gpu } of runtimes) gpu.close()
    setNumThreads(threads)
  }
})
