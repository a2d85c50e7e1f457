import { afterAll, beforeEach, expect, it, vi } from 'vitest'
import { experiments, parseTrainConfig } from '../../../demos/experiments.ts'
import type { Assignment } from '../../../src/peer/room/messages.ts'
import { newRoomLink } from '../../../src/peer/room/secret.ts'
import type { SignalClient, SignalEvents } from '../../../src/peer/tab/signal.ts'
import { TabringError } from '../../../src/util/errors.ts'
import type { AdapterFacts, ComputeApi, RunEvent } from '../../../src/worker/api.ts'
import type { ComputeClient } from '../../../src/worker/page/client.ts'
import type { FormLinksOptions, RingLinks } from '../../../src/worker/page/connect.ts'
import { RoomMember } from '../../../src/worker/page/member.ts'

/** A member whose server, links and worker are played by the test: `told` is what the server hears. */

interface World {
  told: unknown[][]
  /** Of the worker. */
  asked: unknown[][]
  prepared: Promise<void>
  hear: <K extends keyof SignalEvents>(event: K, value: SignalEvents[K]) => void
  work: (event: RunEvent) => void
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
      world.hear = (told, value) => {
        before(told, value)
        if ((told as string) === event) listener(value as never)
      }
      return () => undefined
    }
    open = async () => undefined
    linkDown = (...words: unknown[]) => world.told.push(['linkDown', ...words])
    abort = (...words: unknown[]) => world.told.push(['abort', ...words])
    bye = () => world.told.push(['bye'])
  },
}))

vi.mock('../../../src/worker/page/connect.ts', () => ({
  leaveOnPageHide: () => undefined,
  formLinks: ({ prepared }: FormLinksOptions): Partial<RingLinks> => ({
    connected: Promise.resolve(prepared),
    letGo: () => undefined,
    close: () => undefined,
  }),
}))

vi.mock('../../../src/worker/page/client.ts', () => ({
  startCompute: (): Partial<ComputeClient> => {
    const dead = new Promise<never>((_, reject) => {
      world.die = reject
    })
    const api: Partial<ComputeApi> = {
      train: (_membership, _config, _baseUrl, onEvents) => {
        world.work = (event) => onEvents([{ event, atMs: 0 }])
        return dead
      },
      prepare: async (...words) => {
        world.asked.push(['prepare', words[0]])
        words[2]('compile')
        await world.prepared
      },
      regroupSoon: async (...words) => void world.asked.push(['regroupSoon', ...words]),
      continueAs: async () => true,
      dropLinks: async () => undefined,
    }
    return { api: api as ComputeApi, dead }
  },
}))

beforeEach(() => {
  world.told = []
  world.asked = []
  world.prepared = Promise.resolve()
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

const newMember = (onEvent?: (event: RunEvent) => void) =>
  new RoomMember({
    experiments,
    startWorker: () => null as never,
    link: newRoomLink(),
    name: 'tab',
    transport: 'relay',
    mode: 'create',
    onEvent,
  })

/** Rank 0 of that world size, in an elastic run that began with epoch 1. */
const assignment = (epoch: number, worldSize: number): Assignment => ({
  epoch,
  run: 1,
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

/** A member in an elastic run that has begun. */
async function running(worldSize: number): Promise<void> {
  heard.length = 0
  await newMember(({ event }) => heard.push(event)).join({} as AdapterFacts)
  world.hear('assign', assignment(1, worldSize))
  world.hear('start', { epoch: 1, settings })
}

/** The compute worker ends. */
async function die(): Promise<void> {
  world.die(new TabringError('worker.dead', 'crashed'))
  await new Promise(setImmediate)
}

const lost = (text: string): RunEvent => ({ event: 'lost', text, rank: 0 })

it('start works after one that was refused for its settings', () => {
  const member = newMember()
  expect(() => member.start({ exact: true, tune: true })).toThrow('tune: not available with exact')
  // It gets as far as the server, which this member has not joined.
  expect(() => member.start({ exact: true })).toThrow('not joined yet')
})

it('a loss that the worker notices reaches the server, with the rank that it names', async () => {
  await running(3)
  world.work(lost('rank 2 (t2) is gone.'))
  expect(world.told).toEqual([['linkDown', 1, 2, 'rank 2 (t2) is gone.']])
})

it('a loss while another group forms reaches the server, unless the group is without that rank', async () => {
  await running(3)
  world.hear('assign', assignment(2, 2))
  world.work(lost('rank 2 (t2) is gone.'))
  expect(world.told).toEqual([])
  world.work(lost('rank 1 (t1) is gone.'))
  expect(world.told).toEqual([['linkDown', 1, 1, 'rank 1 (t1) is gone.']])
})

it('a loss in a group that another has followed is not told: its ranks are others', async () => {
  await running(3)
  world.hear('assign', assignment(2, 2))
  world.hear('start', { epoch: 2, settings })
  // The worker has not left the group before yet.
  world.work(lost('rank 1 (t1) is gone.'))
  expect(world.told).toEqual([])
  expect(heard).toEqual(['lost'])
  await new Promise(setImmediate)
  world.work(lost('rank 1 (t1) is gone.'))
  expect(world.told).toEqual([['linkDown', 2, 1, 'rank 1 (t1) is gone.']])
})

it('training stops at once for a lost rank, and not before newcomers are ready', async () => {
  await running(2)
  world.hear('assign', assignment(2, 3))
  expect(world.asked).toEqual([])
  world.hear('start', { epoch: 2, settings })
  expect(world.asked).toEqual([['regroupSoon', undefined]])
  await new Promise(setImmediate)
  world.hear('assign', assignment(3, 2))
  expect(world.asked[1]).toEqual(['regroupSoon', 'rank 2 (t2) is gone.'])
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

it('a rank without links has none to report', async () => {
  await running(1)
  world.work(lost('link lost'))
  expect(heard).toEqual(['lost'])
  expect(world.told).toEqual([])
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
  ['a run that is not elastic', { ...assignment(1, 2), run: undefined }],
])('a dead worker ends %s, with the reason', async (_, assigned) => {
  await newMember().join({} as AdapterFacts)
  world.hear('assign', assigned)
  if (!assigned.run) world.hear('start', { epoch: 1, settings })
  await die()
  expect(world.told).toEqual([['abort', 1, 'crashed'], ['bye']])
})
