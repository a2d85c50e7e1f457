import { expect, test } from 'vitest'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import type { StepProgram } from '../../../src/graph/plan/step-program.ts'
import { gatherJson } from '../../../src/peer/group/gather-json.ts'
import { LiveSamples } from '../../../src/trainer/watch/live-samples.ts'
import type { RunEvent } from '../../../src/trainer/watch/run-events.ts'
import {
  isPackedSample,
  maxSpans,
  packSample,
  type StepSample,
  spanKinds,
  unpackSample,
} from '../../../src/trainer/watch/step-sample.ts'
import { spansOf } from '../../../src/trainer/watch/step-spans.ts'
import { StepTimeline } from '../../../src/trainer/watch/step-timeline.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { memoryRing } from '../../support/memory-ring.ts'
import { makeSamples } from '../../support/step-samples.ts'

const isNumber = (received: unknown): received is number => typeof received === 'number'

const { facts } = new ReferenceRuntime()

const program = {
  prepared: { trace: {} },
  memory: { peakBytes: 1, lowerBoundBytes: 1, deviceBytes: 100, ioBytes: 20 },
} as unknown as StepProgram

const times = {
  data: 1,
  forward: 2,
  backward: 3,
  wait: 0,
  wire: 0,
  optimizer: 1,
  audit: 0,
  total: 7,
}

/** Ranks that step together on a virtual clock; `stepMs` says how long a step takes each. */
async function train(
  size: number,
  steps: number,
  stepMs: (rank: number, step: number) => number,
  firstStep = 0,
  deviceBytes: (rank: number) => unknown = (rank) => 500 + rank,
  deviceOf: (rank: number, step: number) => string = () => 'a GPU',
) {
  const env = new VirtualEnv(3)
  const { groups } = memoryRing(env, size, () => ({ delayMs: () => 2 }))
  const ready = Promise.all(groups.map((group) => group.ready()))
  await env.until(ready)
  const due = groups.map((): number[] => [])
  const received = groups.map((): { atMs: number; samples: readonly StepSample[] }[] => [])
  const devices = groups.map((): Partial<Extract<RunEvent, { event: 'devices' }>>[] => [])
  const ends = Promise.all(
    groups.map(async (group, rank) => {
      let now = firstStep
      const timeline = new StepTimeline()
      const live = new LiveSamples({
        group,
        program,
        timeline,
        firstStep,
        now: () => env.now(),
        deviceBytes: () => deviceBytes(rank) as number,
        adapter: () => ({ ...facts, description: deviceOf(rank, now) }),
        devices: groups.map((_, one) => deviceOf(one, firstStep)),
        onEvent: (event: RunEvent) => {
          if (event.event === 'devices') {
            devices[rank].push(event)
            return
          }
          if (event.event !== 'samples') throw new Error(`unexpected ${event.event}`)
          received[rank].push({ atMs: env.now(), samples: event.samples })
        },
      })
      for (let step = firstStep + 1; step <= firstStep + steps; step++) {
        now = step
        const isDue = live.isDue(step)
        if (isDue) due[rank].push(step)
        timeline.begin(program, step, firstStep + steps, isDue)
        await new Promise<void>((resolve) => void env.after(stepMs(rank, step), resolve))
        // What keeps ranks together in a real step.
        if (size > 1) await gatherJson('a test', group, rank, isNumber)
        live.ended(step, times, env.now())
        await live.share(step)
      }
      await live.finish(firstStep + steps)
    }),
  )
  await env.until(ends)
  return { due, received, devices, groups }
}

test('ranks sample the same steps, about a second apart, and all get the samples of all', async () => {
  const { due, received } = await train(3, 1000, (rank) => 4 + 6 * rank)
  for (const steps of due) expect(steps).toEqual(due[0])
  expect(due[0].slice(0, 2)).toEqual([3, 11])
  for (const rounds of received) {
    expect(rounds.length).toBe(due[0].length)
    for (const [i, { samples }] of rounds.entries()) {
      expect(samples.map(({ step }) => step)).toEqual(Array(3).fill(due[0][i]))
      expect(samples.map(({ memory }) => memory.deviceBytes)).toEqual([500, 501, 502])
    }
    // After the first rounds, which do not know yet how long a step takes.
    const gaps = rounds.slice(4, -1).map(({ atMs }, i) => atMs - rounds[i + 3].atMs)
    expect(gaps.length).toBeGreaterThan(5)
    for (const gap of gaps) expect(gap).toBeGreaterThan(900)
    for (const gap of gaps) expect(gap).toBeLessThan(1200)
  }
})

test('an invalid sample is shown on no rank, and the run continues', async () => {
  const { due, received } = await train(
    2,
    100,
    () => 50,
    0,
    (rank) => (rank === 1 ? 'much' : 500),
  )
  expect(due[1]).toEqual(due[0])
  expect(due[0].length).toBeGreaterThan(2)
  expect(received).toEqual([[], []])
})

test.each([1, 3])(
  'all of %i ranks hear within about two seconds what one computes on now, once',
  async (size) => {
    const last = size - 1
    const deviceOf = (rank: number, step: number) =>
      `CPU in WebAssembly, ${rank === last && step > 100 ? '1 thread; a worker ended' : '2 threads'}`
    const { devices } = await train(size, 500, () => 20, 0, undefined, deviceOf)
    const two = 'CPU in WebAssembly, 2 threads'
    const one = 'CPU in WebAssembly, 1 thread (a worker ended)'
    for (const [rank, events] of devices.entries()) {
      expect(events).toMatchObject([
        {
          devices: [...Array(last).fill(two), one],
          adapter: { description: deviceOf(rank, 500) },
          rank,
        },
      ])
      const { step = 0 } = events[0]
      expect(step).toBe(devices[0][0].step)
      expect(step).toBeGreaterThan(100)
      expect(step).toBeLessThan(100 + 2500 / 20)
    }
  },
)

test('steps that become slower are sampled more often, the same on all ranks', async () => {
  const { due } = await train(2, 500, (_, step) => (step < 200 ? 5 : 400))
  expect(due[1]).toEqual(due[0])
  const late = due[0].slice(-3)
  expect(late[2] - late[1]).toBeLessThanOrEqual(3)
})

test('a rank alone sends nothing and samples too', async () => {
  const { received, groups } = await train(1, 300, () => 20, 40)
  const steps = received[0].map(({ samples }) => samples[0].step)
  expect(steps[0]).toBe(43)
  expect(steps.length).toBeGreaterThan(4)
  expect(steps.length).toBeLessThan(10)
  expect(groups[0].stats().payloadBytesSent).toBe(0)
  expect(received[0][0].samples[0].spans.map(({ kind }) => kind)).toEqual([
    'data',
    'forward',
    'backward',
    'optimizer',
  ])
})

test('the spans of a step of two buckets, from its marks and collectives', () => {
  const mark = (name: string, atMs: number) => ({ name, atMs })
  const collective = (operation: string, bucket: number, launchedMs: number, endedMs: number) => ({
    operation,
    group: 0,
    sequence: 1,
    bucket,
    payloadBytes: 10,
    launchedMs,
    firstSentMs: launchedMs,
    lastReceivedMs: endedMs,
    endedMs,
  })
  const watched = {
    step: 1,
    marks: [
      mark('part 0 done', 1006),
      mark('bucket 0 on the host', 1007),
      mark('bucket 0 met for reduceScatter', 1009),
      mark('part 1 done', 1013),
      mark('bucket 1 on the host', 1012),
      mark('bucket 0 reduced', 1011),
      mark('bucket 0 met for allGather', 1014),
    ],
    collectives: [
      collective('reduceScatter', 0, 1007, 1011),
      collective('allGather', 0, 1012, 1015),
      collective('allReduce', 1, 1012, 1013),
    ],
  }
  const spans = spansOf(watched, { ...times, data: 1, forward: 2, backward: 8 }, 1000)
  expect(spans.map(({ kind, part, fromMs, toMs }) => [kind, part, fromMs, toMs])).toEqual([
    ['data', -1, 0, 1],
    ['forward', -1, 1, 3],
    ['backward', 0, 3, 6],
    ['readback', 0, 6, 7],
    ['backward', 1, 6, 12],
    ['wait', 0, 7, 9],
    ['reduceScatter', 0, 9, 11],
    ['optimizer', 0, 11, 12],
    ['wait', 0, 12, 14],
    ['exchange', 1, 12, 13],
    ['allGather', 0, 14, 15],
  ])
})

test('a sample travels in a few hundred bytes, to hundredths of a millisecond', () => {
  const [, sample] = makeSamples(3, 77, Date.UTC(2026, 10, 22, 12) + 0.123)
  const text = JSON.stringify(packSample(sample))
  expect(text.length).toBeLessThan(700)
  const back = unpackSample(JSON.parse(text))
  expect({ ...back, spans: [] }).toEqual({
    ...sample,
    spans: [],
    beganMs: Math.round(100 * sample.beganMs) / 100,
    readMs: Math.round(100 * sample.readMs) / 100,
    totalMs: expect.closeTo(sample.totalMs, 1),
  })
  back.spans.forEach((span, i) => {
    expect(spanKinds).toContain(span.kind)
    expect(span.kind).toBe(sample.spans[i].kind)
    expect(span.fromMs).toBeCloseTo(sample.spans[i].fromMs, 1)
    expect(span.toMs).toBeCloseTo(sample.spans[i].toMs, 1)
  })
})

test("a sample is one of the group's size, with all its counters and not too many spans", () => {
  const packed = packSample(makeSamples(3, 77, 0)[1])
  expect(isPackedSample(packed, 3)).toBe(true)
  expect(isPackedSample(packed, 4)).toBe(false)
  const [step, beganMs, total, , readMs, link, sentTo, memory] = packed
  const isOne = (own: object) => {
    const one = { spans: [], link, sentTo, memory, ...own }
    return isPackedSample(
      [step, beganMs, total, one.spans, readMs, one.link, one.sentTo, one.memory],
      3,
    )
  }
  expect(isOne({})).toBe(true)
  expect(isOne({ link: null })).toBe(true)
  expect(isOne({ spans: Array(4 * maxSpans).fill(1) })).toBe(true)
  expect(isOne({ spans: Array(4 * maxSpans + 4).fill(1) })).toBe(false)
  expect(isOne({ spans: [1, 2, 3] })).toBe(false)
  expect(isOne({ link: [] })).toBe(false)
  expect(isOne({ memory: [] })).toBe(false)
  expect(isOne({ sentTo: [] })).toBe(false)
})
