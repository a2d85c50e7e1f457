import { expect, test } from 'vitest'
import type { ClientMessage } from '../../../../src/peer/room/client-messages.ts'
import { limits, protocolVersion, type ServerMessage } from '../../../../src/peer/room/messages.ts'
import { Rendezvous } from '../../../../src/peer/server/rendezvous.ts'
import { VirtualEnv } from '../../../../src/util/virtual-env.ts'
import { infoOf } from '../../../support/member-info.ts'
import { authKey, roomA } from '../../../support/rendezvous-world.ts'
import { runElasticRooms } from '../../../support/simulation/elastic-rooms.ts'
import { checkSeed, isReplay, seedsFrom } from '../../../support/simulation/replay.ts'
import {
  type MakerAct,
  makerActs,
  runRooms as run,
  type TabFault,
  tabFaults,
  roomTimes as times,
} from '../../../support/simulation/rooms.ts'

// Rooms and epochs in worlds that one number decides: who comes, goes, is slow, deaf or cut off. See docs/how-it-works/collectives.md.

const spec = 'tests/all/unit/signal/rooms-simulation.spec.ts'

test('200 seeds of 3 rooms and 36 members', async () => {
  const fired = Object.fromEntries(tabFaults.map((name) => [name, 0])) as Record<TabFault, number>
  const acts = Object.fromEntries(makerActs.map((name) => [name, 0])) as Record<MakerAct, number>
  const ended = { finished: 0, aborted: 0 }
  for (const seed of seedsFrom(1, 200)) {
    const given = { members: 36, rooms: 3, ...times, oddOneIn: 6 }
    const outcome = await checkSeed(seed, spec, run(given))
    for (const name of tabFaults) fired[name] += outcome.fired[name]
    for (const name of makerActs) acts[name] += outcome.acts[name]
    ended.finished += outcome.finished
    ended.aborted += outcome.aborted
  }
  if (isReplay) return
  for (const name of tabFaults) expect(fired[name], name).toBeGreaterThanOrEqual(50)
  for (const name of makerActs) expect(acts[name], name).toBeGreaterThanOrEqual(200)
  expect(ended.finished).toBeGreaterThan(1000)
  expect(ended.aborted).toBeGreaterThan(500)
}, 60_000)

// A room holds 64: its lobby lists everyone to everyone, and a rank on the wire is below that. So 5,000 are 84 rooms of one server.
test('5,000 members in 84 rooms', async () => {
  for (const seed of seedsFrom(1_000_001, 1)) {
    const given = { members: 5000, rooms: 84, ...times, oddOneIn: 12 }
    const outcome = await checkSeed(seed, spec, run(given))
    expect(outcome.peakMembers).toBeGreaterThan(4800)
    expect(outcome.peakRanks).toBeGreaterThan(50)
    expect(outcome.epochs).toBeGreaterThan(800)
    // For each member: the lobby after each that comes or goes, and about 20 for each epoch, most of them signals of its 11 links.
    expect(outcome.maxToOne).toBeLessThan(500)
    expect(outcome.messages / given.members).toBeLessThan(300)
    for (const name of tabFaults) expect(outcome.fired[name], name).toBeGreaterThanOrEqual(20)
  }
}, 120_000)

test('1,000 seeds of a room with an elastic run', async () => {
  for (const seed of seedsFrom(2_000_001, 1000)) await checkSeed(seed, spec, runElasticRooms)
}, 120_000)

/** One room of `size` through one run. Returns how many messages of each type each member received. */
async function lifeOf(size: number, joiningTogether: number) {
  const env = new VirtualEnv(1)
  const received = new Map<string, Map<string, number>>()
  const ranks = new Set<number>()
  const host = {
    send(id: string, message: ServerMessage) {
      const counts = received.get(id)!
      counts.set(message.type, (counts.get(message.type) ?? 0) + 1)
      if (message.type === 'assign') ranks.add(message.rank)
    },
    close: () => undefined,
    verify: () => true,
  }
  const server = new Rendezvous(env, host, { membersPerRoom: size })
  const say = (id: string, message: ClientMessage) => server.receive(id, JSON.stringify(message))
  const ids = Array.from({ length: size }, (_, at) => `t${at}`)
  for (const [at, id] of ids.entries()) {
    received.set(id, new Map())
    server.open(id, id)
    const common = { version: protocolVersion, room: roomA, info: infoOf(id) } as const
    if (at === 0) say(id, { type: 'create', ...common, authKey })
    else say(id, { type: 'join', ...common, proof: authKey })
    if (at % joiningTogether === 0) await env.advance(limits.lobbyDelayMs)
  }
  await env.advance(limits.lobbyDelayMs)
  say('t0', { type: 'start', settings: null })
  for (const type of ['ready', 'done'] as const) {
    for (const id of ids) say(id, { type, epoch: 1 })
    await env.advance(limits.lobbyDelayMs)
  }
  for (const id of ids) server.lost(id, 'its connection ended (1006)')
  const left = { ...server.counts, timers: env.timers }
  return { received, ranks, left }
}

test.skipIf(isReplay)(
  'messages to each member do not grow with the room when 5,000 are in it',
  async () => {
    const perMember: number[] = []
    for (const size of [50, 500, 5000]) {
      const { received, ranks, left } = await lifeOf(size, size / 10)
      expect(ranks).toEqual(new Set(Array.from({ length: size }, (_, rank) => rank)))
      expect(left).toEqual({ rooms: 0, connections: 0, timers: 0 })
      const types = ['challenge', 'welcome', 'assign', 'start', 'finished']
      let max = 0
      for (const counts of received.values()) {
        for (const type of types) expect(counts.get(type), type).toBe(1)
        const gone = counts.get('gone') ?? 0
        max = Math.max(max, [...counts.values()].reduce((a, b) => a + b, 0) - gone)
        // A member that goes is one message to each that stays: the only one that grows with the room.
        expect(gone).toBeLessThan(size)
      }
      perMember.push(max)
    }
    expect(perMember).toEqual([18, 18, 18])
  },
  60_000,
)
