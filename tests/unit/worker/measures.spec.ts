import { describe, expect, it } from 'vitest'
import type { Measured } from '../../../src/peer/room/messages.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { Measures, type MeasuresOptions } from '../../../src/worker/page/measures.ts'

/** What a member measures of itself, when, and how often it sends it. */

function measuring(given: Partial<MeasuresOptions> = {}) {
  const env = new VirtualEnv(3)
  const received: { atMs: number; measured: Measured }[] = []
  const calls = { speed: 0, server: 0, links: 0 }
  const measures = new Measures({
    env,
    report: (measured) => received.push({ atMs: env.now(), measured }),
    isAlone: () => false,
    speed: async () => {
      calls.speed++
      return 15.9
    },
    serverRoundTrip: async () => {
      calls.server++
      return 0.4
    },
    linkRoundTrips: async () => {
      calls.links++
      return [0.3, Number.NaN, 0.8]
    },
    ...given,
  })
  return { env, received, calls, measures }
}

describe('what a member measures of itself', () => {
  it('sends the round trip to the server at once, the device once the room is quiet, and neither again without news', async () => {
    const { env, received, calls, measures } = measuring()
    measures.begin()
    for (let member = 0; member < 8; member++) {
      measures.roomIs(`lobby ${member}`)
      await env.advance(500)
    }
    expect(calls.speed).toBe(0)
    expect(received.map(({ measured }) => measured)).toEqual([{ serverUs: 400 }])
    await env.advance(5_000)
    expect(received.at(-1)!.measured).toEqual({ serverUs: 400, megaflops: 15_900 })
    await env.advance(600_000)
    expect(calls.speed).toBe(1)
    expect(calls.server).toBeGreaterThan(60)
    expect(received).toHaveLength(2)
  })

  it('measures the device once another member is there', async () => {
    let members = 1
    const { env, calls, measures } = measuring({ isAlone: () => members === 1 })
    measures.begin()
    await env.advance(60_000)
    expect(calls.speed).toBe(0)
    members = 2
    measures.roomIs('two')
    await env.advance(60_000)
    expect(calls.speed).toBe(1)
  })

  it('measures the device again when the room is quiet again, three times at most, and sends the maximum', async () => {
    const found = [2, 9, 5, 100]
    const { env, received, measures } = measuring({ speed: async () => found.shift()! })
    measures.begin()
    for (const max of [2_000, 9_000, 9_000, 9_000, 9_000]) {
      await env.advance(10_000)
      expect(received.at(-1)!.measured.megaflops).toBe(max)
      measures.roomIs(`lobby ${env.now()}`)
    }
    expect(found).toEqual([100])
  })

  it('measures only links during a run, and drops them after it', async () => {
    const { env, received, calls, measures } = measuring()
    measures.begin()
    await env.advance(100)
    measures.runBegan()
    const server = calls.server
    await env.advance(10_000)
    expect(calls).toEqual({ speed: 0, server, links: 4 })
    expect(received.at(-1)!.measured).toEqual({ serverUs: 400, linkUs: [300, 800] })
    measures.runEnded()
    await env.advance(10_000)
    expect(received.at(-1)!.measured).toEqual({ serverUs: 400, megaflops: 15_900 })
  })

  it('sends the way to the next member between runs only', async () => {
    const { env, received, measures } = measuring()
    const id = 'ab'.repeat(8)
    const last = () => received.at(-1)!.measured.toNext
    measures.begin()
    await env.advance(10_000)
    measures.nextIs({ id, us: 8_000 })
    await env.advance(3_000)
    expect(last()).toEqual({ id, us: 8_000 })
    // Neither a little more is news, nor what was known.
    const count = received.length
    for (const us of [8_100, 9_500]) {
      measures.nextIs({ id, us })
      await env.advance(3_000)
    }
    expect(received).toHaveLength(count)
    for (const toNext of [{ id, us: null }, { id: 'cd'.repeat(8), us: null }, undefined]) {
      measures.nextIs(toNext)
      await env.advance(3_000)
      expect(last()).toEqual(toNext)
    }
    measures.nextIs({ id, us: 8_000 })
    measures.runBegan()
    measures.nextIs({ id, us: 7 })
    await env.advance(5_000)
    expect(received.at(-1)!.measured).toMatchObject({ linkUs: [300, 800] })
    expect(last()).toBeUndefined()
  })

  it('measures a device again after a run that took it first', async () => {
    let isBusy = true
    const { env, received, measures } = measuring({
      speed: async () => {
        measures.runBegan()
        return isBusy ? null : 2
      },
    })
    measures.begin()
    await env.advance(2_000)
    isBusy = false
    measures.runEnded()
    await env.advance(5_000)
    expect(received.at(-1)!.measured.megaflops).toBe(2_000)
  })

  it('sends the newest at most every two seconds, and nothing after its end', async () => {
    let ms = 1
    const { env, received, measures } = measuring({
      linkRoundTrips: async () => {
        ms *= 2
        return [ms]
      },
    })
    measures.begin()
    for (let run = 0; run < 20; run++) {
      measures.runBegan()
      await env.advance(200)
    }
    expect(received.length).toBeLessThanOrEqual(3)
    await env.advance(10_000)
    for (const [i, { atMs }] of received.slice(1).entries())
      expect(atMs - received[i]!.atMs).toBeGreaterThanOrEqual(2_000)
    expect(received.at(-1)!.measured.linkUs?.[0]).toBe(Math.min(6e7, 1000 * ms))
    measures.end()
    const count = received.length
    await env.advance(60_000)
    expect(received).toHaveLength(count)
    expect(env.timers).toBe(0)
  })

  it('a question that fails, or an answer that comes in another run, changes nothing', async () => {
    let answer!: (ms: number[]) => void
    const { env, received, measures } = measuring({
      speed: () => Promise.reject(new Error('lost')),
      linkRoundTrips: () =>
        new Promise((resolve) => {
          answer = resolve
        }),
    })
    measures.begin()
    await env.advance(100)
    measures.runBegan()
    await env.advance(100)
    measures.runEnded()
    answer([7])
    await env.advance(30_000)
    expect(received.map(({ measured }) => measured)).toEqual([{ serverUs: 400 }])
  })
})
