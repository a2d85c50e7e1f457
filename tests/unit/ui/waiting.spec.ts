import { describe, expect, it } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { limits, type MemberInfo } from '../../../src/peer/room/messages.ts'
import type { Action, Snapshot } from '../../../src/ui/state/snapshot.ts'
import { waitOf } from '../../../src/ui/state/waiting-facts.ts'
import { statusOf } from '../../../src/ui/status/status.ts'
import type { EndFacts } from '../../../src/util/errors.ts'
import { infoOf } from '../../support/member-info.ts'
import { makeSnapshot, play } from '../../support/page-states.ts'
import { RendezvousWorld, roomA } from '../../support/rendezvous-world.ts'

/** A tab in a room whose run is on without it, by the server's messages. */

const config = parseTrainConfig({ epochs: 3 })

/** A room with a run of t0, t1, ..., and the page of a tab that has come later. */
class LateTab {
  readonly world = new RendezvousWorld()
  #page: Snapshot = makeSnapshot()
  #ids: string[] = []

  static async of(size: number, { isElastic = true, own = {} as Partial<MemberInfo> } = {}) {
    const tab = new LateTab()
    await tab.start(size, isElastic)
    tab.world.join('late', roomA, infoOf('late', own))
    await tab.see({ type: 'proposed', config }, { type: 'entered', hasRelay: false })
    return tab
  }

  async start(size: number, isElastic: boolean) {
    const { world } = this
    this.#ids = await world.fill(size)
    world.say('t0', { type: 'start', settings: { steps: 3 }, isElastic })
    this.ready(...this.#ids)
    await world.tick()
  }

  ready(...ids: string[]) {
    const { world } = this
    for (const id of ids) world.say(id, { type: 'ready', epoch: world.last(id, 'assign').epoch })
  }

  /** The room as it is now, after what has happened to the page. */
  async see(...actions: Action[]) {
    await this.world.tick()
    const { type: _, ...lobby } = this.world.last('late', 'lobby')
    const ownId = this.world.last('late', 'welcome').id
    this.#page = play(this.#page, ...actions, { type: 'lobby', lobby, ownId })
    return this.#page
  }

  /** It is linked to the ranks, until that fails. */
  async link() {
    await this.world.env.advance(limits.joinMs)
    const { type: _, ...assignment } = this.world.last('late', 'assign')
    await this.see({ type: 'assigned', assignment, startedAtMs: 0 })
    return assignment
  }

  /** The server ends its part in the newest linking, in these words. */
  dropped() {
    const { type: _, epoch, ...abort } = this.world.last('late', 'abort')
    return this.see({ type: 'failed', ...abort })
  }
  failed = (code: string, text: string, facts: EndFacts = {}) =>
    this.see({ type: 'failed', code, text, ...facts })

  get wait() {
    return waitOf(this.#page)?.is
  }
  get text() {
    return statusOf(this.#page).text
  }
}

describe('a tab that comes during a run', () => {
  it('says that it joins when the run is elastic and has room', async () => {
    const tab = await LateTab.of(2)
    expect(tab.wait).toBe('soon')
    expect(tab.text).toBe('This tab joins it, usually within seconds.')
  })

  it('says that the run takes no more tabs, and when it ends, when the run is not elastic', async () => {
    const tab = await LateTab.of(2, { isElastic: false })
    expect(tab.wait).toBe('closed')
    expect(tab.text).toBe(
      'This run takes no more tabs. It ends after 3 epochs. This tab gets a rank when t0 starts the next run.',
    )
    const steps = await tab.see({ type: 'proposed', config: parseTrainConfig({ steps: 90 }) })
    expect(statusOf(steps).text).toContain(' It ends at step 90. ')
    await tab.see({ type: 'proposed', config: null })
    expect(tab.text).toMatch(/^This run takes no more tabs\. This tab gets/)
  })

  it('says that its links are others when the ranks ask for other transports', async () => {
    const tab = await LateTab.of(2, { own: { transport: 'port' } })
    await tab.world.env.advance(10 * limits.joinMs)
    expect(tab.world.all('late', 'assign')).toEqual([])
    expect(tab.wait).toBe('apart')
    expect(tab.text).toContain('Choose “automatic” under More settings')
    const relayed = await LateTab.of(2, { own: { transport: 'relay' } })
    expect(relayed.wait).toBe('apart')
  })

  it('goes by the settings when the ranks are still being linked', async () => {
    const tab = new LateTab()
    await tab.world.fill(2)
    tab.world.say('t0', { type: 'start', settings: { steps: 3 }, isElastic: true })
    tab.world.join('late')
    await tab.see({ type: 'proposed', config }, { type: 'entered', hasRelay: false })
    expect(tab.wait).toBe('soon')
    await tab.see({ type: 'proposed', config: parseTrainConfig({ elastic: false }) })
    expect(tab.wait).toBe('closed')
  })
})

describe('a tab that could not join', () => {
  it('names whom it cannot reach and when to reload when a rank has lost the link to it', async () => {
    const tab = await LateTab.of(2)
    const { epoch } = await tab.link()
    const text = 'link to rank 2 (late): no connection: ICE failed.'
    tab.world.say('t1', { type: 'linkDown', epoch, peerRank: 2, text })
    const page = await tab.dropped()
    expect(tab.wait).toBe('barred')
    expect(statusOf(page)).toMatchObject({ tone: 'bad', title: 't1 cannot be reached' })
    expect(tab.text).toMatch(
      /different networks.* The run continues without this tab\. Reload this tab once it can reach t1, or after t1 left\.$/,
    )
  })

  it('says when to reload where another newcomer cannot be reached, and joins then', async () => {
    const tab = new LateTab()
    await tab.start(2, true)
    const { world } = tab
    const text = 'no connection: ICE failed.'
    /** Once newcomers have their links, but for the one between `first` and `name`. */
    const fail = (name: string) => {
      const { epoch } = world.last(name, 'assign')
      const peerRank = world.last(name, 'assign').members.findIndex((one) => one.name === 'first')
      world.say(name, { type: 'linkDown', epoch, peerRank, text })
      tab.ready('t0', 't1', 'first')
    }
    world.join('first', roomA, infoOf('first'))
    world.join('late', roomA, infoOf('late'))
    await tab.see({ type: 'proposed', config }, { type: 'entered', hasRelay: false })
    await tab.link()
    fail('late')
    await tab.dropped()
    expect(world.all('first', 'start')).toHaveLength(1)
    expect(tab.wait).toBe('barred')
    expect(tab.text).toMatch(/Reload this tab once it can reach first, or after first left\.$/)
    // A reload before that is in vain, and after that it is not.
    world.say('late', { type: 'bye' })
    world.join('early', roomA, infoOf('early'))
    await world.env.advance(limits.joinMs)
    fail('early')
    expect(world.last('early', 'abort').text).toContain('first')
    for (const name of ['early', 'first']) world.say(name, { type: 'bye' })
    world.join('then', roomA, infoOf('then'))
    await world.env.advance(limits.joinMs)
    tab.ready('t0', 't1', 'then')
    expect(world.all('then', 'start')).toHaveLength(1)
  })

  it('names whom it cannot reach when it has found that itself, while it compiles', async () => {
    const tab = await LateTab.of(2)
    await tab.link()
    const phase = { event: 'phase', phase: 'compile', rank: 2 } as const
    await tab.see({ type: 'event', event: phase, atMs: 0 })
    const text = 'link to rank 0 (t0): no connection: ICE failed.'
    const page = await tab.failed('peer.unreachable', text, { ranks: [0] })
    expect(tab.wait).toBe('barred')
    expect(statusOf(page).title).toBe('t0 cannot be reached')
  })

  it('shows its own error when that has kept it out', async () => {
    const tab = await LateTab.of(2)
    await tab.link()
    const page = await tab.failed('data.missing', 'data: train-images was not found.')
    expect(statusOf(page)).toEqual({
      tone: 'bad',
      title: 'This tab could not join',
      text: 'The run continues without this tab. Reload this tab to try again.',
      more: { summary: 'Error details', text: 'Data: train-images was not found.' },
    })
  })

  it('says whom it cannot reach when the run has ended, and may take part in the next', async () => {
    const tab = await LateTab.of(2)
    const { epoch } = await tab.link()
    tab.world.say('t1', { type: 'linkDown', epoch, peerRank: 2, text: 'no connection' })
    await tab.dropped()
    for (const id of ['t0', 't1']) tab.world.say(id, { type: 'done', epoch: 1 })
    const over = await tab.see()
    expect(tab.wait).toBeUndefined()
    expect(statusOf(over).title).toBe('t1 cannot be reached')
    const next = play(over, {
      type: 'lobby',
      lobby: { ...over.lobby!, state: 'running', ballot: 9, epoch: 9 },
      ownId: over.ownId,
    })
    expect(waitOf(next)).toEqual({ is: 'soon' })
  })
})

describe('a tab that was left out', () => {
  it('says that it joins again when its links were late', async () => {
    const tab = await LateTab.of(2)
    await tab.link()
    tab.ready('t0', 't1')
    await tab.world.env.advance(limits.prepareMs)
    const page = await tab.dropped()
    expect(tab.wait).toBe('again')
    expect(statusOf(page).title).toBe('Left out of the run')
    expect(tab.text).toContain('It joins again soon.')
  })

  it('says that it joins again when the others have gone on without it', async () => {
    const tab = await LateTab.of(2)
    const assignment = await tab.link()
    tab.ready('t0', 't1', 'late')
    await tab.see()
    expect(tab.wait).toBeUndefined()
    tab.world.say('late', { type: 'out', key: assignment.key! })
    const page = await tab.failed('peer.lost', 'it has lost a link.', { leftOut: 'again' })
    expect(tab.wait).toBe('again')
    expect(statusOf(page).more!.text).toContain('it has lost a link')
    const waits = { who: 'late', why: 'its connection carried nothing for 9 s.' }
    const known = { ...page, run: { ...page.run!, waits } }
    expect(statusOf(known).text).toMatch(
      /^This tab waits: its connection carried nothing for 9 s\. /,
    )
    const again = play(known, { type: 'assigned', assignment, startedAtMs: 1 })
    expect(statusOf(again)).toMatchObject({
      title: 'Waiting',
      text: `This tab waits: ${waits.why}`,
    })
  })

  it('says that it was evicted, and does not join again, when its values were not finite', async () => {
    const tab = await LateTab.of(2)
    const { key, members } = await tab.link()
    tab.ready('t0', 't1', 'late')
    await tab.see()
    const ids = members.slice(0, 2).map(({ id }) => id)
    for (const name of ['t0', 't1'])
      tab.world.say(name, { type: 'ranks', key: key!, ballot: 99, ids })
    const page = await tab.failed('train.nan', 'step 3: its values.', { leftOut: 'barred' })
    expect(tab.wait).toBe('barred')
    expect(statusOf(page).title).toBe('This tab was put out of the run')
  })
})
