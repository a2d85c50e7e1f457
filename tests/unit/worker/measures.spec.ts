import { describe, expect, it } from 'vitest'
import type { Measured } from '../../../src/peer/messages.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { Measures, type MeasuresOptions } from '../../../src/worker/measures.ts'

/** What a member measures of itself, when, and how often it tells. */

function measuring(given: Partial<MeasuresOptions> = {}) {
  const env = new VirtualEnv(3)
  const told: { atMs: number; measured: Measured }[] = []
  const calls = { speed: 0, server: 0, links: 0 }
  const measures = new Measures({
    env,
    tell: (measured) => told.push({ atMs: env.now(), measured }),
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
  return { env, told, calls, measures }
}

describe('what a member measures of itself', () => {
  it('its round trip to the server at once, its device once the room is quiet, and neither told again without news', async () => {
    const { env, told, calls, measures } = measuring()
    measures.begin()
    for (let member = 0; member < 8; member++) {
      measures.roomIs(`lobby ${member}`)
      await env.advance(500)
    }
    expect(calls.speed).toBe(0)
    expect(told.map(({ measured }) => measured)).toEqual([{ serverUs: 400 }])
    await env.advance(5_000)
    expect(told.at(-1)!.measured).toEqual({ serverUs: 400, megaflops: 15_900 })
    await env.advance(600_000)
    expect(calls.speed).toBe(1)
    expect(calls.server).toBeGreaterThan(60)
    expect(told).toHaveLength(2)
  })

  it('in a run its links, never its device; behind it neither is of the past', async () => {
    const { env, told, calls, measures } = measuring()
    measures.begin()
    await env.advance(100)
    measures.runBegan()
    const server = calls.server
    await env.advance(10_000)
    expect(calls).toEqual({ speed: 0, server, links: 4 })
    expect(told.at(-1)!.measured).toEqual({ serverUs: 400, linkUs: [300, 800] })
    measures.runEnded()
    await env.advance(10_000)
    expect(told.at(-1)!.measured).toEqual({ serverUs: 400, megaflops: 15_900 })
  })

  it('a device that a run took first is measured behind the run', async () => {
    let isBusy = true
    const { env, told, measures } = measuring({
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
    expect(told.at(-1)!.measured.megaflops).toBe(2_000)
  })

  it('tells at most every two seconds, the newest, and nothing once it is over', async () => {
    let ms = 1
    const { env, told, measures } = measuring({
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
    expect(told.length).toBeLessThanOrEqual(3)
    await env.advance(10_000)
    for (const [i, { atMs }] of told.slice(1).entries())
      expect(atMs - told[i]!.atMs).toBeGreaterThanOrEqual(2_000)
    expect(told.at(-1)!.measured.linkUs?.[0]).toBe(Math.min(6e7, 1000 * ms))
    measures.end()
    const count = told.length
    await env.advance(60_000)
    expect(told).toHaveLength(count)
    expect(env.timers).toBe(0)
  })

  it('a question that fails, or an answer that comes in another run, changes nothing', async () => {
    let answer!: (ms: number[]) => void
    const { env, told, measures } = measuring({
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
    expect(told.map(({ measured }) => measured)).toEqual([{ serverUs: 400 }])
  })
})
