import { expect, test } from 'vitest'
import { ProcessGroup } from '../../../src/peer/group/group.ts'
import type { Link } from '../../../src/peer/link/link.ts'
import { memoryPair } from '../../../src/peer/link/memory-link.ts'
import { endFactsOf, type PeerError } from '../../../src/util/errors.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { RankPlace } from '../../support/simulation/rank-place.ts'

// A process that was stopped and continues: who is said to be gone.

const size = 3
const sleeper = 2

function place(world: VirtualEnv) {
  const places = Array.from({ length: size }, () => new RankPlace(world))
  const links = places.map(() => new Map<number, Link>())
  for (let first = 0; first < size; first++)
    for (let second = first + 1; second < size; second++) {
      const [there, back] = memoryPair(world, { delayMs: () => 2 })
      links[first].set(second, places[first].linked(there))
      links[second].set(first, places[second].linked(back))
    }
  const groups = places.map(
    (env, rank) => new ProcessGroup({ rank, size, epoch: 1, links: links[rank], env }),
  )
  return { places, groups }
}

async function sleepFor(ms: number, isInCollective: boolean): Promise<readonly PeerError[]> {
  const world = new VirtualEnv(1)
  const { places, groups } = place(world)
  await world.until(Promise.all(groups.map((group) => group.barrier())))
  await world.advance(5000)
  places[sleeper].pause()
  // One that sleeps in a collective that it has begun, or one for which the others wait.
  for (const group of groups)
    if (isInCollective || group.rank !== sleeper) group.barrier().catch(() => undefined)
  await world.advance(ms)
  places[sleeper].goOn()
  if (!isInCollective) groups[sleeper].barrier().catch(() => undefined)
  return world.until(Promise.all(groups.map(({ failed }) => failed)))
}

test.each([true, false])(
  'a rank that was stopped for 20 s reports that it slept, and the others name it (it had begun the collective: %s)',
  async (isInCollective) => {
    const errors = await sleepFor(20_000, isInCollective)
    for (const error of errors) {
      expect(error.code).toBe('peer.lost')
      expect(endFactsOf(error).ranks).toEqual([sleeper])
    }
    expect(errors[sleeper].message).toMatch(
      /^rank 2 stood still for (19|20) s, and the others gave it up: .* Keep it awake, and start again\.$/,
    )
    for (const { message } of errors.slice(0, sleeper))
      expect(message).toMatch(/^rank [01] lost rank 2: it stopped answering/)
  },
)

test('a rank that loses another long after it slept names the other', async () => {
  const world = new VirtualEnv(1)
  const { places, groups } = place(world)
  await world.until(Promise.all(groups.map((group) => group.barrier())))
  places[sleeper].pause()
  await world.advance(5000)
  places[sleeper].goOn()
  await world.advance(20_000)
  for (const group of groups.slice(1)) group.barrier().catch(() => undefined)
  groups[0].destroy('its tab was closed')
  const error = await world.until(groups[sleeper].failed)
  expect(endFactsOf(error).ranks).toEqual([0])
  expect(error.message).toMatch(/lost rank 0: it left/)
})
