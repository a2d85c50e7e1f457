import { expect, test } from 'vitest'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { type ReadRun, type SaveEvent, Saves } from '../../../src/trainer/saves/save-requests.ts'
import type { TrainConfigInput } from '../../../src/trainer/settings/config.ts'
import type { RunEvent } from '../../../src/trainer/watch/run-events.ts'
import { PeerError } from '../../../src/util/errors.ts'
import { type SeenFolder, seenFolder } from '../../support/checkpoint-folders.ts'
import { startTask } from '../../support/task-ranks.ts'

/** Runs that save themselves, and whenever a rank wants it. */

const config = {
  demo: 'playground',
  steps: 12,
  batchSize: 12,
  bucketCapMb: 1,
  saves: 'auto',
} as const

const start = (folders: readonly SeenFolder[], more: TrainConfigInput = {}) =>
  startTask(
    folders.length,
    { ...config, ...more },
    () => new ReferenceRuntime(),
    (rank) => ({ checkpoints: { folder: async () => folders[rank], run: `run of ${rank}` } }),
  )

const lossesOf = (events: readonly RunEvent[]) =>
  events.flatMap((event) => (event.event === 'step' ? [event.loss] : []))
const received = (events: readonly RunEvent[]) =>
  events.flatMap((event) => (event.event === 'checkpoint' ? [event] : []))
async function undisturbed(size: number): Promise<{ losses: number[]; paramHash: string }> {
  const { ranks, close } = await start(Array.from({ length: size }, () => seenFolder()))
  const [{ paramHash }] = await Promise.all(ranks.map(({ end }) => end))
  close()
  return { losses: lossesOf(ranks[0].events), paramHash }
}

test.each([1, 3])(
  '%i ranks: what is saved in the middle of steps, in a pause and at the end resumes to the bits of a whole run',
  async (size) => {
    const wanted = await undisturbed(size)
    const folders = Array.from({ length: size }, () => seenFolder())
    const asker = size - 1
    const { ranks, close } = await start(folders)
    const { trainer, until } = ranks[asker]
    await until('step', ({ step }) => step >= 2)
    const early = await trainer.save()
    trainer.pause()
    const { step: paused } = await until('paused')
    const inPause = await trainer.save()
    expect(inPause.step).toBe(paused)
    expect(early.step).toBeLessThanOrEqual(paused)
    trainer.goOn()
    const results = await Promise.all(ranks.map(({ end }) => end))
    const atEnd = await trainer.save()
    expect(atEnd.step).toBe(12)
    expect(results[0].paramHash).toBe(wanted.paramHash)
    // Rank 0 saves in a pause and at the end without being asked; nobody writes but those and who asked.
    expect(received(ranks[0].events).map(({ step }) => step)).toEqual(
      size === 1 ? [early.step, paused, paused, 12, 12] : [paused, 12],
    )
    if (size === 3) expect(folders[1].written).toEqual([])
    close()
    // Each of them, on ranks of which rank 0 has the asker's files.
    for (const { name, step } of [early, inPause, atEnd]) {
      const again = await start(
        [folders[asker], ...Array.from({ length: size - 1 }, () => seenFolder())],
        { resume: name },
      )
      const [{ paramHash }] = await Promise.all(again.ranks.map(({ end }) => end))
      expect(paramHash).toBe(wanted.paramHash)
      expect(lossesOf(again.ranks[0].events)).toEqual(wanted.losses.slice(step))
      again.close()
    }
  },
  60_000,
)

test('a folder that refuses writes ends no run: it is reported once, and to the caller of save', async () => {
  const full = () =>
    seenFolder(() => {
      throw new Error('the disk is full')
    })
  const wanted = await undisturbed(2)
  const { ranks, close } = await start([full(), full()])
  await ranks[1].until('step')
  await expect(ranks[1].trainer.save()).rejects.toThrow('the disk is full')
  ranks[0].trainer.pause()
  const { step: paused } = await ranks[0].until('paused')
  ranks[0].trainer.goOn()
  const [{ paramHash }] = await Promise.all(ranks.map(({ end }) => end))
  expect(paramHash).toBe(wanted.paramHash)
  expect(ranks[0].events.filter(({ event }) => event === 'unsaved')).toMatchObject([
    { step: paused, text: 'the disk is full', rank: 0 },
  ])
  expect(ranks[1].events.filter(({ event }) => event === 'unsaved')).toEqual([])
  close()
}, 60_000)

test('save fails with the reason when the run ends meanwhile, and when the run has no saves', async () => {
  const { ranks, close } = await start([seenFolder(), seenFolder()], { steps: 100_000 })
  await ranks[0].until('step')
  ranks[1].group.abort(new PeerError('peer.aborted', 'stopped by Ada.'))
  await Promise.all(ranks.map(({ end }) => end.catch(() => undefined)))
  await expect(ranks[0].trainer.save()).rejects.toThrow('stopped by Ada')
  close()
  const alone = await start([seenFolder()], { saves: 'none' })
  await expect(alone.ranks[0].trainer.save()).rejects.toMatchObject({ code: 'config.invalid' })
  await alone.ranks[0].end
  alone.close()
}, 60_000)

test('by the clock a rank saves every 10 s, and no more than 2 % of the time', async () => {
  let nowMs = 0
  let writeMs = 50
  const events: SaveEvent[] = []
  const saves = new Saves({
    write: async ({ step }) => {
      nowMs += writeMs
      return `step-${step}`
    },
    report: (event) => events.push(event),
    now: () => nowMs,
  })
  const step = async (number: number) => {
    nowMs += 100
    if (!saves.isWanted) return
    const run: ReadRun = { step: number, isBest: false, score: 0.5, state: {} }
    await saves.take(run, { beganMs: nowMs, isDue: false, isHeld: false })
  }
  for (let number = 1; number <= 200; number++) await step(number)
  expect(events).toEqual([])
  saves.startClock()
  for (let number = 201; number <= 600; number++) await step(number)
  expect(events.map((event) => event.step)).toEqual([300, 400, 500, 600])
  writeMs = 1000
  for (let number = 601; number <= 1800; number++) await step(number)
  // A save of a second is worth 50 seconds.
  expect(events.slice(4).map((event) => event.step)).toEqual([700, 1200, 1700])
})

test('a rank that saves by the clock tries again a minute after a save failed, and reports it once', async () => {
  let nowMs = 0
  let isFull = true
  const tries: number[] = []
  const events: SaveEvent[] = []
  const saves = new Saves({
    write: async ({ step }) => {
      tries.push(step)
      if (isFull) throw new Error('the disk is full')
      return `step-${step}`
    },
    report: (event) => events.push(event),
    now: () => nowMs,
  })
  saves.startClock()
  for (let number = 1; number <= 3000; number++) {
    nowMs += 100
    isFull = number < 1500
    if (!saves.isWanted) continue
    const run: ReadRun = { step: number, isBest: false, score: 0.5, state: {} }
    await saves.take(run, { beganMs: nowMs, isDue: false, isHeld: false })
  }
  expect(tries.slice(0, 5)).toEqual([100, 700, 1300, 1900, 2000])
  const received = events.map(({ event, step }) => [event, step])
  expect(received.slice(0, 3)).toEqual([
    ['unsaved', 100],
    ['checkpoint', 1900],
    ['checkpoint', 2000],
  ])
})
