import { afterEach, expect, test, vi } from 'vitest'
import { task as playground } from '../../../demos/playground/demo.ts'
import { RingExchange } from '../../../src/ddp/data-parallel/ring-exchange.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import type { TrainerOptions } from '../../../src/trainer/loop/trainer.ts'
import type { TrainConfigInput } from '../../../src/trainer/settings/config.ts'
import type { Task } from '../../../src/trainer/settings/task.ts'
import type { RunEvent } from '../../../src/trainer/watch/run-events.ts'
import { ElasticRoom } from '../../support/elastic-room.ts'
import { startTask } from '../../support/task-ranks.ts'

// Values that are not finite on a few ranks cost a step, and then these ranks; on most ranks they end the run.

afterEach(() => vi.restoreAllMocks())

const settings = { demo: 'playground', steps: 30, batchSize: 24, seed: 4 } as const

/** The playground, where training samples of which `isBad` have coordinates that are no numbers. */
const withBad = (isBad: (sample: number) => boolean): Partial<TrainerOptions> => {
  const task: typeof playground = {
    ...playground,
    fill: (data, split, indices, batch) => {
      playground.fill(data, split, indices, batch)
      for (const [row, sample] of indices.entries())
        if (split === 'train' && isBad(sample)) batch.x[2 * row] = Number.NaN
    },
  }
  return { task: task as unknown as Task }
}

async function train(
  size: number,
  input: TrainConfigInput,
  others: (rank: number) => Partial<TrainerOptions>,
) {
  const { ranks, close } = await startTask(
    size,
    { ...settings, ...input },
    () => new ReferenceRuntime(),
    others,
  )
  const ends = await Promise.allSettled(ranks.map(({ end }) => end))
  const alone = ranks.map(({ trainer }) => trainer.leavesAlone)
  close()
  return { ends, alone, events: ranks.map(({ events }) => events) }
}

const leftOutIn = (events: readonly RunEvent[]) =>
  events.filter((event) => event.event === 'leftOut')
const stepsIn = (events: readonly RunEvent[]) =>
  events.flatMap((event) => (event.event === 'step' ? [event.step] : []))
const hashes = (ends: readonly PromiseSettledResult<{ paramHash: string }>[]) =>
  ends.map((end) => {
    if (end.status === 'rejected') throw end.reason
    return end.value.paramHash
  })
const reasons = (ends: readonly PromiseSettledResult<unknown>[]) =>
  ends.map((end) => end.status === 'rejected' && end.reason)

test('a sample that is not a number costs the step that has it, on all ranks, and the run names op and rank', async () => {
  const bad = () => withBad((sample) => sample === 40)
  const { ends, events } = await train(3, { steps: 12 }, bad)
  expect(new Set(hashes(ends)).size).toBe(1)
  const [received] = events.map(leftOutIn)
  expect(received).toHaveLength(1)
  const { ranks, notFinite, text } = received[0]
  expect(notFinite).toEqual(ranks)
  expect(text).toMatch(/^rank \d: .*x.* not finite/)
  for (const own of events) expect(leftOutIn(own)).toMatchObject([{ ranks, text }])
  const steps = stepsIn(events[0])
  const [missing] = Array.from({ length: 12 }, (_, i) => i + 1).filter(
    (one) => !steps.includes(one),
  )
  expect(steps).toHaveLength(11)
  // As if the step had not been.
  const last = await train(3, { steps: missing }, bad)
  const before = await train(3, { steps: missing - 1 }, () => ({}))
  expect(leftOutIn(last.events[0])).toHaveLength(1)
  expect(hashes(last.ends)).toEqual(hashes(before.ends))
})

/** As above, but only the gradients are no numbers: the loss of their step is one. */
const withBadGradients = (isBad: (sample: number) => boolean): Partial<TrainerOptions> => {
  const { task } = withBad(isBad)
  return {
    task: {
      ...task!,
      // sqrt(0) is 0 and its slope is infinite, which times 0 is no number.
      fill: (data, split, indices, batch) => {
        playground.fill(data as never, split, indices, batch as never)
        for (const [row, sample] of indices.entries())
          if (split === 'train') (batch.x as Float32Array)[2 * row] = isBad(sample) ? 0 : 1
      },
      loss: (outputs, batch) =>
        task!.loss(outputs, batch).add(batch.x.mul(outputs.sum()).abs().sqrt().mean()),
    } as Task,
  }
}

test('gradients of the last step that are not finite do not end in the model', async () => {
  const bad = () => withBadGradients((sample) => sample === 40)
  const all = await train(3, { steps: 12 }, bad)
  expect(new Set(hashes(all.ends)).size).toBe(1)
  const [received] = leftOutIn(all.events[0])
  const { step } = received
  const last = await train(3, { steps: step }, bad)
  const before = await train(3, { steps: step! - 1 }, bad)
  expect(leftOutIn(last.events[0])).toMatchObject([{ step }])
  expect(hashes(last.ends)).toEqual(hashes(before.ends))
})

test('an elastic run evicts a rank whose gradients are wrong although its samples are right', async () => {
  vi.spyOn(console, 'warn').mockImplementation(() => undefined)
  const { reduceGradients } = RingExchange.prototype
  let isBroken = false
  vi.spyOn(RingExchange.prototype, 'reduceGradients').mockImplementation(function (
    this: RingExchange,
    bucket,
    place,
    data,
    ...rest
  ) {
    if (isBroken && this.size === 3 && this.rank === 2) data.fill(Number.NaN, 0, 4)
    return reduceGradients.call(this, bucket, place, data, ...rest)
  })
  const room = new ElasticRoom(['0', '1'])
  const { ends, alone, events } = await train(3, {}, (rank) => ({
    isElastic: true,
    groups: { after: () => room.next(String(rank)) },
    onEvent: (event) => {
      if (event.event === 'step' && event.step === 4) isBroken = true
    },
  }))
  expect(new Set(hashes(ends.slice(0, 2))).size).toBe(1)
  expect(alone).toEqual([false, false, true])
  const received = leftOutIn(events[0])
  expect(received).toHaveLength(3)
  const first = received[0].step!
  expect(received.map(({ step }) => step)).toEqual([first, first + 1, first + 2])
  for (const { ranks, text } of received) {
    expect(ranks).toEqual([2])
    expect(text).toMatch(/^rank 2: its gradients are not finite/)
  }
  expect(stepsIn(events[0]).at(-1)).toBe(30)
})

test('a run ends, and names the rank, when one has no finite gradients in three steps in a row', async () => {
  const { ends, events } = await train(3, {}, (rank) => (rank === 2 ? withBad(() => true) : {}))
  const text = /^step 3: rank 2: .* The gradients of rank 2 were not finite in 3 steps in a row\.$/
  for (const reason of reasons(ends))
    expect(reason).toMatchObject({ code: 'train.nan', message: expect.stringMatching(text) })
  for (const own of events)
    expect(leftOutIn(own).map(({ ranks }) => ranks)).toEqual([[2], [2], [2]])
})

test('a run ends, and names the op, when most ranks have values that are not finite', async () => {
  const { ends, events } = await train(3, {}, (rank) => (rank > 0 ? withBad(() => true) : {}))
  for (const reason of reasons(ends))
    expect(reason).toMatchObject({
      code: 'train.nan',
      message: expect.stringMatching(/^step 1: ranks 1 and 2: /),
    })
  expect(leftOutIn(events[0])).toEqual([])
})

test('an exact run ends: the samples are to blame, and not the rank that has them', async () => {
  const { ends } = await train(2, { exact: true }, () => withBad((sample) => sample === 40))
  for (const reason of reasons(ends)) expect(reason).toMatchObject({ code: 'train.nan' })
})

test.each(['members', 'strangers'] as const)(
  'an elastic run among %s puts a rank out after three steps in a row, and the others train on',
  async (trust) => {
    vi.spyOn(console, 'warn').mockImplementation(() => undefined)
    const room = new ElasticRoom(['0', '1'])
    const evict: string[] = []
    const { ends, alone, events } = await train(3, { trust }, (rank) => ({
      isElastic: true,
      groups: {
        after: () => room.next(String(rank)),
        evict: (ranks) => evict.push(`rank ${rank}: ${ranks}`),
      },
      ...(rank === 2 && withBad(() => true)),
    }))
    const [first, second, third] = ends
    expect(new Set(hashes([first, second])).size).toBe(1)
    expect(reasons([third])[0]).toMatchObject({
      code: 'train.nan',
      message: expect.stringMatching(
        /^step 3: the gradients of rank 2 were not finite in 3 steps in a row\. Check data and GPU there/,
      ),
    })
    expect(alone).toEqual([false, false, true])
    expect(evict.sort()).toEqual(['rank 0: 2', 'rank 1: 2'])
    const steps = stepsIn(events[0])
    expect(steps.at(-1)).toBe(30)
    // The others take the third one again, without it.
    expect(steps).toHaveLength(trust === 'members' ? 28 : 30)
  },
)
