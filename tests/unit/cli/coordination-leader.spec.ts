import { beforeEach, describe, expect, test } from 'vitest'
import {
  type LauncherHandle,
  Leader,
  type LeaderOptions,
} from '../../../node/launch/coordination/leader.ts'
import type {
  Failure,
  LauncherMember,
  Order,
  Part,
} from '../../../node/launch/coordination/messages.ts'
import { Restarts } from '../../../node/restarts.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'

/** The leader of a run over launchers that only pretend, on a virtual clock. */

let env: VirtualEnv
let lines: string[]
beforeEach(() => {
  env = new VirtualEnv()
  lines = []
})

const makeLeader = (options: Partial<LeaderOptions> = {}) =>
  new Leader({
    env,
    launchers: 2,
    restarts: new Restarts(0),
    isKilling: true,
    maxRanks: 64,
    joinTimeoutMs: 60_000,
    log: (line) => lines.push(line),
    ...options,
  })

const memberOf = (index: number | null, tabs = 2, name = `host${index}`): LauncherMember => ({
  index,
  name,
  tabs,
  place: null,
})

class Launcher {
  readonly orders: Order[] = []
  readonly handle: LauncherHandle
  constructor(leader: Leader, member: LauncherMember, launchers = 2) {
    const answer = leader.join(member, launchers, (order) => this.orders.push(order))
    if ('refusal' in answer) throw new Error(answer.refusal)
    this.handle = answer.handle
  }
  get types(): string[] {
    return this.orders.map(({ type }) => type)
  }
  get part(): Part {
    const starts = this.orders.filter((order) => order.type === 'start')
    return starts[starts.length - 1].part
  }
  get end(): Failure | null | undefined {
    const last = this.orders[this.orders.length - 1]
    return last?.type === 'finish' ? last.failure : undefined
  }
  fails(rank: number | null, text: string, code = ''): void {
    const failure = { rank, host: 'h', code, text }
    this.handle.receive({ type: 'failed', attempt: this.part.attempt, failure })
  }
  ends(): void {
    this.handle.receive({ type: 'ended', attempt: this.part.attempt })
  }
}

describe('who has which ranks', () => {
  test('by node rank, in any order of arrival', () => {
    const leader = makeLeader({ launchers: 3 })
    const c = new Launcher(leader, memberOf(2, 1), 3)
    const a = new Launcher(leader, memberOf(0, 3), 3)
    expect(a.orders).toEqual([])
    const b = new Launcher(leader, memberOf(1, 2), 3)
    expect([a, b, c].map(({ part }) => part)).toEqual([
      { attempt: 0, firstRank: 0, worldSize: 6, nodeRank: 0, localRank: 0, localWorldSize: 3 },
      { attempt: 0, firstRank: 3, worldSize: 6, nodeRank: 1, localRank: 0, localWorldSize: 2 },
      { attempt: 0, firstRank: 5, worldSize: 6, nodeRank: 2, localRank: 0, localWorldSize: 1 },
    ])
  })

  test('launchers without a node rank take the free ones, in order of arrival', () => {
    const leader = makeLeader({ launchers: 3 })
    const later = new Launcher(leader, memberOf(null), 3)
    const last = new Launcher(leader, memberOf(null), 3)
    const first = new Launcher(leader, memberOf(0), 3)
    expect([first, later, last].map(({ part }) => part.nodeRank)).toEqual([0, 1, 2])
  })

  test('several launchers on one machine keep their places there', () => {
    const leader = makeLeader()
    const place = { nodeRank: 0, localRank: 1, localWorldSize: 2 }
    const b = new Launcher(leader, { ...memberOf(1, 1), place })
    new Launcher(leader, { ...memberOf(0, 1), place: { ...place, localRank: 0 } })
    expect(b.part).toEqual({ ...place, attempt: 0, firstRank: 1, worldSize: 2 })
  })
})

describe('who is refused', () => {
  test.each<[string, LauncherMember, number, string]>([
    ['another size', memberOf(1), 3, 'expected a launcher of 2, got one of 3'],
    ['a rank too high', memberOf(2), 2, 'expected a node rank below 2, got 2'],
    [
      'a rank that is taken',
      memberOf(0, 2, 'other'),
      2,
      'host0 already has node rank 0, and other came later',
    ],
  ])('%s', (_, member, launchers, text) => {
    const leader = makeLeader()
    new Launcher(leader, memberOf(0))
    expect(() => new Launcher(leader, member, launchers)).toThrow(text)
  })

  test('a launcher that comes when all are there', () => {
    const leader = makeLeader()
    new Launcher(leader, memberOf(0))
    new Launcher(leader, memberOf(1))
    expect(() => new Launcher(leader, memberOf(null))).toThrow('already has its 2 launchers')
  })
})

function pair(options: Partial<LeaderOptions> = {}): [Launcher, Launcher, Leader] {
  const leader = makeLeader(options)
  return [new Launcher(leader, memberOf(0)), new Launcher(leader, memberOf(1)), leader]
}

describe('how a run ends', () => {
  test('well, when all have ended', () => {
    const [a, b] = pair()
    a.ends()
    expect(b.end).toBeUndefined()
    b.ends()
    expect([a.types, b.types, a.end, b.end]).toEqual([
      ['start', 'finish'],
      ['start', 'finish'],
      null,
      null,
    ])
  })

  test('a failure stops all at once, and all receive it', () => {
    const [a, b] = pair()
    b.fails(2, 'boom')
    expect([a.types, b.types]).toEqual([
      ['start', 'stop'],
      ['start', 'stop'],
    ])
    a.fails(0, 'also', '')
    a.ends()
    expect(a.end).toBeUndefined()
    b.ends()
    expect([a.end, b.end]).toEqual(Array(2).fill({ rank: 2, host: 'h', code: '', text: 'boom' }))
  })

  test('a lost neighbour waits 0.7 s for its cause, which then counts', async () => {
    const [a, b] = pair()
    a.fails(1, 'lost rank 2', 'peer.lost')
    await env.advance(600)
    expect(a.types).toEqual(['start'])
    b.fails(2, 'boom')
    expect(a.types).toEqual(['start', 'stop'])
    a.ends()
    b.ends()
    expect(a.end?.text).toBe('boom')
  })

  test('a lost neighbour counts as the cause when no other comes within 0.7 s', async () => {
    const [a, b] = pair()
    a.fails(1, 'lost rank 2', 'peer.lost')
    b.fails(3, 'lost rank 0', 'peer.lost')
    await env.advance(701)
    expect(b.types).toEqual(['start', 'stop'])
    a.ends()
    b.ends()
    expect(b.end?.text).toBe('lost rank 2')
  })

  test('without killing the others run to their end', async () => {
    const [a, b] = pair({ isKilling: false })
    b.fails(2, 'boom')
    await env.advance(10_000)
    expect([a.types, b.types]).toEqual([['start'], ['start']])
    b.ends()
    a.ends()
    expect(a.end?.text).toBe('boom')
  })

  test('a lost launcher ends the run everywhere, restarts or not', () => {
    const [a, b] = pair({ restarts: new Restarts(3) })
    b.handle.lost('connection closed, 1006')
    expect(a.types).toEqual(['start', 'stop'])
    a.ends()
    expect(a.end?.text).toContain(
      'the launcher on host1 ended before the run did (connection closed, 1006)',
    )
    expect(a.end?.rank).toBeNull()
  })

  test('a failure that a restart would repeat ends the run, restarts or not', () => {
    const [a, b] = pair({ restarts: new Restarts(3) })
    a.handle.receive({
      type: 'failed',
      attempt: 0,
      failure: { rank: 0, host: 'host0', code: 'config.invalid', text: 'lr: must be above 0' },
    })
    a.ends()
    b.ends()
    expect(a.end?.text).toBe('lr: must be above 0')
  })

  test('the leader that is interrupted ends it for all', () => {
    const [a, b, leader] = pair()
    leader.abort({ rank: null, host: 'host0', code: '', text: 'interrupted' })
    expect([a.end?.text, b.end?.text]).toEqual(['interrupted', 'interrupted'])
    b.ends()
    b.handle.lost('gone')
    expect(b.types).toEqual(['start', 'finish'])
  })
})

describe('restarts', () => {
  test('all start again when all are down, as often as allowed', () => {
    const [a, b] = pair({ restarts: new Restarts(1) })
    b.fails(2, 'Error: first\n    at main')
    a.ends()
    expect(a.types).toEqual(['start', 'stop'])
    b.ends()
    expect([a.part.attempt, b.part.attempt]).toEqual([1, 1])
    expect(lines).toEqual(['rank 2 failed first: Error: first', 'restart 1 of 1'])
    a.fails(0, 'second')
    a.ends()
    b.ends()
    expect(b.end?.text).toBe('second')
  })

  test('a run that succeeds the second time has succeeded', () => {
    const [a, b] = pair({ restarts: new Restarts(5) })
    a.fails(0, 'once')
    a.ends()
    b.ends()
    a.ends()
    b.ends()
    expect([a.end, b.end]).toEqual([null, null])
  })

  test('failures of an earlier start do not count', () => {
    const [a, b] = pair({ restarts: new Restarts(1) })
    a.fails(0, 'once')
    a.ends()
    b.ends()
    b.handle.receive({
      type: 'failed',
      attempt: 0,
      failure: { rank: 2, host: '', code: '', text: 'late' },
    })
    b.handle.receive({ type: 'ended', attempt: 0 })
    expect(b.types).toEqual(['start', 'stop', 'start'])
    a.ends()
    b.ends()
    expect(a.end).toBeNull()
  })
})

describe('before all are there', () => {
  test('launchers that are missing in time are named', async () => {
    const leader = makeLeader({ launchers: 4 })
    const a = new Launcher(leader, memberOf(0), 4)
    new Launcher(leader, memberOf(2), 4)
    await env.advance(60_001)
    expect(a.end?.text).toBe(
      'launcher: node ranks 1, 3 of 4 did not join within 60 s (2 joined: host0, host2). Start them, or raise --rdzv-conf join_timeout.',
    )
  })

  test('a launcher that leaves before the start may come back', () => {
    const leader = makeLeader({ launchers: 3 })
    const a = new Launcher(leader, memberOf(0), 3)
    new Launcher(leader, memberOf(1), 3).handle.lost('closed')
    const b = new Launcher(leader, memberOf(1), 3)
    new Launcher(leader, memberOf(2), 3)
    expect([a.types, b.types]).toEqual([['start'], ['start']])
  })

  test('more ranks than a room takes', () => {
    const leader = makeLeader({ maxRanks: 3 })
    const a = new Launcher(leader, memberOf(0))
    new Launcher(leader, memberOf(1))
    expect(a.end?.text).toBe('launcher: expected at most 3 ranks, got 4. Lower --nproc-per-node.')
  })
})

describe('a run whose launchers may change', () => {
  const elastic = {
    launchers: 3,
    min: 1,
    lastCallMs: 5000,
    get restarts() {
      return new Restarts(1)
    },
  }
  const joins = (leader: Leader, index: number | null, tabs = 2) =>
    new Launcher(leader, memberOf(index, tabs), 3)

  test('begins at once when all are there, else when no more have come in time', async () => {
    const leader = makeLeader({ ...elastic, min: 2 })
    const a = joins(leader, 0)
    await env.advance(50_000)
    const c = joins(leader, 2)
    await env.advance(4000)
    expect(a.types).toEqual([])
    await env.advance(1000)
    expect([a, c].map(({ part }) => part)).toMatchObject([
      { firstRank: 0, worldSize: 4, nodeRank: 0 },
      { firstRank: 2, worldSize: 4, nodeRank: 1 },
    ])
    const full = makeLeader(elastic)
    const all = [0, 1, 2].map((index) => joins(full, index))
    expect(all.map(({ types }) => types)).toEqual([['start'], ['start'], ['start']])
    for (const one of all) one.ends()
    expect(env.timers).toBe(0)
  })

  test('does not begin with one that left before enough were there', async () => {
    const leader = makeLeader({ ...elastic, min: 2 })
    const a = joins(leader, 0)
    joins(leader, 1).handle.lost('closed')
    await env.advance(10_000)
    expect(a.types).toEqual([])
    await env.advance(50_001)
    expect(a.end?.text).toContain('1 of 2 launchers did not join within 60 s (1 joined: host0)')
  })

  test('starts again without a lost launcher, as a restart, and ends with the next one', () => {
    const leader = makeLeader(elastic)
    const [a, b, c] = [0, 1, 2].map((index) => joins(leader, index))
    b.handle.lost('connection closed, 1006')
    expect([a.types, c.types]).toEqual([
      ['start', 'stop'],
      ['start', 'stop'],
    ])
    c.fails(4, 'lost rank 2', 'peer.lost')
    a.ends()
    c.ends()
    expect([a, c].map(({ part }) => part)).toMatchObject([
      { attempt: 1, firstRank: 0, worldSize: 4, nodeRank: 0 },
      { attempt: 1, firstRank: 2, worldSize: 4, nodeRank: 1 },
    ])
    expect(lines[0]).toContain('the launcher on host1 ended before the run did')
    expect(lines[1]).toBe('restart 1 of 1')
    c.handle.lost('gone')
    a.ends()
    expect(a.end?.text).toContain('the launcher on host2 ended')
  })

  test('starts again with one that comes, which is no restart', async () => {
    const leader = makeLeader({ ...elastic, restarts: new Restarts(0) })
    const a = joins(leader, 0)
    await env.advance(5000)
    const b = joins(leader, null)
    expect([a.types, b.types]).toEqual([['start', 'stop'], []])
    a.ends()
    expect([a, b].map(({ part }) => part)).toMatchObject([
      { attempt: 1, firstRank: 0, worldSize: 4 },
      { attempt: 1, firstRank: 2, worldSize: 4 },
    ])
    expect(lines).toEqual(['hostnull joins: all ranks start again'])
    a.ends()
    b.ends()
    expect([a.end, b.end]).toEqual([null, null])
  })

  test('one that comes while the ranks stop is in the next start', () => {
    const leader = makeLeader(elastic)
    const [a, b, c] = [0, 1, 2].map((index) => joins(leader, index))
    b.handle.lost('gone')
    const again = joins(leader, 1)
    a.ends()
    expect(again.types).toEqual([])
    c.ends()
    expect([a, again, c].map(({ part }) => part)).toMatchObject(
      [0, 2, 4].map((firstRank) => ({ attempt: 1, firstRank, worldSize: 6 })),
    )
  })

  test('one that comes and goes while the ranks stop is no failure', async () => {
    const leader = makeLeader({ ...elastic, restarts: new Restarts(0) })
    const a = joins(leader, 0)
    await env.advance(5000)
    joins(leader, 1).handle.lost('gone')
    a.ends()
    expect(a.part).toMatchObject({ attempt: 1, worldSize: 2 })
    a.ends()
    expect(a.end).toBeNull()
  })

  test('waits for another where too few are left, and ends without one', async () => {
    const leader = makeLeader({ ...elastic, launchers: 3, min: 2, restarts: new Restarts(5) })
    const [a, b, c] = [0, 1, 2].map((index) => joins(leader, index))
    b.handle.lost('gone')
    c.handle.lost('gone')
    a.ends()
    expect(lines.at(-1)).toBe('1 of at least 2 launchers left; waiting for another, at most 60 s')
    await env.advance(50_000)
    const d = joins(leader, 2)
    await env.advance(5000)
    expect(d.part).toMatchObject({ attempt: 1, worldSize: 4, nodeRank: 1 })
    d.handle.lost('gone')
    a.ends()
    await env.advance(60_001)
    expect(a.end?.text).toContain('1 of 2 launchers did not join within 60 s (1 joined: host0)')
  })

  test('refuses one too many, ranks that a room does not take, and who comes after the end', () => {
    const full = makeLeader(elastic)
    const all = [0, 1, 2].map((index) => joins(full, index))
    expect(() => joins(full, null)).toThrow('already has its 3 launchers')
    for (const one of all) one.ends()
    expect(() => joins(full, null)).toThrow('the run is over')
    const small = makeLeader({ ...elastic, maxRanks: 3 })
    joins(small, 0)
    expect(() => joins(small, 1)).toThrow('expected at most 3 ranks, got 4 with its own')
    expect(joins(small, 2, 1).types).toEqual([])
  })
})

test('a launcher that never says that it has stopped is waited for half a minute', async () => {
  const leader = makeLeader()
  const [a, b] = [new Launcher(leader, memberOf(0)), new Launcher(leader, memberOf(1))]
  a.fails(0, 'boom')
  a.ends()
  await env.advance(29_000)
  expect(a.types).toEqual(['start', 'stop'])
  await env.advance(2_000)
  expect(a.end?.text).toBe('boom')
  expect(b.types).toEqual(['start', 'stop', 'finish'])
  expect(env.timers).toBe(0)
})
