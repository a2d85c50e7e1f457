import { describe, expect, it } from 'vitest'
import { waitingText } from '../../../src/distributed/group/form-group.ts'
import {
  type Gathered,
  type GatherOptions,
  gatherRanks,
  leaveRound,
} from '../../../src/distributed/rendezvous/gather-ranks.ts'
import { HashStore } from '../../../src/peer/store/hash-store.ts'
import { messageOf, PeerError } from '../../../src/util/errors.ts'
import { VirtualEnv } from '../../../src/util/virtual-env.ts'

/** A store and ranks that find each other by it, on one virtual clock. */
class World {
  readonly env: VirtualEnv
  readonly store: HashStore

  constructor(seed = 7) {
    this.env = new VirtualEnv(seed)
    this.store = new HashStore({ env: this.env })
  }

  /** A rank of `worldSize` ranks; its name is `tab <name>`. */
  join(
    rank: number | undefined,
    worldSize: number,
    { name = String(rank), ...rest }: Partial<GatherOptions> & { name?: string } = {},
  ): Promise<Gathered> {
    const joining = gatherRanks({
      store: this.store,
      env: this.env,
      rank,
      terms: { worldSize, backend: 'auto', topology: 'auto', relay: 'off' },
      place: {
        ...{ pageTag: '', hostTag: '', nodeTag: '', hasWebRtc: true, hasRelay: false },
        name: `tab ${name}`,
      },
      joinTimeoutMs: 60_000,
      ...rest,
    })
    joining.catch(() => undefined)
    return joining
  }

  /** Tabs that crash: what they wrote stays, their beats stop, and nothing that they ask for is answered. */
  crashing(store = this.store): { env: VirtualEnv; store: HashStore; crash: () => void } {
    let isDead = false
    const { env } = this
    const dying: VirtualEnv = Object.create(env)
    dying.after = (delayMs, run) => env.after(delayMs, () => !isDead && run())
    const dead = new Proxy(store, {
      get(target, name) {
        const value = Reflect.get(target, name)
        if (typeof value !== 'function') return value
        return async (...given: unknown[]) => {
          if (isDead) return new Promise(() => undefined)
          const result = await value.apply(target, given)
          return isDead ? new Promise(() => undefined) : result
        }
      },
    })
    return {
      env: dying,
      store: dead,
      crash: () => {
        isDead = true
      },
    }
  }

  async failure(joining: Promise<unknown>): Promise<PeerError> {
    const thrown = await this.env.until(joining.then(() => null).catch((error) => error))
    expect(thrown).toBeInstanceOf(PeerError)
    return thrown
  }
}

describe('joining', () => {
  it.each([1, 2, 3, 9])('%i ranks find one another, whatever their order', async (size) => {
    const world = new World()
    const order = Array.from({ length: size }, (_, n) => (n * 5 + 2) % size)
    const ranks = size === 9 || size < 4 ? [...new Set(order)] : order
    expect(ranks).toHaveLength(size)
    const joining: Promise<Gathered>[] = []
    for (const rank of ranks) {
      joining.push(world.join(rank, size))
      await world.env.advance(700)
    }
    const all = await world.env.until(Promise.all(joining))
    expect(all.map((one) => one.rank)).toEqual(ranks)
    for (const { members, round } of all) {
      expect(round).toBe(0)
      expect(members.map(({ name }) => name)).toEqual(
        Array.from({ length: size }, (_, rank) => `tab ${rank}`),
      )
    }
    // A second after the last came at most: what arrives wakes who waits.
    expect(world.env.now()).toBeLessThan(700 * size + 1000)
  })

  it('ranks without a number get those that are free', async () => {
    const world = new World()
    const joining = ['a', 'b', 'c', 'd'].map((name) => world.join(undefined, 4, { name }))
    const all = await world.env.until(Promise.all(joining))
    expect(all.map(({ rank }) => rank).sort()).toEqual([0, 1, 2, 3])
    expect(all[3].members).toEqual(all[0].members)
  })

  it('groups that follow one another leave no keys but the number of rounds', async () => {
    const world = new World()
    for (let cycle = 0; cycle < 5; cycle++) {
      const ranks = [0, 1, 2].map(async (rank) => {
        const gathered = await world.join(rank, 3)
        await leaveRound(world.store, gathered)
        return gathered
      })
      const all = await world.env.until(Promise.all(ranks))
      expect(all.map(({ round }) => round)).toEqual([cycle, cycle, cycle])
    }
    expect(await world.store.numKeys()).toBe(1)
  })

  it('rounds that fail leave the keys of the last two at most', async () => {
    const world = new World()
    const counts: number[] = []
    for (let cycle = 0; cycle < 6; cycle++) {
      const joining = [world.join(0, 3), world.join(1, 3)]
      for (const one of joining) await world.failure(one)
      counts.push(await world.store.numKeys())
    }
    expect(Math.max(...counts.slice(2))).toBe(counts[1])
    const all = [0, 1, 2].map(async (rank) => {
      const gathered = await world.join(rank, 3)
      await leaveRound(world.store, gathered)
    })
    await world.env.until(Promise.all(all))
    expect(await world.store.numKeys()).toBe(1)
  })

  it('a rank can join again before the others have left the round before', async () => {
    const world = new World()
    const first = await world.env.until(Promise.all([0, 1].map((rank) => world.join(rank, 2))))
    await leaveRound(world.store, first[0])
    const again = world.join(0, 2)
    await world.env.advance(5000)
    await leaveRound(world.store, first[1])
    const both = await world.env.until(Promise.all([again, world.join(1, 2)]))
    expect(both.map(({ round }) => round)).toEqual([1, 1])
  })
})

describe('what goes wrong', () => {
  it('ranks that do not come are named on all that wait', async () => {
    const world = new World()
    const joining = [world.join(0, 4), world.join(2, 4)]
    await world.env.advance(59_000)
    const errors = await Promise.all(joining.map((one) => world.failure(one)))
    for (const error of errors) {
      expect(error.code).toBe('peer.timeout')
      expect(error.message).toMatch(
        /^initProcessGroup: rank [02] waited 60000 ms for 4 ranks: missing ranks 1 and 3\./,
      )
    }
    expect(world.env.now()).toBeLessThan(61_500)
  })

  it('the error says that the rank waited for the next group when it comes while one runs', async () => {
    const world = new World()
    const alone = await world.failure(world.join(0, 2))
    expect(alone.message).toMatch(/missing rank 1\. Start it .*, or raise joinTimeoutMs\.$/)
    const pair = [0, 1].map(async (rank) => leaveRound(world.store, await world.join(rank, 2)))
    await world.env.until(Promise.all(pair))
    const late = await world.failure(world.join(undefined, 2))
    expect(late.message).toMatch(
      /raise joinTimeoutMs\. If a group is already running in this room, this rank waited for the next one: use another room or groupName\.$/,
    )
  })

  it('a rank that waits reports it once, after 3 s', async () => {
    const world = new World()
    const received: [number, readonly number[]][] = []
    const onwaiting = (rank: number, missing: readonly number[]) =>
      void received.push([rank, missing])
    const joining = [world.join(0, 3, { onwaiting }), world.join(2, 3)]
    await world.env.advance(2_500)
    expect(received).toEqual([])
    await world.env.advance(20_000)
    expect(received).toEqual([[0, [1]]])
    joining.push(world.join(1, 3, { onwaiting }))
    await world.env.until(Promise.all(joining))
    expect(received).toHaveLength(1)
    expect(waitingText(0, [1], 2, true)).toBe(
      'tabring: rank 0 waits for rank 1 of 2. Open this address in another tab.',
    )
    expect(waitingText(0, [1, 2], 3, false)).toBe(
      'tabring: rank 0 waits for ranks 1 and 2 of 3. Start them with the same room.',
    )
  })

  it('a rank that crashed while it waited counts as missing', async () => {
    const world = new World()
    const tab = world.crashing()
    const joining = world.join(0, 3)
    void world.join(1, 3, { env: tab.env, store: tab.store })
    await world.env.advance(2_000)
    tab.crash()
    expect((await world.failure(joining)).message).toContain('missing ranks 1 and 2.')
  })

  it('only the dead rank is missing when the time ends while the others detect its death', async () => {
    const world = new World()
    const tab = world.crashing()
    const joining = [world.join(0, 3, { joinTimeoutMs: 6_000 })]
    void world.join(1, 3, { env: tab.env, store: tab.store })
    await world.env.advance(1_500)
    tab.crash()
    await world.env.advance(3_500)
    joining.push(world.join(2, 3, { joinTimeoutMs: 6_000 }))
    for (const one of joining)
      expect((await world.failure(one)).message).toContain('missing rank 1. Start it')
    expect(world.env.now()).toBeLessThan(15_000)
  })

  it('a rank that is taken twice fails on all, and both tabs are named', async () => {
    const world = new World()
    const joining = [
      world.join(0, 3, { name: 'left' }),
      world.join(1, 3, { name: 'middle' }),
      world.join(1, 3, { name: 'right' }),
    ]
    for (const one of joining) {
      const { code, message } = await world.failure(one)
      expect(code).toBe('peer.mismatch')
      expect(message).toMatch(
        /rank 1 was given twice, to tab middle \(\w+\) and to tab right \(\w+\)/,
      )
    }
    expect(world.env.now()).toBeLessThan(5_000)
  })

  it.each([
    ['worldSize', { worldSize: 4 }, 'worldSize 3 from rank 0 (tab 0) and worldSize 4 from rank 1'],
    ['backend', { backend: 'webrtc' }, 'backend "auto" from rank 0 (tab 0) and backend "webrtc"'],
    ['topology', { topology: 'ring' }, 'topology "auto" from rank 0 (tab 0) and topology "ring"'],
  ] as const)(
    'an error shows both sides when ranks disagree about %s',
    async (name, other, text) => {
      const world = new World()
      const terms = { worldSize: 3, backend: 'auto', topology: 'auto', relay: 'off' } as const
      const joining = [world.join(0, 3), world.join(1, 3, { terms: { ...terms, ...other } })]
      for (const one of joining) {
        const { code, message } = await world.failure(one)
        expect(code).toBe('peer.mismatch')
        expect(message).toContain(`ranks disagree about ${name}: ${text}`)
      }
    },
  )

  it.each([
    [undefined, 0, 'none from a tab (tab a) and 0 from another (tab b)'],
    [1, undefined, '1 from another (tab a) and none from a tab (tab b)'],
  ])(
    'ranks %s and %s are refused when some have a number and some have none',
    async (a, b, text) => {
      const world = new World()
      const joining = [world.join(a, 2, { name: 'a' })]
      await world.env.advance(100)
      joining.push(world.join(b, 2, { name: 'b' }))
      for (const one of joining) {
        const { code, message } = await world.failure(one)
        expect(code).toBe('peer.mismatch')
        expect(message).toContain(`expected a rank from all tabs or from none, got ${text}. Pass`)
      }
      expect(world.env.now()).toBeLessThan(5_000)
    },
  )

  it('one rank too many without a number is refused, and the others continue', async () => {
    const world = new World()
    const names = ['a', 'b', 'c']
    const waiting = names.slice(0, 1).map((name) => world.join(undefined, 2, { name }))
    await world.env.advance(100)
    // Both at once: one of them finds no place.
    const rest = names
      .slice(1)
      .map((name) => world.join(undefined, 2, { name, joinTimeoutMs: 9000 }))
    const outcomes = await world.env.until(Promise.allSettled([...waiting, ...rest]))
    const failed = outcomes.filter((one) => one.status === 'rejected')
    expect(failed).toHaveLength(1)
    expect(messageOf(failed[0].reason)).toMatch(/all 2 ranks are taken|missing rank/)
  })

  it('a rank that is aborted while it joins frees its place at once', async () => {
    const world = new World()
    const abort = new AbortController()
    const left = world.join(1, 3, { name: 'first', signal: abort.signal })
    const waiting = world.join(0, 3)
    await world.env.advance(500)
    abort.abort(new PeerError('peer.aborted', 'enough'))
    expect((await world.failure(left)).message).toBe('enough')
    const next = [world.join(1, 3, { name: 'second' }), world.join(2, 3)]
    const all = await world.env.until(Promise.all([waiting, ...next]))
    expect(all[0].members[1].name).toBe('tab second')
    expect(world.env.now()).toBeLessThan(3_000)
  })
})

describe('a room that a crash left dirty', () => {
  it.each([0, 2_000, 20_000])(
    'is used again when a rank comes back after %i ms',
    async (whenMs) => {
      const world = new World()
      const tab = world.crashing()
      const waiting = [world.join(0, 3)]
      void world.join(1, 3, { name: 'old', env: tab.env, store: tab.store })
      await world.env.advance(1_500)
      tab.crash()
      // By what the store says all three are there now: the round must not count on the dead tab.
      waiting.push(world.join(2, 3))
      await world.env.advance(whenMs)
      const all = await world.env.until(
        Promise.all([...waiting, world.join(1, 3, { name: 'new' })]),
      )
      expect(all[0].members.map(({ name }) => name)).toEqual(['tab 0', 'tab new', 'tab 2'])
      expect(new Set(all.map(({ round }) => round)).size).toBe(1)
    },
  )

  it.each([0, 1, 5, 20, 60])(
    'is used again when all crashed %i calls into their joining',
    async (calls) => {
      const world = new World()
      const tabs = [0, 1, 2].map(() => world.crashing())
      for (const [rank, { env, store }] of tabs.entries()) {
        let left = calls
        const counting = new Proxy(store, {
          get(target, name) {
            left -= 1
            if (left < 0) tabs[rank].crash()
            return Reflect.get(target, name)
          },
        })
        void world.join(rank, 3, { env, store: counting })
      }
      await world.env.advance(10_000)
      for (const { crash } of tabs) crash()
      const keys = await world.store.numKeys()
      expect(keys > 0).toBe(calls > 1)
      // Another world size, too.
      const all = await world.env.until(Promise.all([0, 1].map((rank) => world.join(rank, 2))))
      expect(all.map(({ members }) => members.length)).toEqual([2, 2])
      expect(world.env.now()).toBeLessThan(30_000)
    },
  )
})

/** A store that answers after a random time, as one behind a network. */
function slow(world: World, maxMs: number): HashStore {
  return new Proxy(world.store, {
    get(target, name) {
      const value = Reflect.get(target, name)
      if (typeof value !== 'function') return value
      const travel = () =>
        new Promise<void>((resolve) => world.env.after(world.env.chance() * maxMs, resolve))
      return async (...given: unknown[]) => {
        await travel()
        const result = await value.apply(target, given)
        await travel()
        return result
      }
    },
  })
}

/** How the groups of all seeds came about. */
const seen = { withOld: 0, inFirstRound: 0, inLaterRound: 0 }

it.each(Array.from({ length: 200 }, (_, seed) => seed))(
  'seed %i: ranks come at random, one crashes and comes back, and all agree',
  async (seed) => {
    const world = new World(seed)
    const { env } = world
    const pick = (below: number) => Math.floor(env.chance() * below)
    const size = 1 + pick(9)
    const latencyMs = [0, 5, 100, 300][pick(4)]
    const lost = pick(size)
    const tab = world.crashing(slow(world, latencyMs))
    void env.after(
      pick(3000),
      () => void world.join(lost, size, { name: 'old', env: tab.env, store: tab.store }),
    )
    // It dies at any moment: before it joins, in the middle, or after.
    const crashMs = pick(6000)
    env.after(crashMs, tab.crash)
    await env.advance(pick(crashMs))
    const others = Array.from({ length: size }, (_, rank) => rank).filter((rank) => rank !== lost)
    const joining = others.map(async (rank) => {
      await new Promise<void>((resolve) => env.after(pick(3000), resolve))
      return world.join(rank, size, { store: slow(world, latencyMs) })
    })
    const back = (async () => {
      await new Promise<void>((resolve) =>
        env.after(Math.max(0, crashMs - env.now()) + pick(2000), resolve),
      )
      return world.join(lost, size, { name: 'new', store: slow(world, latencyMs) })
    })()
    const outcomes = await env.until(Promise.allSettled([...joining, back]))
    const all = outcomes.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
    // The old one may have formed the group with the others before it died; else the new one is in it.
    const [first] = all
    const isOld = first?.members[lost].name === 'tab old'
    const expected = isOld || (size === 1 && !first) ? size - 1 : size
    if (!isOld) expect(outcomes.map(({ status }) => status)).not.toContain('rejected')
    expect(all).toHaveLength(expected)
    seen.withOld += Number(isOld)
    seen.inFirstRound += Number(!isOld && first?.round === 0)
    seen.inLaterRound += Number(!isOld && first?.round > 0)
    for (const { members, round } of all) {
      expect(members).toEqual(first.members)
      expect(round).toBe(first.round)
    }
  },
)

it('the seeds cover all three: a crash after the end, before the beginning, and in between', () => {
  for (const [how, count] of Object.entries(seen)) expect(count, how).toBeGreaterThan(10)
})
