import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { task } from '../../../demos/digits/demo.ts'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { openGpu } from '../../../src/gpu/device.ts'
import { Runtime } from '../../../src/graph/memory/runtime.ts'
import { Trainer } from '../../../src/trainer/loop/trainer.ts'
import type { TrainerResult } from '../../../src/trainer/watch/run-events.ts'
import { losableDevices } from '../../support/losable-devices.ts'
import { rejoiningRingOf } from '../../support/process-ring.ts'
import { serveDigits } from '../../support/served-digits.ts'

// Several ranks with a device each, some of which are lost: the run continues, to the same bits.

const size = 3
const input = {
  data: 'images',
  steps: 64,
  batchSize: 12,
  bucketCapMb: 0.3,
  hashEvery: 25,
} as const
// Few samples: what takes time here are devices, not evaluation.
beforeEach(() => serveDigits(72, (_, i) => (i * 7919) % 251))
afterEach(() => vi.restoreAllMocks())

interface End {
  result?: TrainerResult
  reason?: unknown
  losses: number[]
  /** Steps of which the page hears more. */
  sampled: number[]
  /** When each of them was sent. */
  sentMs: number[]
}

/** As a page can: the browser says 'destroyed' then, and 'unknown' where a driver or its process went. */
const destroy = (device: GPUDevice): void => device.destroy()

/** The built-in experiment; `lose` is asked in each rank after each step that it reports, and when it begins to train, as step 0. */
async function endsOf(
  lose: (rank: number, step: number) => boolean,
  { ranks = size, regroups = true, loseDevice = destroy, config = parseTrainConfig(input) } = {},
): Promise<End[]> {
  const opened: Runtime[] = []
  const open = async () => {
    const runtime = new Runtime(await openGpu())
    opened.push(runtime)
    return runtime
  }
  const ends = await Promise.all(
    (await rejoiningRingOf(ranks)).map(async (member, rank): Promise<End> => {
      let current = await open()
      const losses: number[] = []
      const sentMs: number[] = []
      const sampled: number[] = []
      const { group, groups } = member
      const trainer = new Trainer({
        task,
        runtime: current,
        reopen: async () => {
          current = await open()
          return current
        },
        groups: regroups ? groups : undefined,
        group,
        config,
        baseUrl: 'https://data.example/',
        onEvent: (event) => {
          if (event.event === 'samples') sampled.push(...event.samples.map(({ step }) => step))
          const begins = event.event === 'phase' && event.phase === 'train'
          if (!begins && event.event !== 'step') return
          if (event.event === 'step') {
            losses.push(event.loss)
            sentMs.push(performance.now())
          }
          if (lose(rank, event.event === 'step' ? event.step : 0)) loseDevice(current.gpu.device)
        },
      })
      const end = await trainer.run().then(
        (result) => ({ result, losses, sentMs, sampled }),
        (reason: unknown) => ({ reason, losses, sentMs, sampled }),
      )
      trainer.destroy()
      member.leave()
      return end
    }),
  )
  for (const { gpu } of opened) gpu.close()
  return ends
}

let undisturbed: Promise<End[]> | undefined
const expected = () => {
  undisturbed ??= endsOf(() => false)
  return undisturbed
}

/** Expects each step reported once, with the numbers of the undisturbed run, and the same parameters at the end. */
async function expectSame(ends: End[], lostDevices: number[]): Promise<void> {
  const wanted = await expected()
  for (const [rank, { result, reason, losses }] of ends.entries()) {
    if (!result) throw reason
    expect(losses, `losses of rank ${rank}`).toEqual(wanted[rank].losses)
    // Each run measures its links again.
    const { links: _, ...record } = wanted[rank].result!.record
    expect(result).toMatchObject({
      paramHash: wanted[rank].result!.paramHash,
      testAccuracy: wanted[rank].result!.testAccuracy,
      samples: wanted[rank].result!.samples,
      record,
    })
  }
  expect(ends.map(({ result }) => result?.lostDevices)).toEqual(lostDevices)
}

/** True once: for `rank` after `step`. */
function once(rank: number, step: number) {
  let isDone = false
  return (askedRank: number, askedStep: number): boolean => {
    if (isDone || askedRank !== rank || askedStep !== step) return false
    isDone = true
    return true
  }
}

/** Returns the warnings of Tabring since this call. */
function watchWarnings(): () => unknown[] {
  const warn = vi.spyOn(console, 'warn').mockImplementation(() => undefined)
  return () =>
    warn.mock.calls.map(([text]) => text).filter((text) => String(text).startsWith('tabring: '))
}

test("all ranks continue from the step that all have kept when one rank's device is replaced", async () => {
  expect((await expected()).map(({ result }) => result?.lostDevices)).toEqual([0, 0, 0])
  const warnings = watchWarnings()
  const ends = await endsOf(once(1, 60))
  await expectSame(ends, [0, 1, 0])
  // Each rank logs it, without advice to do what the run does anyway.
  expect(warnings()).toEqual(
    Array(3).fill(
      expect.stringMatching(
        /^tabring: rank 1 lost its device \(destroyed: [^()]*\)\. Training resumes from step 50\.$/,
      ),
    ),
  )
}, 120_000)

test('a device that goes away from one rank alone, with nothing that it was given ending, is replaced too', async () => {
  await expected()
  const loseDevice = losableDevices()
  const warnings = watchWarnings()
  const ends = await endsOf(once(1, 60), { loseDevice })
  await expectSame(ends, [0, 1, 0])
  expect(warnings()).toEqual(
    Array(3).fill(
      'tabring: rank 1 lost its device (unknown: the driver was reset). Training resumes from step 50.',
    ),
  )
}, 120_000)

test('one rank alone continues from the state it has kept, and logs why', async () => {
  const loseDevice = losableDevices()
  const warnings = watchWarnings()
  const [{ result, reason, losses, sentMs, sampled }] = await endsOf(once(0, 60), {
    ranks: 1,
    loseDevice,
  })
  if (!result) throw reason
  expect(result.lostDevices).toBe(1)
  expect(losses).toHaveLength(64)
  expect(Math.max(...sampled)).toBeGreaterThan(60)
  // The time is that of all its steps, those before the loss too.
  expect(1000 * result.seconds).toBeGreaterThan(sentMs.at(-1)! - sentMs[0])
  expect(warnings()).toEqual([
    'tabring: the device was lost (unknown: the driver was reset). Training resumes from step 50.',
  ])
}, 120_000)

test('devices that all ranks lose, not in the same step and before any state was kept, are replaced too', async () => {
  const lost = new Set<number>()
  const ends = await endsOf((rank, step) => {
    if (step !== 20 + (rank === 2 ? 1 : 0) || lost.has(rank)) return false
    lost.add(rank)
    return true
  })
  expect(lost.size).toBeGreaterThanOrEqual(2)
  await expectSame(
    ends,
    [0, 1, 2].map((rank) => Number(lost.has(rank))),
  )
}, 120_000)

test('a device that is lost repeatedly ends the run on every rank, with an error that names it', async () => {
  const ends = await endsOf((rank, step) => rank === 2 && step === 0)
  for (const { reason, losses } of ends) {
    expect(reason).toMatchObject({
      code: 'gpu.lost',
      message: expect.stringMatching(
        /^recovery: the 3 ranks went back 4 times without progress in training, at most 3 times are allowed; .*rank 2 lost its device/,
      ),
    })
    expect(losses).toEqual([])
  }
}, 120_000)

test('ranks that cannot form a group again end with the loss and the rank that had it', async () => {
  const ends = await endsOf(once(2, 3), { regroups: false })
  // The ranks that waited name the collective first, if one was under way.
  const message = expect.stringMatching(
    /device: rank 2 lost its device \(destroyed: [^()]*\)\. Start again, with or without that rank\.$/,
  )
  for (const rank of [0, 1])
    expect(ends[rank].reason).toMatchObject({ code: 'peer.aborted', message })
  expect(ends[2].reason).toMatchObject({ code: 'gpu.lost', message })
}, 120_000)

test.each(['mlp', 'cnn'] as const)(
  'a rank with exact and the model %s that loses its device does no step again',
  async (model) => {
    const warn = vi.spyOn(console, 'warn').mockImplementation(() => undefined)
    const exact = { ...input, model, exact: true, virtualWorkers: 4, steps: 30 } as const
    const run = (lostAfter: number) =>
      endsOf((_, step) => step === lostAfter, { ranks: 1, config: parseTrainConfig(exact) })
    const [wanted] = await run(-1)
    const [end] = await run(23)
    if (!end.result) throw end.reason
    expect(end.result).toMatchObject({ paramHash: wanted.result!.paramHash, lostDevices: 1 })
    expect(String(warn.mock.calls)).toMatch(
      /the device was lost .* Training resumes from step 2[34]\./,
    )
  },
)
