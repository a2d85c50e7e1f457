import { expect, test } from 'vitest'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import type { Fault } from '../../../src/peer/link/memory-link.ts'
import { Pause } from '../../../src/trainer/loop/pause.ts'
import type { RunEvent } from '../../../src/trainer/watch/run-events.ts'
import { PeerError } from '../../../src/util/errors.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { memoryRing } from '../../support/memory-ring.ts'
import { startTask } from '../../support/task-ranks.ts'

const config = { demo: 'playground', steps: 12, batchSize: 12, bucketCapMb: 1 } as const
const open = () => new ReferenceRuntime()

const received = (events: readonly RunEvent[], kind: 'paused' | 'continued') =>
  events.flatMap((event) => (event.event === kind ? [event] : []))

/** What must not depend on pauses. */
const numbersOf = (events: readonly RunEvent[]) =>
  events.flatMap((event) => (event.event === 'step' ? [event.loss] : []))

async function undisturbed(size: number, more: object = {}) {
  const { ranks, close } = await startTask(size, { ...config, ...more }, open)
  const results = await Promise.all(ranks.map(({ end }) => end))
  close()
  return results.map(({ paramHash }, rank) => ({
    paramHash,
    losses: numbersOf(ranks[rank].events),
  }))
}

test.each([
  [1, {}],
  [3, {}],
  [2, { strategy: 'alone' }],
  [2, { partition: 'own-slice' }],
] as const)(
  '%i ranks, %o: all pause behind one step, and end with the bits of an unpaused run',
  async (size, more) => {
    const wanted = await undisturbed(size, more)
    const asker = size - 1
    const { ranks, close } = await startTask(size, { ...config, ...more }, open)
    await ranks[asker].until('step', ({ step }) => step >= 3)
    ranks[asker].trainer.pause()
    const paused = await Promise.all(ranks.map((rank) => rank.until('paused')))
    expect(new Set(paused.map(({ step }) => step)).size).toBe(1)
    expect(paused.map(({ by }) => by)).toEqual(ranks.map(() => [asker]))
    const looked = await Promise.all(
      ranks.map(({ trainer }) => trainer.query('boundary', { side: 4 })),
    )
    expect(looked.every(({ probabilities }) => ArrayBuffer.isView(probabilities))).toBe(true)
    for (const { events } of ranks) {
      expect(numbersOf(events)).toHaveLength(paused[0].step)
      expect(received(events, 'continued')).toEqual([])
    }
    ranks[asker].trainer.goOn()
    const results = await Promise.all(ranks.map(({ end }) => end))
    for (const [rank, { events }] of ranks.entries()) {
      const [continued] = received(events, 'continued')
      expect(continued).toMatchObject({ step: paused[0].step, rank })
      expect({ paramHash: results[rank].paramHash, losses: numbersOf(events) }).toEqual(
        wanted[rank],
      )
    }
    close()
  },
)

test.each([
  [1, {}],
  [3, {}],
  [2, { strategy: 'alone' }],
] as const)(
  '%i ranks, %o: oneStep lets a paused run take one step at a time',
  async (size, more) => {
    const wanted = await undisturbed(size, more)
    const { ranks, close } = await startTask(size, { ...config, ...more }, open)
    await ranks[0].until('step', ({ step }) => step >= 3)
    ranks[0].trainer.pause()
    const began = await Promise.all(ranks.map((rank) => rank.until('paused')))
    for (const more of [1, 2]) {
      ranks[0].trainer.oneStep()
      const step = began[0].step + more
      await Promise.all(
        ranks.map((rank) => rank.until('paused', (received) => received.step === step)),
      )
      for (const { events } of ranks) expect(numbersOf(events)).toHaveLength(step)
    }
    ranks[0].trainer.goOn()
    const results = await Promise.all(ranks.map(({ end }) => end))
    for (const [rank, { events }] of ranks.entries()) {
      expect({ paramHash: results[rank].paramHash, losses: numbersOf(events) }).toEqual(
        wanted[rank],
      )
    }
    close()
  },
)

test('a pause that is cancelled before it begins does not happen', async () => {
  const { ranks, close } = await startTask(2, config, open)
  await ranks[1].until('step')
  ranks[1].trainer.pause()
  ranks[1].trainer.goOn()
  await Promise.all(ranks.map(({ end }) => end))
  for (const { events } of ranks) expect(received(events, 'paused')).toEqual([])
  close()
})

test('two ranks pause: the run continues when one of them asks', async () => {
  const { ranks, close } = await startTask(2, config, open)
  for (const { trainer } of ranks) trainer.pause()
  const paused = await Promise.all(ranks.map((rank) => rank.until('paused')))
  expect(paused.map(({ by }) => by)).toEqual([
    [0, 1],
    [0, 1],
  ])
  ranks[0].trainer.goOn()
  await Promise.all(ranks.map(({ end }) => end))
  close()
})

test('ten minutes in a pause end nothing, and a rank that dies in it is missed within seconds', async () => {
  const env = new VirtualEnv()
  let isFrozen = false
  const freeze = (): Fault => ({ kind: 'freeze', matches: () => isFrozen })
  // Both links of rank 2.
  const { groups } = memoryRing(env, 3, (rank) => (rank > 0 ? { forward: [freeze()] } : {}))
  await env.until(Promise.all(groups.map((group) => group.ready())))
  const pauses = groups.map(() => new Pause(env))
  pauses[1].ask()
  const began: unknown[] = []
  const hold = () =>
    Promise.all(
      groups.map((group, i) => pauses[i].hold(group, undefined, (by) => began.push([...by]))),
    )
  const first = hold()
  await env.advance(600_000)
  expect(began).toEqual([[1], [1], [1]])
  pauses[1].goOn()
  await env.until(first)

  pauses[1].ask()
  const second = hold()
  second.catch(() => undefined)
  await env.advance(60_000)
  isFrozen = true
  const [failure] = await Promise.all([env.until(groups[1].failed), env.until(groups[0].failed)])
  expect(failure.message).toContain('rank 2')
  await expect(env.until(second)).rejects.toThrow('rank 2')
})

test.each([1, 2])('stop works in the pause of %i ranks', async (size) => {
  const aborts = Array.from({ length: size }, () => new AbortController())
  const { ranks, close } = await startTask(size, config, open, (rank) => ({
    signal: aborts[rank].signal,
  }))
  ranks[0].trainer.pause()
  await Promise.all(ranks.map((rank) => rank.until('paused')))
  const reason = new PeerError('peer.aborted', 'stopped by a test.')
  // As the worker does for its own rank; the others hear of it over their links.
  aborts[0].abort(reason)
  ranks[0].group.abort(reason)
  for (const { end } of ranks) await expect(end).rejects.toThrow('stopped by a test')
  // The model stays, to be looked at.
  await expect(ranks[0].trainer.query('boundary', { side: 2 })).resolves.toMatchObject({ side: 2 })
  close()
})

test('a rank that leaves in the pause ends it by name', async () => {
  const { ranks, close } = await startTask(2, config, open)
  ranks[0].trainer.pause()
  await Promise.all(ranks.map((rank) => rank.until('paused')))
  ranks[1].group.destroy()
  await expect(ranks[0].end).rejects.toThrow('rank 1')
  close()
})
