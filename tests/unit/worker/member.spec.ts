import { describe, expect, it, vi } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { LifeSigner } from '../../../src/peer/room/life-keys.ts'
import type { Abort, Assignment, MemberInfo } from '../../../src/peer/room/messages.ts'
import { leftOutError, SignalError } from '../../../src/peer/room/refusals.ts'
import { PeerError, RunError, TabringError } from '../../../src/util/errors.ts'
import type { AdapterFacts } from '../../../src/worker/api.ts'

const {
  assignment,
  ends,
  heard,
  key,
  newMember,
  other,
  reasons,
  regrouped,
  running,
  settings,
  world,
} = await vi.hoisted(() => import('../../support/played-member.ts'))

/** The compute worker ends. */
async function die(): Promise<void> {
  world.die(new TabringError('worker.dead', 'crashed'))
  await new Promise(setImmediate)
}

it('start works after one that was refused for its settings', () => {
  const member = newMember()
  expect(() => member.start({ exact: true, tune: true })).toThrow('tune: not available with exact')
  // It gets as far as the server, which this member has not joined; nor does that count as a start.
  for (let time = 0; time < 2; time++)
    expect(() => member.start({ exact: true })).toThrow('not joined yet')
})

it('start works after one that was refused because the server was lost', async () => {
  const refused: string[] = []
  const member = newMember({ on: { refused: ({ error }) => refused.push(error.message) } })
  await member.join({} as AdapterFacts)
  world.isInside = false
  member.start({})
  expect(refused).toEqual([expect.stringContaining('has lost the server')])
  world.isInside = true
  member.start({})
  expect(world.received).toEqual([['start', true]])
})

it.each([
  [64, {}, true],
  [2, { elastic: false }, false],
])('start of %i ranks with %o is elastic: %s', async (count, input, isElastic) => {
  const member = newMember()
  await member.join({} as AdapterFacts)
  world.lobby = { members: Array.from({ length: count }, () => ({})) }
  member.start(input)
  expect(world.received).toEqual([['start', isElastic]])
})

it('newcomers that are linked are admitted, by the lives that they begin', async () => {
  await running(2)
  world.hear('assign', { ...assignment(2, 3), joining: 1 })
  expect(world.asked).toEqual([])
  world.hear('start', { epoch: 2, settings })
  const newcomers = [{ rank: 2, id: '2.2', machine: '2' }]
  expect(world.asked).toEqual([['admit', { epoch: 2, newcomers }]])
})

it('the room hears in a run and at its end that this tab computes on something else, and only then', async () => {
  const member = await running(2)
  const [room] = world.infos.keys()
  const adapter = (threads: number) => ({ description: `${threads} threads` }) as AdapterFacts
  const begun = (threads: number) =>
    world.work({ event: 'devices', devices: [], adapter: adapter(threads), rank: 0 })
  begun(2)
  expect(world.infos.get(room)?.adapter).toEqual(adapter(2))
  world.infos.clear()
  begun(2)
  expect(world.infos.size).toBe(0)
  world.finish({ adapter: adapter(1) })
  await vi.waitFor(() => expect(world.infos.get(room)?.adapter).toEqual(adapter(1)))
  world.hear('finished', { epoch: 1 })
  await vi.waitFor(() => expect(ends).toHaveLength(1))
  await member.follow({ key: other })
  expect(world.infos.get(other)?.adapter).toEqual(adapter(1))
})

it('a new roster reaches the server, and the page with the names', async () => {
  await running(2)
  world.hear('assign', { ...assignment(2, 3), joining: 1 })
  world.hear('start', { epoch: 2, settings })
  world.work({ event: 'roster', ballot: 70_000, members: ['0.1', '2.2'], rank: 0 })
  expect(world.received).toEqual([['ranks', key, 70_000, ['0', '2']]])
  expect(regrouped).toMatchObject([
    { rank: 0, worldSize: 2, members: [{ name: 't0' }, { name: 't2' }], links: [{ peerRank: 1 }] },
  ])
})

it('a roster with a newcomer to which this tab has no link reaches the page with its name', async () => {
  await running(2)
  world.hear('assign', { ...assignment(2, 3), joining: 1, links: [] })
  world.hear('start', { epoch: 2, settings })
  world.work({ event: 'roster', ballot: 70_000, members: ['0.1', '1.1', '2.2'], rank: 0 })
  const names = [{ name: 't0' }, { name: 't1' }, { name: 't2' }]
  expect(regrouped).toMatchObject([{ members: names, links: [{ peerRank: 1 }] }])
  expect(regrouped[0]!.links).toHaveLength(1)
})

it('a member counts as dead when the server says that it has left, and is asked when its connection has ended', async () => {
  await running(3)
  const gone = { name: 't2', rank: 2, text: '', ballot: 7 }
  world.hear('gone', { ...gone, id: '2', hasLeft: false })
  expect(world.asked).toEqual([['doubt', '2']])
  world.hear('gone', { ...gone, id: '2', hasLeft: true })
  expect(world.asked[1]).toEqual(['memberIsDead', '2', 7])
})

it('a tab that the server names by the id of a rank takes only itself along when it closes', async () => {
  await running(2)
  const named = (epoch: number) => ({ ...assignment(epoch, 3), joining: 1 })
  const { members } = assignment(1, 3)
  members[2] = { ...members[1]! }
  world.hear('assign', { ...named(2), members })
  world.formed[1]!.onGone!(2)
  expect(world.asked).toEqual([['memberIsDead', '1.2']])
  // By an epoch that has been it would have the name of that rank in the run.
  for (const epoch of [1, 2]) world.hear('assign', { ...named(epoch), members })
  expect(world.formed).toHaveLength(2)
  world.formed[0]!.onGone!(1)
  expect(world.asked[1]).toEqual(['memberIsDead', '1.1'])
})

it.each([
  ['the host', '0', [['remove', '2']]],
  ['a tab that is not', '1', []],
])('a removal by %s: the worker receives it only on the host', async (_who, maker, asked) => {
  const member = await running(3)
  world.lobby = { maker }
  member.remove('2')
  expect(world.received.at(-1)).toEqual(['remove', '2'])
  expect(world.asked).toEqual(asked)
})

it('the host removes a member again that is in a later roster', async () => {
  const member = await running(3)
  world.lobby = { maker: '0' }
  member.remove('2')
  world.work({ event: 'roster', ballot: 70_000, members: ['2.1', '0.2'], rank: 1 })
  world.work({ event: 'roster', ballot: 70_001, members: ['0.2'], rank: 0 })
  expect(world.asked).toEqual([
    ['remove', '2'],
    ['remove', '2'],
  ])
})

it('a finished run sends its result to the room', async () => {
  await running(2)
  world.finish({ value: 0.9, seconds: 6 })
  await vi.waitFor(() => expect(world.received).toEqual([['done', 1, { value: 0.9, seconds: 6 }]]))
})

it('a tab that comes back after the others have finished hears that the run has ended', async () => {
  await running(2)
  vi.useFakeTimers()
  try {
    world.hear('finished', { epoch: 1 })
    await vi.advanceTimersByTimeAsync(1000)
    expect(world.asked).toEqual([])
    await vi.advanceTimersByTimeAsync(1000)
    expect(world.asked).toEqual([['abort', 'the run has ended without this tab.', true]])
  } finally {
    vi.useRealTimers()
  }
})

it('the event broke names the tab that broke the rules', async () => {
  const names: unknown[] = []
  const member = newMember({
    on: { event: ({ event }) => event.event === 'broke' && names.push(event.name) },
  })
  await member.join({} as AdapterFacts)
  world.hear('assign', assignment(1, 2))
  world.hear('start', { epoch: 1, settings })
  world.work({ event: 'broke', who: '1.1', what: 'called', rank: 0 })
  expect(names).toEqual(['t1'])
})

it('a rank that cannot decide is left out when the server knows that others train', async () => {
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

it('a rank that has lost its links to the first rank in the room gives up its place', async () => {
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
    expect(world.received.filter(([what]) => what === 'out')).toHaveLength(times)
    expect(world.received.filter(([what]) => what === 'abort')).toEqual([])
  },
)

it('asks the server which half came first, and answers at once when the server is away', async () => {
  await running(2)
  const lives = ['0.1', '1.1']
  world.work({ event: 'half', ballot: 1, alive: lives, lives: ['0.1'], rank: 0 })
  expect(world.received).toEqual([['half', key, 1, lives, ['0.1']]])
  for (const of of [other, key]) world.hear('half', { key: of, ballot: 1, first: ['0.1'] })
  expect(world.asked).toEqual([['firstHalf', 1, ['0.1']]])
  world.isInside = false
  world.work({ event: 'half', ballot: 1, alive: lives, lives: ['0.1'], rank: 0 })
  expect(world.asked[1]).toEqual(['firstHalf', 1, undefined])
})

it('a rank that the others continue without asks the server to come in again, as another life', async () => {
  await running(2)
  world.fail(leftOutError('peer.lost', 'the others continue'))
  await new Promise(setImmediate)
  expect(world.received).toEqual([['out', key]])
  world.hear('assign', { ...assignment(3, 2), joining: 1 })
  world.hear('start', { epoch: 3, settings })
  expect(world.membership?.elastic).toMatchObject({
    self: '0.3',
    ids: [null, '1.3'],
    former: { id: '0.1', entered: 1 },
  })
})

it('a rank signs with the key that the room has named: the name of its life has the hash', async () => {
  await newMember().join({} as AdapterFacts)
  const [{ keyHash }] = [...world.infos.values()] as [MemberInfo]
  const first = assignment(1, 2)
  const [own, ...others] = first.members
  world.hear('assign', { ...first, members: [{ ...own!, keyHash }, ...others] })
  world.hear('start', { epoch: 1, settings })
  const { self, key: run, keys } = world.membership!.elastic!
  expect(self).toBe(`0.1.${keyHash}`)
  const signed = await new LifeSigner(keys, run).sign('text')
  expect(await new LifeSigner(keys, key).verify(self, 'text', signed)).toBe(true)
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
  expect(world.membership?.elastic).toMatchObject({
    self: '0.5',
    former: { id: '0.1', entered: 1 },
  })
})

describe('a run of which the host removes a rank', () => {
  const removal: Abort = {
    epoch: 1,
    code: 'peer.removed',
    ranks: [1],
    text: 'as the server says',
  }
  const lost = new RunError('peer.lost', 'rank 0 lost rank 1: it left.', { ranks: [1] })

  it("ends with the server's reason, not the ranks'", async () => {
    await running(2)
    world.hear('abort', removal)
    expect(world.asked).toEqual([['abort', 'as the server says']])
    world.fail(lost)
    await new Promise(setImmediate)
    expect(ends).toMatchObject([
      { ok: false, error: { code: 'peer.removed', facts: { ranks: [1] } } },
    ])
  })

  it("gets the server's reason later when the ranks report first", async () => {
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

  it('ends with its own error when this tab has failed', async () => {
    await running(2)
    world.hear('abort', removal)
    world.fail(new TabringError('gpu.lost', 'the device was lost'))
    await new Promise(setImmediate)
    expect(ends).toMatchObject([{ ok: false, error: { code: 'gpu.lost' } }])
  })

  it('gets no message from the tab that was removed: its links end', async () => {
    await running(2)
    world.hear('lost', new SignalError('removed', 'removed by Ada', 'Ada'))
    expect(world.asked).toEqual([['abort', 'signaling: removed: removed by Ada', true]])
    expect(world.received).toEqual([])
  })
})

it('a newcomer that got the state too slowly asks to come in again a minute later', async () => {
  await running(2)
  vi.useFakeTimers({ toFake: ['setTimeout'] })
  try {
    world.fail(leftOutError('peer.timeout', 'the kept state: too slow'))
    await new Promise(setImmediate)
    vi.advanceTimersByTime(59_999)
    expect(world.received).toEqual([])
    vi.advanceTimersByTime(1)
    expect(world.received).toEqual([['out', key]])
  } finally {
    vi.useRealTimers()
  }
})

describe('another run of the same number', () => {
  /** Rank 1 of 3: a newcomer, as rank 2 is. */
  const joining: Assignment = { ...assignment(5, 3), key: other, rank: 1, joining: 2 }

  it("does not change the tab's own run, which ends before the tab joins the other", async () => {
    await running(2)
    world.hear('assign', joining)
    world.hear('start', { epoch: 5, settings })
    expect(world.asked).toEqual([['abort', 'Another run has started.', true]])
    expect(ends).toMatchObject([{ ok: false, error: { message: 'Another run has started.' } }])
    expect(world.membership).toMatchObject({ epoch: 5, rank: 1, joins: true })
    expect(world.membership?.elastic).toMatchObject({ self: '1.5', ids: [null, '1.5', '2.5'] })
  })

  it('takes this tab once its own run has ended well, as a member without a former life', async () => {
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
    expect(world.received).toEqual([['done', 1, undefined]])
    expect(ends).toMatchObject([{ ok: true, rank: 0, worldSize: 2 }])
    world.hear('assign', joining)
    world.hear('start', { epoch: 5, settings })
    expect(world.asked).toEqual([['leave']])
    expect(world.membership?.elastic).toMatchObject({ self: '1.5', former: null })
  })

  it('takes this tab once it was left out of the own one, and has no life of it', async () => {
    await running(2)
    world.fail(leftOutError('peer.lost', 'the others continue'))
    await new Promise(setImmediate)
    world.hear('assign', joining)
    world.hear('start', { epoch: 5, settings })
    expect(world.membership?.elastic).toMatchObject({ self: '1.5', former: null })
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
  world.received = []
  world.isInside = true
  world.hear('back', { isSame: true })
  expect(world.received).toEqual([['done', 1, undefined]])
  world.hear('assign', { ...assignment(5, 2), run: 5, key: other })
  world.hear('start', { epoch: 5, settings })
  world.received = []
  world.hear('back', { isSame: true })
  expect(world.received).toEqual([['ranks', other, 5, ['0', '1']]])
})

it('says again that it is out of a run that continues without it', async () => {
  await running(2)
  world.fail(leftOutError('peer.lost', 'the others continue'))
  await new Promise(setImmediate)
  world.hear('back', { isSame: true })
  expect(world.received).toEqual([
    ['out', key],
    ['out', key],
  ])
})

it('sends nothing about a run that failed when its connection is back', async () => {
  await running(2)
  world.fail(new TabringError('gpu.lost', 'the device was lost'))
  await new Promise(setImmediate)
  world.received = []
  world.hear('back', { isSame: true })
  expect(world.received).toEqual([])
})

it('says again that it is done where its connection is back before the others are', async () => {
  await running(2)
  world.lobby = { state: 'running', members: [{ id: '0', rank: 0 }] }
  world.finish()
  await new Promise(setImmediate)
  world.hear('back', { isSame: true })
  expect(world.received).toEqual([
    ['done', 1, undefined],
    ['done', 1, undefined],
  ])
})

it('a newcomer prepares with the settings of the run, and leaves when it cannot', async () => {
  heard.length = 0
  await newMember({ on: { event: ({ event }) => heard.push(event.event) } }).join(
    {} as AdapterFacts,
  )
  world.prepared = Promise.reject(new TabringError('data.missing', 'no data here'))
  world.hear('proposed', settings)
  world.hear('assign', { ...assignment(2, 2), rank: 1 })
  await new Promise(setImmediate)
  expect(world.asked).toEqual([['prepare', parseTrainConfig({})]])
  expect(heard).toEqual(['phase'])
  expect(world.received).toEqual([['abort', 2, 'no data here']])
})

it.each([
  ['has begun', 1, true],
  ['has not begun', 1, false],
  ['it has not joined yet', 2, false],
])(
  'a dead worker does not end an elastic run that %s: its tab leaves',
  async (_, epoch, begins) => {
    await newMember().join({} as AdapterFacts)
    world.hear('assign', assignment(epoch, 2))
    if (begins) world.hear('start', { epoch, settings })
    await die()
    expect(world.received).toEqual([['bye']])
  },
)

it('a dead worker ends a run that is not elastic, with the reason', async () => {
  await newMember().join({} as AdapterFacts)
  world.hear('assign', { ...assignment(1, 2), run: undefined, key: undefined })
  world.hear('start', { epoch: 1, settings })
  await die()
  expect(world.received).toEqual([['abort', 1, 'crashed'], ['bye']])
})

it('a run that is assigned again before it begins reports no end', async () => {
  const ranks: number[] = []
  const member = newMember({ on: { assigned: (event) => ranks.push(event.assignment.worldSize) } })
  ends.length = 0
  await member.join({} as AdapterFacts)
  world.hear('assign', assignment(1, 3))
  world.hear('assign', { ...assignment(2, 2), run: 2 })
  world.hear('start', { epoch: 2, settings })
  expect(world.membership).toMatchObject({ epoch: 2, worldSize: 2, joins: false })
  expect([ranks, ends]).toEqual([[3, 2], []])
})
