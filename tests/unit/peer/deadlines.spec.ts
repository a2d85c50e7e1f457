import { describe, expect, test } from 'vitest'
import { Deadlines, type Timed } from '../../../src/peer/collective/deadlines.ts'
import type { MemoryLinkOptions } from '../../../src/peer/link/memory-link.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'
import { outcomes } from '../../support/memory-ring.ts'

interface Still extends Timed {
  stillSinceMs: number
}

function deadlines() {
  const env = new VirtualEnv(1)
  const waiting: Still[] = []
  const late: { one: Still; waitedMs: number; atMs: number }[] = []
  const watch = new Deadlines<Still>({
    env,
    waiting: () => waiting,
    onlate: (one, waitedMs) => {
      waiting.splice(waiting.indexOf(one as Still), 1)
      late.push({ one: one as Still, waitedMs, atMs: env.now() })
    },
  })
  const launch = (deadlineMs: number) => {
    const one = { stillSinceMs: env.now(), deadlineMs }
    waiting.push(one)
    watch.watch(one)
    return one
  }
  return { env, waiting, late, watch, launch }
}

describe('one timer', () => {
  test('each deadline fires once, the soonest first', async () => {
    const { env, late, launch } = deadlines()
    const long = launch(5000)
    await env.advance(100)
    const short = launch(1000)
    await env.advance(20_000)
    expect(late).toEqual([
      { one: short, waitedMs: 1000, atMs: 1100 },
      { one: long, waitedMs: 5000, atMs: 5000 },
    ])
  })

  test('a deadline is extended only by progress of the same collective, and removed when that ends', async () => {
    const { env, waiting, late, launch } = deadlines()
    const moving = launch(1000)
    for (let i = 0; i < 10; i++) {
      await env.advance(900)
      moving.stillSinceMs = env.now()
    }
    expect(late).toEqual([])
    waiting.pop()
    await env.advance(5000)
    expect(late).toEqual([])
    const still = launch(1000)
    const other = launch(1000)
    await env.advance(900)
    other.stillSinceMs = env.now()
    await env.advance(5000)
    expect(late).toEqual([
      { one: still, waitedMs: 1000, atMs: 15_000 },
      { one: other, waitedMs: 1000, atMs: 15_900 },
    ])
  })

  test('no deadline fires after stop', async () => {
    const { env, late, watch, launch } = deadlines()
    launch(1000)
    watch.stop()
    launch(500)
    await env.advance(5000)
    expect(late).toEqual([])
  })
})

describe('other calls during a call', () => {
  /** Links that take 10 ms for a message of 1 KiB, one after the other. */
  const slowMesh = (size: number) => {
    const env = new VirtualEnv(3)
    const slow = (): MemoryLinkOptions => {
      let freeMs = 0
      const delayMs = () => {
        freeMs = Math.max(freeMs, env.now()) + 10
        return freeMs - env.now()
      }
      return { maxMessageBytes: 1024, delayMs }
    }
    return { env, groups: memoryMesh(env, size, slow) }
  }
  const long = () => new Uint8Array(400_000)
  const short = () => new Uint8Array(10)

  test('does not extend the deadline of the call', async () => {
    const env = new VirtualEnv(3)
    const groups = memoryMesh(env, 2)
    const error = outcomes([groups[0]!.recv(short(), 1, { deadlineMs: 500 })])
    let reduced = 0
    const beside = (async () => {
      for (; !groups[0]!.error; reduced++) {
        await Promise.all(groups.map((group) => group.allReduce(new Float32Array(4))))
        await new Promise<void>((resolve) => env.after(50, resolve))
      }
    })()
    const [late] = await env.until(error, 5000)
    expect(late?.message).toMatch(
      /send #0 .*rank 0 waited 500 ms for chunk 0 from rank 1; .*not started/,
    )
    expect(env.now()).toBe(500)
    expect(reduced).toBe(10)
    await env.until(outcomes([beside]))
  })

  test('does not extend the deadline of a collective that a rank never calls', async () => {
    const env = new VirtualEnv(3)
    const groups = memoryMesh(env, 3)
    const stuck = outcomes([groups[0]!.barrier({ sequence: 1, deadlineMs: 500 })])
    const beside = (async () => {
      while (!groups[0]!.error) {
        await Promise.all(groups.map((group) => group.allReduce(new Float32Array(4))))
        await new Promise<void>((resolve) => env.after(50, resolve))
      }
    })()
    const [late] = await env.until(stuck, 5000)
    expect(late?.message).toMatch(/barrier #1 bucket 0.*not started/)
    // Its own deadline, and one behind what was launched within it.
    expect(env.now()).toBeLessThanOrEqual(1050)
    await env.until(outcomes([beside]))
  })

  test('counts when the link carries it first, by the order here', async () => {
    const { env, groups } = slowMesh(2)
    const given = { tag: 1, deadlineMs: 1000 }
    const calls = [
      ...[groups[0]!.recv(long(), 1), groups[0]!.recv(short(), 1, given)],
      ...[groups[1]!.send(long(), 0), groups[1]!.send(short(), 0, given)],
    ]
    expect(await env.until(outcomes(calls), 60_000)).toEqual(calls.map(() => undefined))
    expect(env.now()).toBeGreaterThan(3000)
  })

  test('counts when the link carries it first, by the order on the other side', async () => {
    const { env, groups } = slowMesh(2)
    const given = { tag: 1, deadlineMs: 1000 }
    const calls = [
      ...[groups[0]!.recv(short(), 1, given), groups[0]!.recv(long(), 1)],
      ...[groups[1]!.send(long(), 0), groups[1]!.send(short(), 0, given)],
    ]
    expect(await env.until(outcomes(calls), 60_000)).toEqual(calls.map(() => undefined))
    expect(env.now()).toBeGreaterThan(3000)
  })

  test('does not count on another link', async () => {
    const { env, groups } = slowMesh(3)
    const calls = [
      ...[groups[0]!.recv(long(), 2), groups[2]!.send(long(), 0)],
      groups[0]!.recv(short(), 1, { deadlineMs: 1000 }),
    ]
    const errors = await env.until(outcomes(calls), 60_000)
    expect(errors[2]?.message).toMatch(/rank 0 waited 1000 ms for chunk 0 from rank 1/)
    expect(env.now()).toBeLessThan(1100)
  })
})
