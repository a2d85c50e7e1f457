import { afterAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { experiments, parseTrainConfig } from '../../../demos/experiments.ts'
import { sumStats } from '../../../src/peer/link/link.ts'
import type { Abort, Assignment, Lobby } from '../../../src/peer/room/messages.ts'
import { leftOutError, SignalError } from '../../../src/peer/room/refusals.ts'
import { newRoomLink } from '../../../src/peer/room/secret.ts'
import type { SignalClient, SignalEvents, SignalOptions } from '../../../src/peer/tab/signal.ts'
import { PeerError, RunError, TabringError } from '../../../src/util/errors.ts'
import type {
  AdapterFacts,
  ComputeApi,
  Membership,
  RunEvent,
  RunResult,
} from '../../../src/worker/api.ts'
import type { ComputeClient } from '../../../src/worker/page/client.ts'
import type { FormLinksOptions, RingLinks } from '../../../src/worker/page/connect.ts'
import { RoomMember, type RoomMemberOptions, type RunEnd } from '../../../src/worker/page/member.ts'

/** A member whose server, links and worker are played by the test: `told` is what the server hears. */

interface World {
  told: unknown[][]
  /** Of the worker. */
  asked: unknown[][]
  prepared: Promise<void>
  linked: Promise<void>
  /** `room`: in that one alone, by its key. */
  hear: <K extends keyof SignalEvents>(event: K, value: SignalEvents[K], room?: string) => void
  work: (event: RunEvent) => void
  /** The worker's run ends. */
  fail: (error: Error) => void
  finish: () => void
  membership: Membership | undefined
  lobby: unknown
  isInside: boolean
  /** Whether a room lets this tab in, by its key. */
  entered: (room: string) => Promise<void>
  removed: () => Promise<void>
  /** By their keys, in order. */
  leftRooms: string[]
  die: (error: Error) => void
}

const world = vi.hoisted(() => {
  vi.resetModules() // specs before this one may have loaded what is mocked here
  return {} as World
})

vi.mock('../../../src/peer/tab/signal.ts', () => ({
  signalUrl: () => 'ws://test',
  SignalClient: class implements Partial<SignalClient> {
    on: SignalClient['on'] = (event, listener) => {
      const before = world.hear
      let isOn = true
      world.hear = (told, value, room) => {
        before(told, value, room)
        const isHere = room === undefined || room === this.#room
        if (isOn && isHere && (told as string) === event) listener(value as never)
      }
      return () => {
        isOn = false
      }
    }
    id = '0'
    readonly #room: string
    get isInside() {
      return world.isInside
    }
    asks = []
    get lobby() {
      return world.lobby as Lobby | null
    }
    constructor({ loadRuns, link }: SignalOptions) {
      this.#room = 'key' in link ? link.key : ''
      this.open = async () => {
        await loadRuns?.()
        await world.entered(this.#room)
      }
    }
    open: () => Promise<void>
    ranks = (...words: unknown[]) => world.told.push(['ranks', ...words])
    out = (...words: unknown[]) => world.told.push(['out', ...words])
    half = (...words: unknown[]) => world.told.push(['half', ...words])
    linkDown = (...words: unknown[]) => world.told.push(['linkDown', ...words])
    abort = (...words: unknown[]) => world.told.push(['abort', ...words])
    start = (_settings: unknown, ...words: unknown[]) => world.told.push(['start', ...words])
    done = (...words: unknown[]) => world.told.push(['done', ...words])
    bye = () => {
      world.told.push(['bye'])
      world.leftRooms.push(this.#room)
    }
    update = () => undefined
    removeAndTell = async (...words: unknown[]) => {
      world.told.push(['removeAndTell', ...words])
      await world.removed()
    }
  },
}))

vi.mock('../../../src/worker/page/leave-on-page-hide.ts', () => ({
  leaveOnPageHide: () => undefined,
}))

vi.mock('../../../src/worker/page/connect.ts', () => ({
  formLinks: ({ prepared }: FormLinksOptions): Partial<RingLinks> => ({
    connected: Promise.all([prepared, world.linked]).then(() => undefined),
    stats: async () => ({ total: sumStats([]), links: [] }),
    close: () => undefined,
  }),
}))

vi.mock('../../../src/worker/page/client.ts', () => ({
  startCompute: (): Partial<ComputeClient> => {
    const dead = new Promise<never>((_, reject) => {
      world.die = reject
    })
    const api: Partial<ComputeApi> = {
      train: (membership, _config, _baseUrl, onEvents) => {
        world.membership = membership
        world.work = (event) => onEvents([{ event, atMs: 0 }])
        const ended = new Promise<RunResult>((resolve, reject) => {
          world.fail = reject
          world.finish = () => resolve({} as RunResult)
        })
        return Promise.race([dead, ended])
      },
      prepare: async (...words) => {
        world.asked.push(['prepare', words[0]])
        words[2]('compile')
        await world.prepared
      },
      admit: async (...words) => void world.asked.push(['admit', ...words]),
      memberIsDead: async (...words) => void world.asked.push(['memberIsDead', ...words]),
      doubt: async (...words) => void world.asked.push(['doubt', ...words]),
      firstHalf: async (...words) => void world.asked.push(['firstHalf', ...words]),
      leftOut: async (...words) => void world.asked.push(['leftOut', ...words]),
      dropLinks: async () => undefined,
      abort: async (...words) => void world.asked.push(['abort', ...words]),
      leave: async () => void world.asked.push(['leave']),
    }
    return { api: api as ComputeApi, dead, terminate: () => undefined }
  },
}))

beforeEach(() => {
  world.told = []
  world.asked = []
  world.prepared = Promise.resolve()
  world.linked = Promise.resolve()
  world.lobby = null
  world.isInside = true
  world.entered = async () => undefined
  world.removed = async () => undefined
  world.leftRooms = []
  world.hear = () => undefined
  vi.stubGlobal('location', { href: 'http://test/' })
  vi.stubGlobal('document', { hidden: false })
  vi.stubGlobal('WebSocket', null)
})
afterAll(() => {
  vi.unstubAllGlobals()
  // The specs after this one in the same worker load their modules again.
  vi.resetModules()
})

const newMember = (onEvent?: (event: RunEvent) => void, options: Partial<RoomMemberOptions> = {}) =>
  new RoomMember({
    experiments,
    startWorker: () => null as never,
    link: newRoomLink(),
    name: 'tab',
    transport: 'relay',
    mode: 'create',
    onEvent,
    onRegrouped: (assignment) => regrouped.push(assignment),
    onEnd: (end) => ends.push(end),
    onReason: (error) => reasons.push(error),
    ...options,
  })

const key = '9'.repeat(16)
const other = '8'.repeat(16)

/** Rank 0 of that world size, in an elastic run that began with epoch 1. */
const assignment = (epoch: number, worldSize: number): Assignment => ({
  epoch,
  run: 1,
  key,
  rank: 0,
  worldSize,
  members: Array.from({ length: worldSize }, (_, rank) => ({
    id: `${rank}`,
    name: `t${rank}`,
    adapter: null,
    hostTag: '',
    hidden: false,
    transport: 'relay',
  })),
  links: Array.from({ length: worldSize - 1 }, (_, before) => ({
    peerRank: before + 1,
    kind: 'relay',
    initiator: true,
  })),
})

const settings = JSON.parse(JSON.stringify(parseTrainConfig({})))
const heard: string[] = []
const regrouped: Assignment[] = []
const ends: RunEnd[] = []
const reasons: Error[] = []

/** A member in an elastic run that has begun. */
async function running(worldSize: number): Promise<void> {
  heard.length = 0
  regrouped.length = 0
  ends.length = 0
  reasons.length = 0
  await newMember(({ event }) => heard.push(event)).join({} as AdapterFacts)
  world.hear('assign', assignment(1, worldSize))
  world.hear('start', { epoch: 1, settings })
}

/** The compute worker ends. */
async function die(): Promise<void> {
  world.die(new TabringError('worker.dead', 'crashed'))
  await new Promise(setImmediate)
}

describe('a tab that moves to another room', () => {
  const [from, to] = [newRoomLink(), newRoomLink()]
  const lobby = { maker: '0', members: [], epoch: 0 }
  const lobbies: unknown[] = []

  /** In the room `from`, as its host. */
  async function inRoom(options: Partial<RoomMemberOptions> = {}): Promise<RoomMember> {
    lobbies.length = 0
    const onLobby = (told: unknown) => lobbies.push(told)
    const member = newMember(undefined, { link: from, onLobby, ...options })
    await member.join({} as AdapterFacts)
    world.lobby = lobby
    return member
  }

  /** The new room neither lets a tab in nor refuses it, until what this returns is called. */
  function asksAtTheNewRoom(): (error: Error) => void {
    let refuse: (error: Error) => void = () => undefined
    world.entered = (room) =>
      room === from.key
        ? Promise.resolve()
        : new Promise((_, reject) => {
            refuse = reject
          })
    return (error) => refuse(error)
  }

  it('leaves the old one once the server has removed whom the host removes', async () => {
    const member = await inRoom()
    await member.moveWithout(['7', '8'], to)
    expect(world.told).toEqual([['removeAndTell', ['7', '8'], { key: to.key }], ['bye']])
    expect(world.leftRooms).toEqual([from.key])
  })

  it('is back in the old one where the removal fails', async () => {
    world.removed = async () => {
      throw new SignalError('not-the-host', 'another tab is the host.')
    }
    const member = await inRoom()
    await expect(member.moveWithout(['7'], to)).rejects.toMatchObject({ refusal: 'not-the-host' })
    expect(world.leftRooms).toEqual([to.key])
    expect(lobbies).toEqual([lobby])
    member.close()
    expect(world.leftRooms).toEqual([to.key, from.key])
  })

  it('stays in the old one where the new one does not let it in', async () => {
    world.entered = async (room) => {
      if (room === to.key) throw new SignalError('declined', 'the host declined.')
    }
    const member = await inRoom()
    await expect(member.follow(to)).rejects.toMatchObject({ refusal: 'declined' })
    expect(world.leftRooms).toEqual([to.key])
    expect(lobbies).toEqual([lobby])
  })

  it('tries again where too many wait at the new one, and says so', async () => {
    vi.useFakeTimers()
    let triesLeft = 3
    world.entered = async (room) => {
      if (room === to.key && --triesLeft > 0) throw new SignalError('too-many', '20 others wait.')
    }
    const refused: string[] = []
    const member = await inRoom({ onRefused: ({ message }) => refused.push(message) })
    const moved = member.follow(to)
    await vi.runAllTimersAsync()
    await moved
    expect(refused).toHaveLength(2)
    expect(world.leftRooms.at(-1)).toBe(from.key)
    vi.useRealTimers()
  })

  it('leaves both where it is closed meanwhile', async () => {
    const refuse = asksAtTheNewRoom()
    const member = await inRoom()
    const moving = member.follow(to)
    await new Promise(setImmediate)
    member.close()
    refuse(new PeerError('signal.lost', 'left early'))
    await expect(moving).rejects.toThrow('left early')
    expect(world.leftRooms).toContain(from.key)
    expect(world.leftRooms).toContain(to.key)
  })

  it('starts nothing on the way, and starts once it is back', async () => {
    const refuse = asksAtTheNewRoom()
    const refused: string[] = []
    const member = await inRoom({ onRefused: ({ message }) => refused.push(message) })
    const moving = member.follow(to)
    await new Promise(setImmediate)
    member.start({})
    expect(refused).toEqual([expect.stringContaining('nothing was started')])
    expect(world.told).toEqual([])
    refuse(new SignalError('declined', 'the host declined.'))
    await expect(moving).rejects.toMatchObject({ refusal: 'declined' })
    world.told = []
    member.start({})
    expect(world.told).toEqual([['start', true]])
  })

  it('starts nothing in the new one before the old one has been told', async () => {
    const member = await inRoom()
    world.removed = async () => member.start({})
    await member.moveWithout(['7'], to)
    expect(world.told.map(([what]) => what)).toEqual(['removeAndTell', 'bye'])
    member.start({})
    expect(world.told.at(-1)).toEqual(['start', true])
  })

  it('goes back where the old one begins a run while it waits to be let in, and takes part', async () => {
    const refuse = asksAtTheNewRoom()
    const member = await inRoom()
    const moving = member.follow(to)
    await new Promise(setImmediate)
    world.hear('assign', assignment(4, 2), from.key)
    expect(world.leftRooms).toEqual([to.key])
    refuse(new PeerError('signal.lost', 'left early'))
    await expect(moving).rejects.toThrow('left early')
    expect(member.rank).toBe(0)
    world.hear('start', { epoch: 4, settings })
    expect(world.membership?.epoch).toBe(4)
  })

  it('learns after the move back that the old one has put it out', async () => {
    const removed: Error[] = []
    world.removed = async () => {
      world.hear('lost', new SignalError('removed', 'removed by Ada', 'Ada'), from.key)
      throw new PeerError('signal.lost', 'ended')
    }
    const member = await inRoom({ onRemoved: (error) => removed.push(error) })
    await expect(member.moveWithout(['7'], to)).rejects.toThrow('ended')
    expect(removed).toMatchObject([{ refusal: 'removed', by: 'Ada' }])
  })

  it.each([true, false])(
    'says that the server is back where it was lost before, whether the new one lets it in: %s',
    async (isLetIn) => {
      let backs = 0
      const member = await inRoom({ onServerBack: () => backs++ })
      world.hear('away', new PeerError('signal.lost', 'the connection ended'), from.key)
      world.entered = async () => {
        if (!isLetIn) throw new SignalError('declined', 'the host declined.')
      }
      await member.follow(to).catch(() => undefined)
      expect(backs).toBe(1)
    },
  )

  it('takes no new room after it was removed', async () => {
    const member = await inRoom({ onRemoved: () => undefined })
    world.hear('lost', new SignalError('removed', 'removed by Ada', 'Ada'), from.key)
    await expect(member.follow(to)).rejects.toThrow('left before it had entered')
    expect(world.leftRooms).toEqual([])
  })

  describe('and has not asked at the new one yet', () => {
    const entered: string[] = []
    beforeEach(() => {
      entered.length = 0
      world.entered = async (room) => void entered.push(room)
    })
    /** With a token it has to derive the name of the room first. */
    const inRoomWithToken = (options: Partial<RoomMemberOptions> = {}) =>
      inRoom({ token: () => 'ab'.repeat(16), ...options })

    it('stays where the old one begins a run, and takes part once', async () => {
      const assignments: Assignment[] = []
      const member = await inRoomWithToken({ onAssigned: (told) => assignments.push(told) })
      const moving = member.follow(to)
      world.hear('assign', assignment(4, 2), from.key)
      await expect(moving).rejects.toThrow('a run begins in the old room')
      world.hear('start', { epoch: 4, settings }, from.key)
      expect(world.membership?.epoch).toBe(4)
      expect(assignments).toHaveLength(1)
      expect(entered).toEqual([from.key])
    })

    it('stays where it has started a run itself, and can start again after a refusal', async () => {
      const member = await inRoomWithToken()
      member.start({})
      await expect(member.moveWithout(['7'], to)).rejects.toThrow('a run begins in the old room')
      world.hear('refused', new SignalError('not-the-host', 'another tab is the host.'), from.key)
      member.start({})
      expect(world.told).toEqual([
        ['start', true],
        ['start', true],
      ])
    })

    it('follows while a run of the old one has not ended here', async () => {
      const member = await inRoomWithToken()
      world.hear('assign', assignment(1, 2))
      world.hear('start', { epoch: 1, settings })
      await member.follow(to)
      expect(world.leftRooms).toEqual([from.key])
    })

    it('asks nowhere once it is removed, and says so once', async () => {
      const removed: Error[] = []
      const member = await inRoomWithToken({ onRemoved: (error) => removed.push(error) })
      const moving = member.follow(to)
      world.hear('lost', new SignalError('removed', 'removed by Ada', 'Ada'), from.key)
      await expect(moving).rejects.toThrow('left before it had entered')
      expect(entered).toEqual([from.key])
      expect(removed).toHaveLength(1)
    })

    it('asks nowhere once it is closed', async () => {
      const member = await inRoomWithToken()
      const moving = member.follow(to)
      member.close()
      await expect(moving).rejects.toThrow('left before it had entered')
      expect(entered).toEqual([from.key])
      expect(world.leftRooms).toEqual([from.key])
    })
  })
})

it('start works after one that was refused for its settings', () => {
  const member = newMember()
  expect(() => member.start({ exact: true, tune: true })).toThrow('tune: not available with exact')
  // It gets as far as the server, which this member has not joined; nor does that count as a start.
  for (let time = 0; time < 2; time++)
    expect(() => member.start({ exact: true })).toThrow('not joined yet')
})

it('start works after one that was refused because the server was lost', async () => {
  const refused: string[] = []
  const member = newMember(undefined, { onRefused: ({ message }) => refused.push(message) })
  await member.join({} as AdapterFacts)
  world.isInside = false
  member.start({})
  expect(refused).toEqual([expect.stringContaining('has lost the server')])
  world.isInside = true
  member.start({})
  expect(world.told).toEqual([['start', true]])
})

it.each([
  [16, {}, true],
  [17, {}, false],
  [2, { elastic: false }, false],
])('start of %i ranks with %o is elastic: %s', async (count, input, isElastic) => {
  const member = newMember()
  await member.join({} as AdapterFacts)
  world.lobby = { members: Array.from({ length: count }, () => ({})) }
  member.start(input)
  expect(world.told).toEqual([['start', isElastic]])
})

it('newcomers that are linked are admitted, by the lives that they begin', async () => {
  await running(2)
  world.hear('assign', { ...assignment(2, 3), joining: 1 })
  expect(world.asked).toEqual([])
  world.hear('start', { epoch: 2, settings })
  const newcomers = [{ rank: 2, id: '2.2', machine: '2' }]
  expect(world.asked).toEqual([['admit', { epoch: 2, newcomers }]])
})

it('a new roster reaches the server, and the page with the names', async () => {
  await running(2)
  world.hear('assign', { ...assignment(2, 3), joining: 1 })
  world.hear('start', { epoch: 2, settings })
  world.work({ event: 'roster', ballot: 70_000, members: ['0.1', '2.2'], rank: 0 })
  expect(world.told).toEqual([['ranks', key, 70_000, ['0', '2']]])
  expect(regrouped).toMatchObject([
    { rank: 0, worldSize: 2, members: [{ name: 't0' }, { name: 't2' }], links: [{ peerRank: 1 }] },
  ])
})

it('a member that has left is dead for sure, one whose connection has ended is asked', async () => {
  await running(3)
  const gone = { name: 't2', rank: 2, text: '', ballot: 7 }
  world.hear('gone', { ...gone, id: '2', hasLeft: false })
  expect(world.asked).toEqual([['doubt', '2']])
  world.hear('gone', { ...gone, id: '2', hasLeft: true })
  expect(world.asked[1]).toEqual(['memberIsDead', '2', 7])
})

it('a rank that cannot decide is left out where the server knows that others train', async () => {
  await running(2)
  world.lobby = {
    state: 'running',
    members: [
      { id: '0', rank: null },
      { id: '1', rank: 0 },
    ],
  }
  world.work({ event: 'undecided', missing: ['1.1'], hadMore: false, step: 8, rank: 0 })
  expect(world.asked).toEqual([['leftOut', 'the others continue']])
})

it('a rank that has lost its links to the first one in the room gives up its place', async () => {
  await running(2)
  vi.useFakeTimers()
  try {
    world.lobby = {
      state: 'running',
      members: [
        { id: '0', rank: 1 },
        { id: '1', rank: 0 },
      ],
    }
    world.work({ event: 'roster', ballot: 70_000, members: ['1.1', '0.1'], rank: 1 })
    world.work({ event: 'undecided', missing: ['1.1'], hadMore: false, step: 8, rank: 1 })
    await vi.advanceTimersByTimeAsync(11_000)
    expect(world.asked).toEqual([])
    await vi.advanceTimersByTimeAsync(3000)
    expect(world.asked[0]).toEqual(['leftOut', 'it has lost its links'])
    world.asked = []
    // The first one keeps its place.
    world.work({ event: 'undecided', missing: null, hadMore: false, step: 8, rank: 1 })
    world.work({ event: 'roster', ballot: 140_000, members: ['0.1', '1.1'], rank: 0 })
    world.work({ event: 'undecided', missing: ['1.1'], hadMore: false, step: 8, rank: 0 })
    await vi.advanceTimersByTimeAsync(20_000)
    expect(world.asked).toEqual([])
  } finally {
    vi.useRealTimers()
  }
})

it.each([
  ['gpu.lost', 'again', 2],
  ['train.nan', 'barred', 0],
] as const)(
  'a rank that fails alone with %s is left out (%s) and asks %i times to come in',
  async (code, leftOut, times) => {
    await running(3)
    world.fail(leftOutError(code, 'it has failed', leftOut))
    await vi.waitFor(() => expect(ends).toHaveLength(1))
    world.hear('back', { isSame: true })
    expect(world.told.filter(([what]) => what === 'out')).toHaveLength(times)
    expect(world.told.filter(([what]) => what === 'abort')).toEqual([])
  },
)

it('asks the server which half came first, and answers at once where it is away', async () => {
  await running(2)
  const lives = ['0.1', '1.1']
  world.work({ event: 'half', ballot: 1, alive: lives, lives: ['0.1'], rank: 0 })
  expect(world.told).toEqual([['half', key, 1, lives, ['0.1']]])
  for (const of of [other, key]) world.hear('half', { key: of, ballot: 1, first: ['0.1'] })
  expect(world.asked).toEqual([['firstHalf', 1, ['0.1']]])
  world.isInside = false
  world.work({ event: 'half', ballot: 1, alive: lives, lives: ['0.1'], rank: 0 })
  expect(world.asked[1]).toEqual(['firstHalf', 1, null])
})

it('a rank that the others continue without asks the server to come in again, as another life', async () => {
  await running(2)
  world.fail(leftOutError('peer.lost', 'the others continue'))
  await new Promise(setImmediate)
  expect(world.told).toEqual([['out', key]])
  world.hear('assign', { ...assignment(3, 2), joining: 1 })
  world.hear('start', { epoch: 3, settings })
  expect(world.membership?.crew).toMatchObject({
    self: '0.3',
    ids: [null, '1.3'],
    former: { id: '0.1', entered: 1 },
  })
})

it('a rank that was left out and cannot be linked yet waits for other links, and comes in as another life', async () => {
  await running(2)
  world.fail(leftOutError('peer.lost', 'the others continue'))
  await new Promise(setImmediate)
  for (const epoch of [3, 4]) {
    world.linked = Promise.reject(new PeerError('peer.unreachable', 'no link to rank 1.'))
    world.hear('assign', { ...assignment(epoch, 2), joining: 1 })
    await new Promise(setImmediate)
    expect(ends.at(-1)).toMatchObject({
      ok: false,
      error: { code: 'peer.lost', facts: { leftOut: 'again' } },
    })
  }
  world.linked = Promise.resolve()
  world.hear('assign', { ...assignment(5, 2), joining: 1 })
  world.hear('start', { epoch: 5, settings })
  expect(world.membership?.crew).toMatchObject({ self: '0.5', former: { id: '0.1', entered: 1 } })
})

describe('a run of which the host removes a rank', () => {
  const removal: Abort = {
    epoch: 1,
    code: 'peer.removed',
    ranks: [1],
    text: 'as the server says',
  }
  const lost = new RunError('peer.lost', 'rank 0 lost rank 1: it left.', { ranks: [1] })

  it('ends as the server says, not as the ranks do', async () => {
    await running(2)
    world.hear('abort', removal)
    expect(world.asked).toEqual([['abort', 'as the server says']])
    world.fail(lost)
    await new Promise(setImmediate)
    expect(ends).toMatchObject([
      { ok: false, error: { code: 'peer.removed', facts: { ranks: [1] } } },
    ])
  })

  it('hears the reason later where the ranks were quicker', async () => {
    await running(2)
    world.fail(lost)
    await new Promise(setImmediate)
    expect(ends).toMatchObject([{ ok: false, error: { code: 'peer.lost' } }])
    world.hear('abort', { ...removal, code: 'peer.lost' })
    expect(reasons).toEqual([])
    world.hear('abort', removal)
    expect(reasons).toMatchObject([{ code: 'peer.removed' }])
    expect(ends).toHaveLength(1)
  })

  it('ends by its own error where that has struck this tab', async () => {
    await running(2)
    world.hear('abort', removal)
    world.fail(new TabringError('gpu.lost', 'the device was lost'))
    await new Promise(setImmediate)
    expect(ends).toMatchObject([{ ok: false, error: { code: 'gpu.lost' } }])
  })

  it('hears nothing from the tab that was removed: its links end', async () => {
    await running(2)
    world.hear('lost', new SignalError('removed', 'removed by Ada', 'Ada'))
    expect(world.asked).toEqual([['abort', 'signaling: removed: removed by Ada', true]])
    expect(world.told).toEqual([])
  })
})

it('a newcomer that got the state too slowly asks to come in again a minute later', async () => {
  await running(2)
  vi.useFakeTimers({ toFake: ['setTimeout'] })
  try {
    world.fail(leftOutError('peer.timeout', 'the kept state: too slow'))
    await new Promise(setImmediate)
    vi.advanceTimersByTime(59_999)
    expect(world.told).toEqual([])
    vi.advanceTimersByTime(1)
    expect(world.told).toEqual([['out', key]])
  } finally {
    vi.useRealTimers()
  }
})

describe('another run of the same number', () => {
  /** Rank 1 of 3: a newcomer, as rank 2 is. */
  const joining: Assignment = { ...assignment(5, 3), key: other, rank: 1, joining: 2 }

  it('changes nothing in the own one: that ends before this tab joins the other', async () => {
    await running(2)
    world.hear('assign', joining)
    world.hear('start', { epoch: 5, settings })
    expect(world.asked).toEqual([['abort', 'Another run has started.', true]])
    expect(ends).toMatchObject([{ ok: false, error: { message: 'Another run has started.' } }])
    expect(world.membership).toMatchObject({ epoch: 5, rank: 1, joins: true })
    expect(world.membership?.crew).toMatchObject({ self: '1.5', ids: [null, '1.5', '2.5'] })
  })

  it('takes this tab once the own one has ended well, and has no life of it', async () => {
    await running(2)
    world.lobby = {
      state: 'running',
      members: [
        { id: 'x', rank: 0 },
        { id: '0', rank: null },
      ],
    }
    world.finish()
    await new Promise(setImmediate)
    expect(world.told).toEqual([['done', 1]])
    expect(ends).toMatchObject([{ ok: true, rank: 0, worldSize: 2 }])
    world.hear('assign', joining)
    world.hear('start', { epoch: 5, settings })
    expect(world.asked).toEqual([['leave']])
    expect(world.membership?.crew).toMatchObject({ self: '1.5', former: null })
  })

  it('takes this tab once it was left out of the own one, and has no life of it', async () => {
    await running(2)
    world.fail(leftOutError('peer.lost', 'the others continue'))
    await new Promise(setImmediate)
    world.hear('assign', joining)
    world.hear('start', { epoch: 5, settings })
    expect(world.membership?.crew).toMatchObject({ self: '1.5', former: null })
  })
})

it('says again that it is done where its connection was away when it said so, until another run begins', async () => {
  await running(2)
  world.lobby = { state: 'running', members: [{ id: '0', rank: 0 }] }
  world.finish()
  await new Promise(setImmediate)
  world.isInside = false
  world.hear('away', new PeerError('signal.lost', 'the connection ended'))
  await new Promise(setImmediate)
  expect(ends).toMatchObject([{ ok: true }])
  world.told = []
  world.isInside = true
  world.entered = async () => undefined
  world.removed = async () => undefined
  world.leftRooms = []
  world.hear('back', { isSame: true })
  expect(world.told).toEqual([['done', 1]])
  world.hear('assign', { ...assignment(5, 2), run: 5, key: other })
  world.hear('start', { epoch: 5, settings })
  world.told = []
  world.hear('back', { isSame: true })
  expect(world.told).toEqual([['ranks', other, 5, ['0', '1']]])
})

it('says again that it is out of a run that continues without it', async () => {
  await running(2)
  world.fail(leftOutError('peer.lost', 'the others continue'))
  await new Promise(setImmediate)
  world.hear('back', { isSame: true })
  expect(world.told).toEqual([
    ['out', key],
    ['out', key],
  ])
})

it('says nothing of a run that failed when its connection is back', async () => {
  await running(2)
  world.fail(new TabringError('gpu.lost', 'the device was lost'))
  await new Promise(setImmediate)
  world.told = []
  world.hear('back', { isSame: true })
  expect(world.told).toEqual([])
})

it('says again that it is done where its connection is back before the others are', async () => {
  await running(2)
  world.lobby = { state: 'running', members: [{ id: '0', rank: 0 }] }
  world.finish()
  await new Promise(setImmediate)
  world.hear('back', { isSame: true })
  expect(world.told).toEqual([
    ['done', 1],
    ['done', 1],
  ])
})

it('a newcomer prepares with the settings of the run, and leaves when it cannot', async () => {
  heard.length = 0
  await newMember(({ event }) => heard.push(event)).join({} as AdapterFacts)
  world.prepared = Promise.reject(new TabringError('data.missing', 'no data here'))
  world.hear('proposed', settings)
  world.hear('assign', { ...assignment(2, 2), rank: 1 })
  await new Promise(setImmediate)
  expect(world.asked).toEqual([['prepare', parseTrainConfig({})]])
  expect(heard).toEqual(['phase'])
  expect(world.told).toEqual([['abort', 2, 'no data here']])
})

it('a dead worker does not end an elastic run that has begun: its tab leaves', async () => {
  await running(2)
  await die()
  expect(world.told).toEqual([['bye']])
})

it('a worker that dies before it has joined an elastic run does not end it', async () => {
  await newMember().join({} as AdapterFacts)
  world.hear('assign', assignment(2, 2))
  await die()
  expect(world.told).toEqual([['bye']])
})

it.each([
  ['an elastic run that has not begun', assignment(1, 2)],
  ['a run that is not elastic', { ...assignment(1, 2), run: undefined, key: undefined }],
])('a dead worker ends %s, with the reason', async (_, assigned) => {
  await newMember().join({} as AdapterFacts)
  world.hear('assign', assigned)
  if (!assigned.run) world.hear('start', { epoch: 1, settings })
  await die()
  expect(world.told).toEqual([['abort', 1, 'crashed'], ['bye']])
})
