import { describe, expect, test } from 'vitest'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import type { Fault } from '../../../src/peer/link/memory-link.ts'
import { endFactsOf, PeerError, RunError } from '../../../src/util/errors.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { memoryRing, outcomes } from '../../support/memory-ring.ts'

// A rank ends the epoch, by aborting or by leaving: what the others hear.

test('abort reaches every rank with code and text when the owner calls it', async () => {
  const env = new VirtualEnv(1)
  const { groups } = memoryRing(env, 5, () => ({ delayMs: () => 2 }))
  const heard: string[] = []
  for (const group of groups) group.onfailure = (error) => heard.push(error.message)
  const pending = outcomes(groups.slice(1).map((group) => group.barrier()))
  await env.advance(50)
  groups[3]!.abort('signaling says that rank 4 is gone')
  const errors = (await env.until(pending, 20)) as PeerError[]
  for (const error of errors) {
    expect(error.code).toBe('peer.aborted')
    expect(error.message).toMatch(
      /^barrier #0: .*rank 3 aborted: signaling says that rank 4 is gone/,
    )
  }
  expect(heard.length, 'once per rank').toBe(5)
  expect((await groups[0]!.failed).code).toBe('peer.aborted')
})

test('a code of the server alone arrives as peer.aborted when a rank sends it', async () => {
  const env = new VirtualEnv(1)
  for (const [code, heard] of [
    ['peer.removed', 'peer.aborted'],
    ['peer.late', 'peer.aborted'],
    ['peer.lost', 'peer.lost'],
  ] as const) {
    const { groups } = memoryRing(env, 3, () => ({ delayMs: () => 2 }))
    groups[1]!.abort(new RunError(code, 'removed by Ada', { ranks: [2], leftOut: 'barred' }))
    const error = await env.until(groups[0]!.failed, 20)
    expect(error.code).toBe(heard)
    expect(endFactsOf(error)).toEqual({ ranks: [2] })
  }
})

describe('every rank reports each fact of a failure once', () => {
  const wait =
    'rank 0 waited 1000 ms for chunk 1 from rank 2; last frame 499 ms ago; it runs reduceScatter of 9 elements of float32, which rank 0 has not called. Every rank must call the same functions in the same order.'
  const aborting = (reason: string | PeerError) => (group: ProcessGroup) => group.abort(reason)

  // Ranks 0 and 1 run an all-reduce, rank 2 runs something else; `inject` is done to rank 1.
  test.each<[string, (group: ProcessGroup) => void, operation: string, why: string]>([
    ['in words', aborting('enough'), '', 'rank 1 aborted: enough'],
    [
      'an error that names no rank',
      aborting(new PeerError('train.nan', 'loss: got NaN.')),
      '',
      'rank 1: loss: got NaN.',
    ],
    [
      'what the server says',
      aborting(new PeerError('peer.aborted', 'epoch 3: rank 2 (Ada) is gone: left.')),
      '',
      'rank 2 (Ada) is gone: left.',
    ],
    ['what one collective noticed', () => undefined, 'allReduce #4 bucket 0', wait],
  ])('%s', async (_name, inject, operation, why) => {
    const env = new VirtualEnv(1)
    const { groups } = memoryRing(env, 3, () => ({ delayMs: () => 1 }))
    const pending = outcomes(
      groups.map((group, rank) =>
        rank === 2
          ? group.reduceScatter(new Float32Array(9), { sequence: 5, algorithm: 'ring' })
          : group.allReduce(new Float32Array(9), {
              sequence: 4,
              algorithm: 'ring',
              deadlineMs: rank === 0 ? 1000 : 5000,
            }),
      ),
    )
    await env.advance(50)
    inject(groups[1]!)
    const errors = await env.until(pending, 5000)
    const received = operation ? `${operation}: ${why}` : why
    for (const group of groups) expect(group.error?.message).toBe(received)
    expect(errors.map((error) => error?.message)).toEqual([
      `allReduce #4 bucket 0: ${why}`,
      `allReduce #4 bucket 0: ${why}`,
      `reduceScatter #5 bucket 0: ${received}`,
    ])
  })

  test('leave rejects the collectives that the rank still waits for, and later ones with what to do', async () => {
    const env = new VirtualEnv(1)
    const { groups } = memoryRing(env, 3)
    const pending = outcomes([groups[0]!.barrier()])
    groups[0]!.destroy('the tab was closed')
    const errors = await env.until(pending, 10)
    expect(errors[0]!.message).toBe('barrier #0: rank 0 left: the tab was closed.')
    await expect(groups[0]!.allReduce(new Float32Array(4), { label: 'evaluate' })).rejects.toThrow(
      /^evaluate via allReduce #1: rank 0 left: the tab was closed\. Train, save and evaluate before destroyProcessGroup\(\), or form a new group\.$/,
    )
  })
})

test('leave ends the others when collectives are open, and not when all have finished', async () => {
  const env = new VirtualEnv(1)
  const { groups } = memoryRing(env, 3, () => ({ delayMs: () => 1 }))
  const pending = outcomes(groups.slice(1).map((group) => group.barrier()))
  await env.advance(20)
  groups[0]!.destroy('the tab was closed')
  const errors = (await env.until(pending, 100)) as PeerError[]
  for (const error of errors)
    expect(error.message).toMatch(
      /^rank \d lost rank 0: it left \(the tab was closed\)\. Start again without it, or reload all tabs\. \(barrier #0\)$/,
    )
})

test('leave resolves when nobody answers its goodbye', async () => {
  const env = new VirtualEnv(1)
  const freeze: Fault = { kind: 'freeze', matches: () => env.now() >= 100 }
  const { groups } = memoryRing(env, 3, (rank) => (rank === 0 ? { forward: [freeze] } : {}))
  await env.until(Promise.all(groups.map((group) => group.barrier())))
  const heard: string[] = []
  for (const group of groups) group.onfailure = (error) => heard.push(error.message)
  await env.advance(100)
  await env.until(Promise.all(groups.map((group) => group.leave())), 7000)
  expect(freeze.injectionCount).toBe(1)
  expect(heard).toEqual([])
})

test('ranks that leave one after the other keep no timers', async () => {
  const env = new VirtualEnv(1)
  const { groups } = memoryRing(env, 3, () => ({ delayMs: () => 1 }))
  await env.until(Promise.all(groups.map((group) => group.barrier())))
  for (const group of groups) {
    await env.until(group.leave())
    await env.advance(100)
  }
  expect(env.timers).toBe(0)
})

test('a rank that waits for HELLO rejects at once when the epoch ends', async () => {
  const env = new VirtualEnv(1)
  const cut: Fault = { kind: 'one-way', matches: () => true }
  const { groups } = memoryRing(env, 4, (rank) => (rank === 0 ? { backward: [cut] } : {}))
  const waiting = outcomes([groups[0]!.ready()])
  await env.advance(50)
  groups[2]!.abort('enough')
  const [error] = await env.until(waiting, 10)
  expect(cut.injectionCount).toBe(1)
  expect(error).toBe(groups[0]!.error)
  expect(error?.message).toBe('rank 2 aborted: enough')
})
