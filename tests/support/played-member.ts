import { afterAll, beforeEach, vi } from 'vitest'
import { experiments, parseTrainConfig } from '../../demos/experiments.ts'
import type { Assignment, Lobby, MemberInfo } from '../../src/peer/room/messages.ts'
import { newRoomLink } from '../../src/peer/room/secret.ts'
import type { SignalClient, SignalEvents, SignalOptions } from '../../src/peer/tab/signal.ts'
import type {
  AdapterFacts,
  ComputeApi,
  Membership,
  RunEvent,
  RunResult,
} from '../../src/worker/api.ts'
import type { ComputeClient } from '../../src/worker/page/client.ts'
import type { FormLinksOptions, RingLinks } from '../../src/worker/page/connect.ts'
import { RoomMember, type RoomMemberOptions } from '../../src/worker/page/member.ts'
import type { MemberEvent, RunEnd } from '../../src/worker/page/member-events.ts'

/**
 * A member whose server, links and worker are played by the test: `received` is what the server hears.
 *
 * A spec imports this before all else, by `vi.hoisted`, so that it shares the classes of errors with the member. The hooks below run for it.
 */

interface World {
  received: unknown[][]
  /** Of the worker. */
  asked: unknown[][]
  /** The links that form, or have formed. */
  formed: FormLinksOptions[]
  prepared: Promise<void>
  linked: Promise<void>
  /** `room`: in that one alone, by its key. */
  hear: <K extends keyof SignalEvents>(event: K, value: SignalEvents[K], room?: string) => void
  work: (event: RunEvent) => void
  /** The worker's run ends. */
  fail: (error: Error) => void
  finish: (result?: Partial<RunResult>) => void
  membership: Membership | undefined
  lobby: unknown
  isInside: boolean
  /** Whether a room lets this tab in, by its key. */
  entered: (room: string) => Promise<void>
  removed: () => Promise<void>
  /** By their keys, in order. */
  leftRooms: string[]
  /** What a room knows of this tab, by its key. */
  infos: Map<string, MemberInfo>
  die: (error: Error) => void
}

const world = vi.hoisted(() => {
  vi.resetModules() // specs before this one may have loaded what is mocked here
  return {} as World
})

vi.mock('../../src/peer/tab/signal.ts', () => ({
  signalUrl: () => 'ws://test',
  SignalClient: class implements Partial<SignalClient> {
    on: SignalClient['on'] = (event, listener) => {
      const before = world.hear
      let isOn = true
      world.hear = (received, value, room) => {
        before(received, value, room)
        const isHere = room === undefined || room === this.#room
        if (isOn && isHere && (received as string) === event) listener(value as never)
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
    constructor({ loadRuns, link, info }: SignalOptions) {
      this.#room = 'key' in link ? link.key : ''
      world.infos.set(this.#room, info)
      this.open = async () => {
        await loadRuns?.()
        await world.entered(this.#room)
      }
    }
    open: () => Promise<void>
    ranks = (...words: unknown[]) => world.received.push(['ranks', ...words])
    out = (...words: unknown[]) => world.received.push(['out', ...words])
    half = (...words: unknown[]) => world.received.push(['half', ...words])
    linkDown = (...words: unknown[]) => world.received.push(['linkDown', ...words])
    abort = (...words: unknown[]) => world.received.push(['abort', ...words])
    start = (_settings: unknown, ...words: unknown[]) => world.received.push(['start', ...words])
    done = (...words: unknown[]) => world.received.push(['done', ...words])
    get isMaker() {
      return this.lobby?.maker === this.id
    }
    remove = (...words: unknown[]) => world.received.push(['remove', ...words])
    bye = () => {
      world.received.push(['bye'])
      world.leftRooms.push(this.#room)
    }
    update = (info: MemberInfo) => void world.infos.set(this.#room, info)
    roundTrip = async () => 1
    removeAndTell = async (...words: unknown[]) => {
      world.received.push(['removeAndTell', ...words])
      await world.removed()
    }
  },
}))

vi.mock('../../src/worker/page/leave-on-page-hide.ts', () => ({
  leaveOnPageHide: () => undefined,
}))

vi.mock('../../src/worker/page/connect.ts', () => ({
  formLinks: (options: FormLinksOptions): Partial<RingLinks> => {
    world.formed.push(options)
    return {
      connected: Promise.all([options.prepared, world.linked]).then(() => undefined),
      stats: async () => [],
      close: () => undefined,
    }
  },
}))

vi.mock('../../src/worker/page/client.ts', () => ({
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
          world.finish = (result = {}) => resolve(result as RunResult)
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
      remove: async (...words) => void world.asked.push(['remove', ...words]),
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
  world.received = []
  world.asked = []
  world.formed = []
  world.prepared = Promise.resolve()
  world.linked = Promise.resolve()
  world.lobby = null
  world.isInside = true
  world.entered = async () => undefined
  world.removed = async () => undefined
  world.leftRooms = []
  world.infos = new Map()
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

/** What hears each kind of event. */
export type Listeners = {
  [Type in MemberEvent['type']]?: (event: Extract<MemberEvent, { type: Type }>) => void
}

export interface PlayedOptions extends Partial<Omit<RoomMemberOptions, 'on'>> {
  readonly on?: Listeners
}

export const newMember = ({ on, ...options }: PlayedOptions = {}) => {
  const listeners: Listeners = {
    regrouped: ({ assignment }) => regrouped.push(assignment),
    ended: ({ end }) => ends.push(end),
    reason: ({ error }) => reasons.push(error),
    ...on,
  }
  return new RoomMember({
    experiments,
    startWorker: () => null as never,
    link: newRoomLink(),
    name: 'tab',
    transport: 'relay',
    mode: 'create',
    on: (event) => (listeners[event.type] as ((event: MemberEvent) => void) | undefined)?.(event),
    ...options,
  })
}

export const key = '9'.repeat(16)
export const other = '8'.repeat(16)

/** Rank 0 of that world size, in an elastic run that began with epoch 1. */
export const assignment = (epoch: number, worldSize: number): Assignment => ({
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

export const settings = JSON.parse(JSON.stringify(parseTrainConfig({})))
export const heard: string[] = []
export const regrouped: Assignment[] = []
export const ends: RunEnd[] = []
export const reasons: Error[] = []

/** A member in an elastic run that has begun. */
export async function running(worldSize: number): Promise<RoomMember> {
  heard.length = 0
  regrouped.length = 0
  ends.length = 0
  reasons.length = 0
  const member = newMember({ on: { event: ({ event }) => heard.push(event.event) } })
  await member.join({} as AdapterFacts)
  world.hear('assign', assignment(1, worldSize))
  world.hear('start', { epoch: 1, settings })
  return member
}

export { world }
