import { describe, expect, test } from 'vitest'
import type { ProcessGroup } from '../../../src/peer/group/group.ts'
import type { Fault, FaultKind } from '../../../src/peer/link/memory-link.ts'
import { FrameType, fieldOffset } from '../../../src/peer/link/wire.ts'
import type { PeerError } from '../../../src/util/errors.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { memoryRing, outcomes } from '../../support/memory-ring.ts'

// Faults of a link or a neighbour: lost, doubled, late and broken messages, ends, silence.

const length = 60_000

/** Injects a fault into the `nth` DATA message. */
function dataFault(kind: FaultKind, nth: number, delayMs = 0): Fault {
  let seen = 0
  return {
    kind,
    delayMs,
    matches: (message) => message[fieldOffset.type] === FrameType.data && ++seen === nth,
  }
}

interface Broken {
  env: VirtualEnv
  groups: ProcessGroup[]
  errors: (PeerError | undefined)[]
  failedAfterMs: number
  buffers: Float32Array[]
}

/** Runs one all-reduce (#42) on `size` ranks with `fault` on the link from rank 1 to the next. */
async function runWith(size: number, fault: Fault, deadlineMs = 5000): Promise<Broken> {
  const env = new VirtualEnv(11)
  const { groups } = memoryRing(
    env,
    size,
    (rank) => ({
      delayMs: () => 1,
      // On two ranks there is one link, from 0 to 1: its way back is the way from 1.
      ...(size === 2 ? { backward: [fault] } : rank === 1 ? { forward: [fault] } : {}),
    }),
    { deadlineMs },
  )
  const buffers = groups.map((_, rank) => new Float32Array(length).fill(rank + 1))
  const startedMs = env.now()
  const errors = (await env.until(
    outcomes(
      groups.map((group, rank) =>
        group.allReduce(buffers[rank]!, { sequence: 42, algorithm: 'ring' }),
      ),
    ),
  )) as (PeerError | undefined)[]
  return { env, groups, errors, failedAfterMs: env.now() - startedMs, buffers }
}

async function expectAllRejected({ env, groups, errors }: Broken): Promise<void> {
  errors.forEach((error, rank) => {
    const text =
      error?.code === 'peer.lost'
        ? /^rank \d lost rank \d: .* \(allReduce #42 bucket 0\)$/
        : /^allReduce #42 bucket 0: .*rank \d/
    expect(error?.message, `rank ${rank}`).toMatch(text)
    expect(error?.code).toMatch(/^peer\./)
    expect(groups[rank]!.error?.code).toBe(error?.code)
  })
  // And every later collective, at once.
  const later = await env.until(outcomes(groups.map((group) => group.barrier())), 1)
  for (const error of later) expect(error?.message).toMatch(/^barrier #0: |\(barrier #0\)$/)
}

describe.each([2, 3, 5])('%i ranks', (size) => {
  const cases: { kind: FaultKind; code: string; text: RegExp; withinMs: number }[] = [
    { kind: 'drop', code: 'peer.protocol', text: /expected frame \d+, got frame/, withinMs: 1500 },
    {
      kind: 'duplicate',
      code: 'peer.protocol',
      text: /expected frame \d+, got frame/,
      withinMs: 1500,
    },
    {
      kind: 'reorder',
      code: 'peer.protocol',
      text: /expected frame \d+, got frame/,
      withinMs: 1500,
    },
    {
      kind: 'truncate',
      code: 'peer.protocol',
      text: /expected \d+ bytes .*got \d+ bytes/,
      withinMs: 500,
    },
    {
      kind: 'wrong-epoch',
      code: 'peer.protocol',
      text: /expected frame \d+, got frame/,
      withinMs: 1500,
    },
    {
      kind: 'close',
      code: 'peer.lost',
      text: /^rank \d lost rank \d: the transport closed\./,
      withinMs: 500,
    },
    {
      kind: 'freeze',
      code: 'peer.timeout',
      text: /rank \d waited 5000 ms for .*rank \d/,
      withinMs: 6000,
    },
    {
      kind: 'one-way',
      code: 'peer.timeout',
      text: /rank \d waited 5000 ms for .*rank \d/,
      withinMs: 6000,
    },
  ]
  test.each(cases)('$kind: every rank rejects, naming rank and operation', async (one) => {
    const fault = dataFault(one.kind, size === 2 ? 1 : 3)
    const broken = await runWith(size, fault)
    expect(fault.injectionCount, 'the fault must have struck').toBe(1)
    await expectAllRejected(broken)
    for (const error of broken.errors) {
      expect(error!.code).toBe(one.code)
      expect(error!.message).toMatch(one.text)
    }
    expect(broken.failedAfterMs).toBeLessThan(one.withinMs)
  })

  test.each(['delay', 'slow'] as const)('%s below the deadline: late, and right', async (kind) => {
    const fault = dataFault(kind, 3, 700)
    const { errors, buffers, failedAfterMs } = await runWith(size, fault)
    expect(fault.injectionCount).toBe(1)
    expect(errors.every((error) => error === undefined)).toBe(true)
    expect(failedAfterMs).toBeGreaterThan(700)
    const sum = (size * (size + 1)) / 2
    for (const buffer of buffers) expect(buffer.every((value) => value === sum)).toBe(true)
  })

  test('delay beyond the deadline: a timeout that rejects on every rank is never swallowed', async () => {
    const fault = dataFault('delay', size === 2 ? 1 : 3, 60_000)
    const broken = await runWith(size, fault)
    expect(fault.injectionCount).toBe(1)
    await expectAllRejected(broken)
    for (const error of broken.errors) expect(error!.code).toBe('peer.timeout')
    expect(broken.failedAfterMs).toBeGreaterThanOrEqual(5000)
    expect(broken.failedAfterMs).toBeLessThan(6000)
  })

  test('a frozen rank with a long deadline is found dead by its heartbeat', async () => {
    const env = new VirtualEnv(1)
    const freeze = (): Fault => ({ kind: 'freeze', matches: () => env.now() > 2500 })
    const faults = [freeze(), freeze()]
    // Everything into and out of rank 1 stops.
    const { groups } = memoryRing(env, size, (rank) => ({
      delayMs: () => 1,
      ...(rank === 0 ? { forward: [faults[0]!] } : rank === 1 ? { forward: [faults[1]!] } : {}),
    }))
    await env.advance(3000)
    const pending = outcomes(groups.filter((_, rank) => rank !== 1).map((group) => group.barrier()))
    const suspects: number[] = []
    groups[0]!.onsuspect = (rank, isSuspect) => isSuspect && suspects.push(rank)
    const errors = (await env.until(pending, 10_000)) as PeerError[]
    expect(faults[0]!.injectionCount).toBe(1)
    for (const error of errors) {
      expect(error.code).toBe('peer.lost')
      expect(error.message).toMatch(
        /^rank \d lost rank 1: it stopped answering \(nothing heard for 8\d\d\d ms\)\..* \(barrier #0\)$/,
      )
    }
    expect(suspects).toContain(1)
  })
})

test('frames of another epoch are counted and dropped', async () => {
  const broken = await runWith(3, dataFault('wrong-epoch', 2))
  const stats = broken.groups[2]!.stats().links.get(1)!
  expect(stats.foreignEpochFrames).toBe(1)
})

test('a timeout names who waited, for what, from whom, and when something was last heard', async () => {
  const env = new VirtualEnv(1)
  const { groups } = memoryRing(env, 3, () => ({ delayMs: () => 1 }), { deadlineMs: 5000 })
  const buffers = groups.map(() => new Float32Array(9))
  // Rank 1 never calls.
  const errors = await env.until(
    outcomes(
      [groups[0]!, groups[2]!].map((group, i) =>
        group.allReduce(buffers[i]!, { sequence: 42, algorithm: 'ring' }),
      ),
    ),
  )
  const texts = errors.map((error) => error!.message)
  expect(texts[1]).toMatch(
    /^allReduce #42 bucket 0: .*rank 2 waited 5000 ms for chunk \d from rank 1; last frame \d+ ms ago; it answers, but has not started this collective: its program has ended, or does something else\. Have all ranks /,
  )
  expect(groups[1]!.error?.message, 'the rank that was missing hears of it too').toMatch(
    /waited 5000 ms/,
  )
})

test('a link that ends while nothing is under way is a failure at once', async () => {
  const env = new VirtualEnv(1)
  const { groups, edges } = memoryRing(env, 3)
  await env.until(Promise.all(groups.map((group) => group.ready())))
  edges[0]![0].close('the connection was cut')
  await env.advance(10)
  for (const group of groups) expect(group.error?.code).toBe('peer.lost')
})

test('a rank does not report a neighbour as dead after its own long pause', async () => {
  const env = new VirtualEnv(1)
  const { groups } = memoryRing(env, 2)
  await env.until(Promise.all(groups.map((group) => group.ready())))
  // A worker that compiles for 20 s: its timers and messages all run afterwards.
  const now = env.now.bind(env)
  let skippedMs = 0
  env.now = () => now() + skippedMs
  skippedMs = 20_000
  await env.advance(3000)
  for (const group of groups) expect(group.error).toBeUndefined()
})
