import { afterEach, expect, test } from 'vitest'
import {
  ProcessExitedException,
  ProcessRaisedException,
  spawn,
} from '../../../src/entries/distributed.ts'
import type { Doing, Trained } from '../../support/spawned.worker.ts'
import { trainHere } from '../../support/spawned-training.ts'

// torch.multiprocessing.spawn: real workers of this page, joined without a server.

const rank = () =>
  new Worker(new URL('../../support/spawned.worker.ts', import.meta.url), { type: 'module' })
const nprocs = 4
const doing = (one: Doing) => ({ nprocs, args: [one] as const })

/** What dead ranks would leave behind. */
afterEach(async () => {
  await expect
    .poll(async () => {
      const { held = [] } = await navigator.locks.query()
      return held.filter(({ name }) => name?.startsWith('tabring'))
    })
    .toEqual([])
})

test('four ranks sum and train with DDP as one rank with their batches does', async () => {
  const received = await spawn<Trained>(rank, doing({ what: 'train', steps: 8, rows: 4 }))
  expect(received.map((one) => [one.rank, one.worldSize])).toEqual([0, 1, 2, 3].map((i) => [i, 4]))
  const whole = await trainHere(8, 16, 0, false)
  for (const { sum, kinds, losses, weights } of received) {
    expect(sum).toEqual([10, 60])
    expect(kinds).toEqual(['port', 'port', 'port'])
    expect(weights).toEqual(received[0].weights)
    for (const [i, loss] of losses.entries())
      expect(Math.abs(loss / whole.losses[i] - 1)).toBeLessThan(1e-5)
  }
  expect(whole.losses[7]).toBeLessThan(whole.losses[0])
  for (const [i, weight] of received[0].weights.entries())
    expect(Math.abs(weight - whole.weights[i])).toBeLessThan(1e-5)
})

test('the first rank that throws is named with its stack and causes; the others are ended', async () => {
  const error = await spawn(rank, doing({ what: 'fail', who: 2 })).catch((thrown) => thrown)
  expect(error).toBeInstanceOf(ProcessRaisedException)
  expect(error).toMatchObject({ code: 'rank.failed', errorIndex: 2 })
  expect(error.message).toMatch(
    /^spawn: rank 2 failed with this error:\nRangeError: no batch\n {4}at .*spawned\.worker\.ts.*:\d+:\d+\n[\s\S]*\ncause: TypeError: inner\n/,
  )
  expect(error.cause).toMatchObject({ name: 'RangeError', message: 'no batch' })
})

test('what is thrown outside of main is a failure too', async () => {
  await expect(spawn(rank, doing({ what: 'late', who: 1 }))).rejects.toMatchObject({
    errorIndex: 1,
    message: expect.stringContaining('Error: from a timer'),
  })
})

test('a worker that ends without an error is named, and not those that lose it', async () => {
  const error = await spawn(rank, doing({ what: 'close', who: 3 })).catch((thrown) => thrown)
  expect(error).toBeInstanceOf(ProcessExitedException)
  expect(error.errorIndex).toBe(3)
})

test('an abort ends all workers with its reason; so does terminate', async () => {
  const up = async (name: string) => {
    const channel = new BroadcastChannel(name)
    const ranks = new Set<number>()
    await new Promise<void>((resolve) => {
      channel.onmessage = ({ data }) => ranks.add(data).size === nprocs && resolve()
    })
    channel.close()
  }
  const control = new AbortController()
  const waiting = up('first')
  const run = spawn(rank, { ...doing({ what: 'wait', received: 'first' }), signal: control.signal })
  await waiting
  control.abort(new Error('enough'))
  await expect(run).rejects.toThrow('enough')
  await expect(spawn(rank, { signal: control.signal })).rejects.toThrow('enough')

  const again = up('second')
  const context = spawn(rank, { ...doing({ what: 'wait', received: 'second' }), join: false })
  expect(context.workers).toHaveLength(nprocs)
  await again
  expect(await context.join(1)).toBe(false)
  context.terminate()
  await expect(context.join()).rejects.toMatchObject({ code: 'rank.failed', errorIndex: 0 })
})

test("join: false, and ranks inherit the page's environment", async () => {
  Object.assign(globalThis, { __tabringEnvironment: { variables: { RUN_ID: 'mine' }, args: [] } })
  try {
    const context = spawn<[string, number]>(rank, { ...doing({ what: 'inherit' }), join: false })
    expect(await context.join()).toBe(true)
    expect(await context.results).toEqual([0, 1, 2, 3].map((i) => ['mine', i]))
  } finally {
    Reflect.deleteProperty(globalThis, '__tabringEnvironment')
  }
})

test('what cannot be: no function, no script, results and arguments that cannot be cloned', async () => {
  const url = new URL('../../support/spawned.worker.ts', import.meta.url)
  await expect(spawn(url as never)).rejects.toThrow(
    /expected a function that makes a worker, got the URL http/,
  )
  await expect(spawn(rank, { nprocs: 0 })).rejects.toMatchObject({ code: 'config.invalid' })
  const missing = () => new Worker('/no-such-worker.js', { type: 'module' })
  await expect(spawn(missing)).rejects.toMatchObject({
    errorIndex: 0,
    message: expect.stringMatching(/its file \/no-such-worker\.js, .*could not be loaded/),
  })
  await expect(spawn(rank, { args: [() => 1] })).rejects.toThrow(/could not be cloned/)
  await expect(spawn(rank, { args: [{ what: 'no clone' }] })).rejects.toMatchObject({
    errorIndex: 0,
    message: expect.stringContaining('could not be cloned'),
  })
})
