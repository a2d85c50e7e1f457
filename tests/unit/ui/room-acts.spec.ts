import { describe, expect, it } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { limits } from '../../../src/peer/room/messages.ts'
import { SignalError } from '../../../src/peer/room/refusals.ts'
import { forgetKept, keptInTab } from '../../../src/ui/demo/kept.ts'
import { roundTrips } from '../../../src/ui/members/member-words.ts'
import { firstErrorOf } from '../../../src/ui/settings/check.ts'
import { settings } from '../../../src/ui/settings/list.ts'
import { canReset, lostByReset } from '../../../src/ui/state/reset-facts.ts'
import { checkedDraft, isMaker, settingsOfRoom } from '../../../src/ui/state/room-facts.ts'
import type { Failure } from '../../../src/ui/state/run.ts'
import { goneRanks } from '../../../src/ui/state/run-facts.ts'
import type { Snapshot } from '../../../src/ui/state/snapshot.ts'
import { troubleOf } from '../../../src/ui/state/trouble.ts'
import { waitOf } from '../../../src/ui/state/waiting-facts.ts'
import { remediesFor } from '../../../src/ui/status/remedies.ts'
import { statusOf } from '../../../src/ui/status/status.ts'
import { unreachedOf } from '../../../src/ui/status/unreached.ts'
import { infoOf } from '../../support/member-info.ts'
import {
  assigned,
  inside,
  lobbyApart,
  makeLobby,
  makeMember,
  makeResult,
  play,
  shownRunId,
  training,
} from '../../support/page-states.ts'
import { RendezvousWorld, roomA } from '../../support/rendezvous-world.ts'
import {
  checkDraft,
  defaultDraftOf,
  fittingBatch,
  queryOf,
  withSetting,
} from '../../support/ui-with-experiments.ts'

/** What the maker does with its room, and what the others see of it. */

const nameOf = (rank: number) => makeMember(rank).name

describe('the maker that is back', () => {
  const config = parseTrainConfig({
    demo: 'playground',
    data: 'moons',
    seed: 5,
    saves: 'auto',
    maxStepsPerSec: 60,
  })
  const lobbyOf = (order: readonly number[]) => {
    const members = order.map((index) => makeMember(index))
    return { ...makeLobby(0), maker: members[0].id, members }
  }

  it('takes over the proposed settings; the host of the meantime becomes a guest', () => {
    const back = play(
      inside(3, 2),
      { type: 'proposed', config },
      { type: 'lobby', lobby: lobbyOf([2, 0, 1]), ownId: makeMember(2).id },
    )
    expect(isMaker(back)).toBe(true)
    expect(queryOf(back.draft)).toBe('?demo=playground&data=moons&seed=5')
    // The server sends the one before the room's settings, and then who the maker is.
    const before = play(
      inside(3, 0),
      { type: 'proposed', config },
      { type: 'lobby', lobby: lobbyOf([2, 0, 1]), ownId: makeMember(0).id },
    )
    expect(isMaker(before)).toBe(false)
    expect(settingsOfRoom(before)).toBe(config)
    expect(statusOf(before).title).toBe(`Waiting for ${nameOf(2)} to start`)
  })
})

describe('a member that was removed', () => {
  it('learns who did it, and how to come back', () => {
    const trouble = troubleOf(new SignalError('removed', 'removed by Bob', 'Ada. Or Ben'))
    expect(trouble.kind).toBe('removed')
    expect(trouble.text).toBe('Ada. Or Ben, the host, removed this tab.')
    expect(trouble.remedies.join(' ')).toContain('rejoin')
  })

  it.each(['no-key', 'wrong-key'] as const)('%s: the page asks for the key', (refusal) => {
    const trouble = troubleOf(new SignalError(refusal, 'the server wants a key.'))
    expect(trouble.kind).toBe('key')
  })

  it('a room that the server has ended says why, and how to open it again', () => {
    const trouble = troubleOf(new SignalError('idle', 'this room had one member.'))
    expect(trouble).toMatchObject({
      kind: 'refused',
      title: 'The server has ended this room',
      remedies: ['Try again: the same link opens the room again.'],
    })
  })

  it('is named to the others of its run, as the server reports it', async () => {
    const world = new RendezvousWorld()
    const tabs = [0, 1, 2].map((rank) => `t${rank}`)
    for (const [rank, tab] of tabs.entries()) {
      if (rank === 0) world.create(tab, roomA, infoOf(nameOf(rank)))
      else world.join(tab, roomA, infoOf(nameOf(rank)))
    }
    await world.run(tabs)
    world.say('t0', { type: 'remove', id: world.last('t1', 'welcome').id })
    const { type: _, epoch, ...abort } = world.last('t2', 'abort')
    const lobby = makeLobby(3, 'failed')
    const members = lobby.members.filter((_, index) => index !== 1)
    const after = play(
      training(3, 20, 2),
      { type: 'failed', ...abort },
      { type: 'lobby', lobby: { ...lobby, members }, ownId: makeMember(2).id },
    )
    expect(statusOf(after)).toMatchObject({
      tone: 'idle',
      title: `Rank 1 (${nameOf(1)}) was removed`,
      text: `${nameOf(0)} removed it from the room, which ended the run at step 20. Waiting for ${nameOf(0)} to start again.`,
    })
  })
})

describe('a name or a text that imitates the server', () => {
  const forged = [
    [
      'the name of who left',
      'x) is gone: removed by Ada',
      (world: RendezvousWorld) => {
        world.say('t1', { type: 'bye' })
      },
    ],
    [
      'an abort',
      'Bob',
      (world: RendezvousWorld) => {
        const text =
          'rank 0 (x) is gone: removed by Ada. the run continues without this tab: not every rank had its links'
        world.say('t1', { type: 'abort', epoch: 1, text })
      },
    ],
    [
      'a link that is down',
      'Bob',
      (world: RendezvousWorld) => {
        world.say('t1', { type: 'linkDown', epoch: 1, peerRank: 0, text: 'removed by Ada' })
      },
    ],
  ] as const

  it.each(forged)(
    '%s: shown neither as a removal nor as a tab that is left out',
    async (_, name, happen) => {
      const world = new RendezvousWorld()
      const names = [nameOf(0), name, nameOf(2)]
      for (const [rank, one] of names.entries()) {
        if (rank === 0) world.create('t0', roomA, infoOf(one))
        else world.join(`t${rank}`, roomA, infoOf(one))
      }
      await world.run(['t0', 't1', 't2'])
      happen(world)
      const { type: _type, epoch, ...abort } = world.last('t2', 'abort')
      expect(abort.text).toContain('removed by Ada')
      const after = play(
        training(3, 20, 2),
        { type: 'failed', ...abort },
        { type: 'lobby', lobby: makeLobby(3, 'running'), ownId: makeMember(2).id },
      )
      expect(statusOf(after).title).not.toContain('was removed')
      expect(unreachedOf(after)).toBeNull()
      expect(waitOf(after)?.is).not.toBe('again')
      expect(goneRanks(after)).toEqual(abort.code === 'peer.lost' ? [...abort.ranks] : [])
    },
  )

  it('a refusal: the remover is the one that the server names, not one in the text', () => {
    const forgery = new SignalError('bad-message', 'removed by Ada', 'Ada')
    expect(troubleOf(forgery).kind).toBe('refused')
    expect(troubleOf(new SignalError('removed', 'removed by Ada', 'Bob')).text).toContain('Bob')
  })

  it('a removed member is shown as removed even when the ranks report first that it is lost', () => {
    const text = 'rank 2 lost rank 1: it left.'
    const lost = play(training(3, 20, 2), { type: 'failed', code: 'peer.lost', ranks: [1], text })
    expect(statusOf(lost).title).toBe(`Rank 1 (${nameOf(1)}) was lost`)
    const reason = { type: 'reason', code: 'peer.removed', ranks: [1], text: 'as told' } as const
    expect(statusOf(play(lost, reason)).title).toBe(`Rank 1 (${nameOf(1)}) was removed`)
    const own = play(training(3, 20, 2), { type: 'failed', code: 'gpu.lost', text: 'no device' })
    expect(play(own, reason).run!.end).toMatchObject({ code: 'gpu.lost' })
  })
})

describe('before the first run', () => {
  const titleOf = (snapshot: Snapshot) => statusOf(snapshot).title

  it('each row says how far its member is from its neighbours, by rank, or from the server', () => {
    const words = (count: number) =>
      roundTrips(makeLobby(count).members, false).map((facts) => facts.map(({ text }) => text))
    expect(words(3)).toEqual([
      ['0.64 ms to rank 1', '11.2 ms to rank 2'],
      ['0.64 ms to rank 0', '5.94 ms to rank 2'],
      ['5.94 ms to rank 1', '11.2 ms to rank 0'],
    ])
    expect(words(2)).toEqual([['0.64 ms to rank 1'], ['0.64 ms to rank 0']])
    expect(words(1)).toEqual([['0.41 ms to the server']])
    // What was measured to someone who is no neighbour now is of no meaning.
    const { members } = makeLobby(3)
    const changed = roundTrips([members[0], members[2], members[1]], false)
    expect(changed.flat().map(({ text }) => text)).toEqual([
      '0.41 ms to the server',
      '2.21 ms to the server',
      '1.31 ms to the server',
    ])
  })

  it('who cannot be reached is named, to the maker and to whom it concerns, with what to do', () => {
    const maker = lobbyApart(3, [0, 1])
    expect(statusOf(maker)).toMatchObject({ tone: 'bad', title: `${nameOf(1)} cannot be reached` })
    expect(unreachedOf(maker)!.without).toEqual([{ names: nameOf(1), ids: [makeMember(1).id] }])
    // Two ranks cannot have pipelines of 3.
    const piped = play(maker, { type: 'setting', key: 'parallel', value: 'pp=3' })
    expect(unreachedOf(piped)!.without).toEqual([])
    expect(unreachedOf(maker)!.detail).toBeNull()
    expect(roundTrips(maker.lobby!.members, false)[1]).toMatchObject([
      { text: `cannot reach ${nameOf(0)}`, isTrouble: true },
      { text: `cannot reach ${nameOf(2)}`, isTrouble: true },
    ])
    const itself = lobbyApart(3, [0, 1], 1)
    expect(titleOf(itself)).toBe(`${nameOf(0)} and ${nameOf(2)} cannot be reached`)
    expect(unreachedOf(itself)!.without).toEqual([])
    // Of four the maker sees that it is one, or that it is two of the others.
    expect(titleOf(lobbyApart(4, [1, 2]))).toBe(`${nameOf(2)} cannot be reached`)
    const pair = lobbyApart(4, [1])
    expect(titleOf(pair)).toBe(`${nameOf(1)} and ${nameOf(2)} cannot reach each other`)
    expect(unreachedOf(pair)!.without.map(({ names }) => names)).toEqual([nameOf(1), nameOf(2)])
    expect(titleOf(lobbyApart(4, [1], 2))).toBe(`${nameOf(1)} cannot be reached`)
    expect(titleOf(lobbyApart(4, [1], 3))).toBe(`Waiting for ${nameOf(0)} to start`)
  })

  it('the maker reads before a start what tabs that come later do', () => {
    const joins = 'Start once everyone is here. Anyone who opens the link later joins the run.'
    for (const size of [3, 64]) expect(statusOf(inside(size)).text).toBe(joins)
    const latest = { type: 'setting', key: 'resume', value: 'latest' } as const
    expect(statusOf(play(inside(3), latest)).text).toMatch(/under Checkpoints\.$/)
    const rigid = { type: 'setting', key: 'elastic', value: 'false' } as const
    expect(statusOf(play(inside(64), rigid)).text).toMatch(/later waits for the next run\.$/)
  })

  it('a broken link is no trouble when the server relays and both tabs ask for that', () => {
    const apart = lobbyApart(2, [0])
    const members = apart.lobby!.members.map((one) => ({
      ...one,
      transport: 'fallback' as const,
      hostTag: '',
    }))
    const lobby = { ...apart.lobby!, members }
    const relayed = { ...apart, lobby, hasRelay: true }
    expect(titleOf(relayed)).toBe('Ready with 2 ranks')
    expect(roundTrips(members, true)[0]).toMatchObject([{ text: `through the server to rank 1` }])
    expect(titleOf({ ...apart, lobby })).toBe(`${nameOf(1)} cannot be reached`)
  })
})

describe('a wrong setting', () => {
  it('stands where Start is, the first of the form, and goes when it is put right', () => {
    const ready = inside(3)
    expect(statusOf(ready).title).toBe('Ready with 3 ranks')
    const wrong = play(
      ready,
      { type: 'setting', key: 'batchSize', value: '2' },
      { type: 'setting', key: 'epochs', value: '0' },
    )
    expect(statusOf(wrong)).toMatchObject({ tone: 'bad', title: 'A setting is wrong' })
    const piped = (ranks: number) =>
      statusOf(play(inside(ranks), { type: 'setting', key: 'parallel', value: 'pp=4' }))
    expect(piped(1)).toMatchObject({
      tone: 'idle',
      title: 'Alone in the room',
      text: 'Open the link in more tabs to add ranks: pp=4 needs a multiple of 4 ranks, and there is one.',
    })
    expect(piped(3)).toMatchObject({ title: 'Waiting for more tabs' })
    const grid = play(inside(5), { type: 'setting', key: 'parallel', value: 'pp=2,dp=2' })
    expect(statusOf(grid)).toMatchObject({
      title: 'Too many tabs',
      text: 'Close or remove tabs: pp=2,dp=2 needs 4 ranks, and there are 5.',
    })
    expect(piped(4)).toMatchObject({ title: 'Ready with 4 ranks' })
    expect(firstErrorOf(checkedDraft(wrong))).toMatchObject({
      setting: { label: 'Epochs' },
      text: 'Enter 1 or more, not 0',
    })
    const half = play(wrong, { type: 'setting', key: 'epochs', value: '1' })
    expect(firstErrorOf(checkedDraft(half))!.setting.key).toBe('batchSize')
    expect(firstErrorOf(checkedDraft(ready))).toBeNull()
    // Those who cannot correct it do not see it.
    expect(statusOf({ ...inside(3, 1), draft: wrong.draft }).title).toContain('Waiting for')
  })

  it('a batch that is too small for the room is made as large as it has to be', () => {
    const text = withSetting(defaultDraftOf('text'), 'batchSize', '16')
    const fitted = fittingBatch(text, 30)
    expect(fitted).toBe('30')
    expect(firstErrorOf(checkDraft(withSetting(text, 'batchSize', fitted!), 30))).toBeNull()
    expect(fittingBatch(text, 16)).toBeNull()
    for (const wrong of ['', '0', '-3', '1.5', 'many'])
      expect(fittingBatch(withSetting(text, 'batchSize', wrong), 30), wrong).toBeNull()
  })
})

describe('a reset', () => {
  const playground = (from: Snapshot) =>
    play(
      from,
      { type: 'setting', key: 'demo', value: 'playground' },
      { type: 'setting', key: 'seed', value: '7' },
    )
  const finished = play(
    training(3, 540),
    { type: 'finished', result: makeResult(3), bytesSent: 1 },
    { type: 'lobby', lobby: makeLobby(3, 'finished'), ownId: makeMember(0).id },
  )
  const after = play(playground(finished), { type: 'refused', text: 'no' }, { type: 'reset' })

  it('is the page as after entering: defaults of the demo on show, no run, nothing in the chart', () => {
    expect(after.draft).toEqual(defaultDraftOf('playground'))
    expect(queryOf(after.draft)).toBe('?demo=playground')
    expect(after.run).toBeNull()
    expect(after.refusal).toBeNull()
    expect(statusOf(after).title).toBe('Ready with 3 ranks')
    expect(after.resets).toBe(1)
    // The run is in the table still, under the name and number that it had.
    expect(after.runs).toEqual(finished.runs.map((run) => ({ ...run, isShown: false })))
    expect(after.runs).toHaveLength(1)
  })

  it('keeps the links and ranks that the tab entered with', () => {
    const own = { ...inside(1), transport: 'webrtc', ranks: 3 } as const
    const { draft } = play(playground(own), { type: 'reset' })
    expect(settings.filter(({ key }) => draft[key] !== defaultDraftOf('playground')[key])).toEqual(
      settings.filter(({ key }) => key === 'transport' || key === 'ranks'),
    )
    expect([draft.transport, draft.ranks]).toEqual(['webrtc', '3'])
  })

  it('is for the maker, between runs, where there is something to reset', () => {
    expect(canReset(inside(3))).toBe(false)
    expect(canReset(after)).toBe(false)
    expect(canReset(finished)).toBe(true)
    expect(canReset(playground(inside(3)))).toBe(true)
    for (const not of [
      training(3, 5),
      { ...playground(finished), ownId: makeMember(1).id },
      play(finished, { type: 'serverLost', text: 'gone' }),
    ]) {
      expect(canReset(not)).toBe(false)
      expect(play(not, { type: 'reset' })).toEqual(not)
    }
  })

  it('asks only where something is lost for good', () => {
    expect(lostByReset(finished)).toBe('You will lose the trained model, which is not saved.')
    expect(lostByReset(playground(inside(3)))).toBeNull()
    expect(
      lostByReset(
        play(finished, { type: 'download', runId: shownRunId, download: { is: 'done' } }),
      ),
    ).toBeNull()
    const given = play(inside(3), { type: 'setting', key: 'data', value: 'given' })
    expect(lostByReset(given)).toBe('You will lose your own data.')
  })

  it('clears data that was given to any demo, after asking', () => {
    const given = play(
      inside(1),
      { type: 'given', demo: 'digits', text: null, samples: 600 },
      { type: 'setting', key: 'data', value: 'given' },
      { type: 'setting', key: 'demo', value: 'playground' },
      { type: 'setting', key: 'data', value: 'moons' },
    )
    expect(canReset(given)).toBe(true)
    expect(lostByReset(given)).toBe('You will lose your own data.')
    const after = play(
      given,
      { type: 'reset' },
      { type: 'setting', key: 'demo', value: 'digits' },
      { type: 'setting', key: 'data', value: 'given' },
    )
    expect(checkedDraft(after).errors.data).toMatch(/^No data yet/)
  })

  it('clears values that views keep', () => {
    const kept = keptInTab('none')
    kept.value = 'a picture'
    forgetKept()
    expect(kept.value).toBe('none')
  })
})

describe('a rank that cannot be reached', () => {
  const names = [0, 1, 2].map(nameOf)
  /** The room's word on it, and what this tab makes of it. */
  async function received(own: number, happen: (world: RendezvousWorld, epoch: number) => unknown) {
    const world = new RendezvousWorld()
    for (const [rank, name] of names.entries()) {
      if (rank === 0) world.create(`t${rank}`, roomA, infoOf(name))
      else world.join(`t${rank}`, roomA, infoOf(name))
    }
    await happen(world, world.assign(['t0', 't1', 't2']))
    const { type: _, epoch: _epoch, ...abort } = world.last(`t${own}`, 'abort')
    return ended(own, abort)
  }
  const ended = (own: number, failure: Failure) =>
    play(
      assigned(3, own),
      { type: 'failed', ...failure },
      { type: 'lobby', lobby: makeLobby(3, 'failed'), ownId: makeMember(own).id },
    )
  const noWayTo = (rank: number) => ({
    code: 'peer.unreachable',
    ranks: [rank],
    text: noWay(rank),
  })
  const noWay = (rank: number) =>
    `link to rank ${rank} (${names[rank]}): no connection: none of 3 addresses here reaches one of 2 there (ICE failed). A firewall or NAT may be between.`

  it('is named, with a cause in plain words, and the maker may start without it', () => {
    const snapshot = ended(0, noWayTo(2))
    expect(statusOf(snapshot)).toMatchObject({ title: `${names[2]} cannot be reached` })
    expect(statusOf(snapshot).text).toContain('a firewall or guest network')
    expect(unreachedOf(snapshot)!.without).toEqual([{ names: names[2], ids: [makeMember(2).id] }])
    expect(unreachedOf(snapshot)!.detail).toBe(noWay(2))
  })

  it('says what to do: one network, TURN, the relay', () => {
    const remedies = (part: Partial<Parameters<typeof remediesFor>[0]> = {}) =>
      remediesFor({ ...inside(3), maker: null, isOn: false, ...part }).join('\n')
    expect(remedies()).toContain('same network')
    expect(remedies()).toMatch(
      /TURN server: npm start -- --host --ice-servers .*docs\/reference\/launching/,
    )
    expect(remedies()).toContain('npm start -- --host --relay')
    expect(remedies({ hasRelay: true })).toContain('This server can relay the data')
    expect(remedies({ hasRelay: true })).not.toContain('--relay')
    expect(remedies({ transport: 'fallback' })).not.toContain('relay the data')
    expect(remedies()).toMatch(/Or start without the members/)
    expect(remedies({ maker: 'Ada' })).toMatch(/Or ask Ada to start without the members/)
    // Nobody can start now.
    expect(remedies({ isOn: true })).not.toMatch(/start without/)
  })

  it('by two others: both are named, and the maker chooses which to leave out', async () => {
    const pair = (own: number) =>
      received(own, (world, epoch) =>
        world.say('t1', { type: 'linkDown', epoch, peerRank: 2, text: noWay(2) }),
      )
    const maker = await pair(0)
    expect(statusOf(maker).title).toBe(`${names[1]} and ${names[2]} cannot reach each other`)
    expect(unreachedOf(maker)!.without.map((one) => one.names)).toEqual([names[1], names[2]])
    const guest = await pair(2)
    expect(statusOf(guest).title).toBe(`${names[1]} cannot be reached`)
    expect(unreachedOf(guest)!.without).toEqual([])
  })

  it('in time: all that were late are named', async () => {
    const late = await received(0, async (world, epoch) => {
      world.say('t0', { type: 'ready', epoch })
      await world.env.advance(limits.readyMs)
    })
    expect(statusOf(late).title).toBe(`${names[1]} and ${names[2]} did not connect in time`)
    expect(unreachedOf(late)!.without.map(({ ids }) => ids.length)).toEqual([2])
  })

  it('other ends name no rank: while training, by a stop, by a member that left', async () => {
    const trained = play(training(3, 5), {
      type: 'failed',
      ...noWayTo(2),
    })
    expect(unreachedOf(trained)).toBeNull()
    expect(unreachedOf(ended(0, { code: 'peer.aborted', text: 'stopped by Ada.' }))).toBeNull()
    const left = await received(0, (world) => world.say('t2', { type: 'bye' }))
    expect(unreachedOf(left)).toBeNull()
    expect(unreachedOf(inside(2))).toBeNull()
  })

  it('a member that has left meanwhile need not be removed', () => {
    const lobby = makeLobby(2, 'failed')
    const after = play(ended(0, noWayTo(2)), {
      type: 'lobby',
      lobby,
      ownId: makeMember(0).id,
    })
    expect(unreachedOf(after)!.without).toEqual([])
  })
})
