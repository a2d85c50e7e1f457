import { describe, expect, it } from 'vitest'
import { costsOf, isAsStated } from '../../../demos/ring/costs.ts'
import { verdictsOf } from '../../../demos/ring/counts.tsx'
import { meta } from '../../../demos/ring/meta.ts'
import { momentOf, seenAt, stopsOf } from '../../../demos/ring/moment.ts'
import { paces, playedAt } from '../../../demos/ring/paces.ts'
import { plainSum } from '../../../demos/ring/plain-sum.ts'
import { hopsOf, plansOf } from '../../../demos/ring/recorder.ts'
import {
  algorithmChoices,
  defaultSettings,
  machinesOf,
  queryOf,
  type RingSettings,
  settingsIn,
  settle,
} from '../../../demos/ring/settings.ts'
import { drawInputs, type Story, tellRun } from '../../../demos/ring/story.ts'
import { deedWords, momentWords } from '../../../demos/ring/words.ts'
import { chunksOf } from '../../../src/peer/algorithms/plan.ts'
import { elements, reduced, reducedByMachines } from '../../support/collective-reference.ts'

const received = (some: Partial<RingSettings>): Promise<Story> =>
  tellRun(settle({ ...defaultSettings, ...some }))

/** Each cost that has an exact formula, by name, with both numbers. */
const exact = (story: Story) => costsOf(story).filter((cost) => isAsStated(cost) !== undefined)

function expectRight(story: Story): void {
  const { verdict, failure, settings } = story
  expect(failure).toBe('')
  expect(verdict.unlikeFirst).toEqual(new Array(settings.ranks).fill(0))
  expect(verdict.unlikeLoop).toBe(0)
  for (const cost of exact(story)) expect(isAsStated(cost), JSON.stringify(cost)).toBe(true)
  expect(exact(story).length).toBeGreaterThan(1)
}

/** Whose contributions all chunks of all ranks hold at a time, as sets of bits. */
const heldAt = ({ held }: Story, ms: number) =>
  held.map((row) => row.map((history) => seenAt(history, ms)?.map(({ ranks }) => ranks)))

describe('the ring demo', () => {
  it('gives its stated result', async () => {
    const { ranks, length, algorithm, steps, bytesPerRank } = meta.expected
    const story = await received({ ranks, length, algorithm })
    expectRight(story)
    const [inSteps, inBytes] = costsOf(story)
    expect(inSteps.counted).toBe(steps)
    expect(inBytes.counted).toBe(bytesPerRank)
    expect(story.messages).toHaveLength(steps * ranks)
    for (let rank = 0; rank < ranks; rank++) {
      const sent = story.messages.filter(({ from }) => from === rank)
      expect(sent.reduce((sum, { payloadBytes }) => sum + payloadBytes, 0)).toBe(bytesPerRank)
      expect(sent.every(({ to }) => to === (rank + 1) % ranks)).toBe(true)
    }
  })

  it.each(algorithmChoices)('%s on 2 to 16 ranks, with loss and without', async (algorithm) => {
    for (const ranks of [2, 3, 5, 16])
      for (const lossPercent of [0, 10])
        for (const length of [1, ranks + 1, 3001]) {
          const machines = ranks > 4 ? 3 : 1
          const story = await received({
            algorithm,
            ranks,
            length,
            lossPercent,
            machines,
            seed: ranks,
          })
          const name = `${ranks} ranks, ${length} elements, ${lossPercent} % lost`
          expect(story.failure, name).toBe('')
          expectRight(story)
          const all = 2 ** ranks - 1
          for (const row of heldAt(story, story.endMs))
            for (const bits of row) if (bits) expect(bits, name).toEqual([all])
        }
  })

  it('its plain loops are those that the collectives are held to', () => {
    const settings = { ...defaultSettings, ranks: 7, machines: 3, length: 100 }
    const inputs = drawInputs(settings)
    const machines = machinesOf(settings)!
    const { float32 } = elements
    const ownerOf = (i: number) =>
      chunksOf(100, 7).findIndex(({ start, end }) => start <= i && i < end)
    for (const [i, sum] of plainSum(inputs, machines).entries())
      expect(sum).toBe(reducedByMachines(float32, inputs, 'sum', machines, ownerOf(i), i))
    for (const [i, sum] of plainSum(inputs, undefined).entries())
      expect(sum).toBe(reduced(float32, inputs, 'sum', ownerOf(i) + 1, i))
  })

  it('repeats a run to the last bit and moment, and another seed gives another', async () => {
    const settings = { ranks: 5, length: 50_000, lossPercent: 5, latencyMs: 3 }
    const [one, same, other] = [
      await received({ ...settings, seed: 7 }),
      await received({ ...settings, seed: 7 }),
      await received({ ...settings, seed: 8 }),
    ]
    expect(same).toEqual(one)
    const times = ({ messages }: Story) => messages.map(({ arrivedMs }) => arrivedMs)
    expect(times(other)).not.toEqual(times(one))
  })

  it('takes the time of its formula, but for headers', async () => {
    for (const algorithm of ['ring', 'direct', 'oneShot'] as const)
      for (const ranks of [2, 4, 9]) {
        const story = await received({ algorithm, ranks, length: 10_000, latencyMs: 10, rateMb: 1 })
        const { stated, counted } = costsOf(story).find(({ unit }) => unit === 'ms')!
        expect(counted / stated!, `${algorithm}, ${ranks} ranks`).toBeGreaterThan(1)
        expect(counted / stated!, `${algorithm}, ${ranks} ranks`).toBeLessThan(1.02)
      }
  })

  it('a rank sends no faster than its rate, over all its links', async () => {
    const { messages } = await received({
      algorithm: 'direct',
      ranks: 6,
      length: 9000,
      rateMb: 0.5,
    })
    for (let rank = 0; rank < 6; rank++) {
      const sent = messages
        .filter(({ from }) => from === rank)
        .sort((a, b) => a.attempts[0].leavesMs - b.attempts[0].leavesMs)
      for (const [i, { attempts, bytes }] of sent.entries()) {
        expect(attempts[0].leftMs - attempts[0].leavesMs).toBeCloseTo(bytes / 500, 6)
        if (i > 0)
          expect(attempts[0].leavesMs).toBeGreaterThanOrEqual(sent[i - 1].attempts[0].leftMs - 1e-6)
      }
    }
  })

  it('loses messages at the rate that is set, sends them again after 0.5, 1, 2 s, and keeps the order', async () => {
    const story = await received({ ranks: 16, length: 100_000, lossPercent: 10, latencyMs: 1 })
    const attempts = story.messages.flatMap((message) => message.attempts)
    const lost = attempts.filter(({ isLost }) => isLost).length
    expect(lost / attempts.length).toBeGreaterThan(0.05)
    expect(lost / attempts.length).toBeLessThan(0.16)
    for (const { attempts } of story.messages)
      for (let i = 1; i < attempts.length; i++)
        expect(attempts[i].leavesMs - attempts[i - 1].leftMs).toBeCloseTo(500 * 2 ** (i - 1), 6)
    for (let rank = 0; rank < 16; rank++) {
      const arrivals = story.messages
        .filter(({ from }) => from === rank)
        .map(({ arrivedMs }) => arrivedMs)
      expect(arrivals).toEqual([...arrivals].sort((a, b) => a - b))
    }
    const resent = momentOf(story, story.endMs).resent
    expect(resent).toBe(lost)
    const calm = await received({ ranks: 16, length: 100_000, latencyMs: 1 })
    expect(story.endMs).toBeGreaterThan(calm.endMs + 500)
  })

  it('a link that loses for so long that a rank counts as lost ends the run, by name', async () => {
    const story = await received({
      ...{ ranks: 16, length: 100_000, rateMb: 0.1, latencyMs: 200, lossPercent: 10, seed: 8 },
    })
    expect(story.failure).toMatch(/^rank \d+ lost rank \d+: .*nothing heard .*\(allReduce #0/)
    expect(momentOf(story, story.endMs).phase).toBe('Failed')
    expect(verdictsOf(story).map(({ is }) => is)).toEqual([false, false])
  })

  it('shows each step of a ring: who holds what, and what is called how', async () => {
    const story = await received({})
    const stops = stopsOf(story)
    expect(momentOf(story, 0).phase).toBe('Reduce-scatter, step 1 of 3')
    expect(momentOf(story, 0).underWay).toHaveLength(4)
    const phases = stops.map((ms) => momentOf(story, ms).phase)
    expect(phases).toEqual([
      'Reduce-scatter, step 1 of 3',
      'Reduce-scatter, step 2 of 3',
      'Reduce-scatter, step 3 of 3',
      'All-gather, step 1 of 3',
      'All-gather, step 2 of 3',
      'All-gather, step 3 of 3',
      'Finished',
    ])
    const afterScatter = heldAt(story, stops[3])
    for (let rank = 0; rank < 4; rank++) {
      expect(afterScatter[rank].map((bits) => bits![0] === 15)).toEqual(
        afterScatter.map((_, chunk) => chunk === rank),
      )
    }
    // Chunk c begins at rank c + 1 and is added to at each rank that it comes to.
    expect(heldAt(story, stops[1])[2][0]).toEqual([0b0110])
    expect(heldAt(story, stops[2])[3][0]).toEqual([0b1110])
    const moment = momentOf(story, stops[1] / 2)
    expect(moment.underWay.map(({ is }) => is)).toEqual(new Array(4).fill('travelling'))
    expect(moment.underWay[0].share).toBeCloseTo(0.5, 3)
  })

  it('says what each step does, who sends which chunk to whom, and what came of it', async () => {
    const story = await received({})
    const stops = stopsOf(story)
    const deedAt = (ms: number) => deedWords(story, momentOf(story, ms))
    expect(deedAt(0)).toBe(
      'Sums grow: each rank sends a chunk to the next rank, which adds its own numbers to it. Rank 0 sends chunk 3 to rank 1, rank 1 sends chunk 0 to rank 2, rank 2 sends chunk 1 to rank 3, rank 3 sends chunk 2 to rank 0.',
    )
    expect(deedAt(stops[1] / 2)).toBe(deedAt(0))
    expect(deedAt(stops[3])).toMatch(
      /^Sums spread: each rank sends a finished chunk .* which copies it\. Rank 0 /,
    )
    expect(deedAt(story.endMs)).toContain('each rank holds the sum of all 4 arrays')
    // What arrived stays new until something else does.
    for (const ms of [stops[1], 1.5 * stops[1]])
      expect(momentWords(story, momentOf(story, ms))).toContain(
        'Arrived: chunk 3 from rank 0 to rank 1, added: it now holds ranks 0 and 1;',
      )
    for (const [algorithm, words] of [
      ['oneShot', 'Rank 0 sends its array to rank 1, '],
      ['direct', ', and 26 more.'],
      ['hierarchical', ', and '],
    ] as const) {
      const other = await received({ algorithm, ranks: 6, machines: 3 })
      expect(deedWords(other, momentOf(other, 0)), algorithm).toContain(words)
    }
    const apart = await received({ algorithm: 'hierarchical', ranks: 6, machines: 3 })
    // Owners send to their own machine and to others in the same step.
    const places = apart.steps.map(({ endMs }) => deedWords(apart, momentOf(apart, endMs - 1e-3)))
    expect(places.map((words) => /(inside|between) the machines/.exec(words)?.[1])).toEqual([
      'inside',
      'between',
      undefined,
      'inside',
    ])
  })

  it('plays slowly enough to read each step, and many steps in half a minute', async () => {
    /** ms of playing, by step. */
    const played = (story: Story) => {
      const { rateAt } = playedAt(story, paces[0][0])
      return story.steps.map(({ endMs }, at) => {
        const beganMs = story.steps[at - 1]?.endMs ?? 0
        return Math.round((endMs - beganMs) / rateAt(beganMs))
      })
    }
    expect(played(await received({}))).toEqual([5000, 3000, 3000, 5000, 3000, 3000])
    const many = played(await received({ ranks: 16, length: 16 }))
    expect(many).toHaveLength(30)
    expect(many.reduce((sum, ms) => sum + ms)).toBeCloseTo(34_000, -2)
    // A step that waits for what was lost stays longer than others.
    const lossy = await received({ lossPercent: 10, seed: 3 })
    expect(lossy.endMs).toBeGreaterThan(500)
    expect(Math.max(...played(lossy))).toBeGreaterThan(5000)
  })

  it('a segment that is here shows as a part of its chunk', async () => {
    const story = await received({ ranks: 2, length: 100_000, rateMb: 0.1 })
    const parts = story.held.flat(2).map(({ seen }) => seen)
    const partly = parts.find((runs) => runs.length === 2)!
    expect(partly[0].end).toBeCloseTo((64 * 1024 - 36) / 4 / 50_000, 2)
    expect(partly.at(-1)!.end).toBe(1)
  })

  it('one turned bit fails the ticks of every algorithm', async () => {
    for (const algorithm of ['ring', 'direct', 'oneShot', 'hierarchical'] as const) {
      const { verdict } = await received({ algorithm, ranks: 5, machines: 2, flip: 1 })
      expect(verdict.unlikeLoop, algorithm).toBeGreaterThan(0)
      expect(Math.max(...verdict.unlikeFirst), algorithm).toBeGreaterThan(0)
    }
  })

  it('counts hops by what waits for what', () => {
    for (const [algorithm, hops] of [
      ['ring', 10],
      ['direct', 2],
      ['oneShot', 1],
      ['hierarchical', 4],
    ] as const) {
      const settings = settle({ ...defaultSettings, ranks: 6, machines: 2, algorithm })
      expect(Math.max(...hopsOf(plansOf(settings)).flat()), algorithm).toBe(hops)
    }
  })

  it('has all that changes a run in its address', () => {
    const settings = settle({
      ...{ ranks: 7, length: 1234, latencyMs: 1.5, rateMb: 33, lossPercent: 3 },
      ...{ algorithm: 'hierarchical', machines: 3, seed: 9, flip: 1 },
    })
    expect(settingsIn(queryOf(settings))).toEqual({ settings, refused: [] })
    expect(queryOf(defaultSettings)).toBe('')
    const { settings: kept, refused } = settingsIn('?ranks=99&length=x&algorithm=tree&latencyMs=')
    expect(kept).toEqual(defaultSettings)
    expect(refused).toHaveLength(4)
    // Hierarchical needs machines, and machines of several ranks.
    expect(settle({ ...defaultSettings, algorithm: 'hierarchical' }).machines).toBe(2)
    expect(settle({ ...defaultSettings, algorithm: 'hierarchical', ranks: 2 }).algorithm).toBe(
      'auto',
    )
  })
})
