import { expect, it } from 'vitest'
import { type LinkMaker, linkMaker } from '../../../src/distributed/link/link-maker.ts'
import { makeLinks } from '../../../src/distributed/link/make-links.ts'
import type { Gathered } from '../../../src/distributed/rendezvous/gather-ranks.ts'
import { planLinks } from '../../../src/distributed/rendezvous/plan-links.ts'
import { HashStore } from '../../../src/peer/store/hash-store.ts'
import { PeerError } from '../../../src/util/errors.ts'

const size = 3
const members = Array.from({ length: size }, (_, rank) => ({
  ...{ rank, id: `id${rank}`, name: `tab ${rank}` },
  ...{ pageTag: 'page', hostTag: '', nodeTag: '', hasWebRtc: true, hasRelay: true },
}))

function makeAll(store: HashStore, makers: LinkMaker[], signals: AbortSignal[] = []) {
  return makers.map((maker, rank) => {
    const gathered: Gathered = { round: 0, rank, members }
    const planned = planLinks(members, rank, 'local', 'mesh')
    const made = makeLinks({
      ...{
        store,
        gathered,
        planned,
        maker,
        rtc: undefined,
        relay: undefined,
        signal: signals[rank],
      },
    })
    made.catch(() => undefined)
    return made
  })
}

/** Makes links as a page does, but for some that never come about. */
function maker(isStuck: boolean): LinkMaker {
  const real = linkMaker()
  return isStuck ? { ...real, openPort: () => new Promise(() => undefined) } : real
}

it('links that are up carry what is sent', async () => {
  const made = await Promise.all(
    makeAll(new HashStore(), [maker(false), maker(false), maker(false)]),
  )
  const got = new Promise<Uint8Array>((resolve) => {
    made[2].links.get(0)!.onmessage = resolve
  })
  made[0].links.get(2)!.send(Uint8Array.of(7, 8))
  expect(await got).toEqual(Uint8Array.of(7, 8))
  for (const { links, settle } of made) {
    await settle()
    for (const link of links.values()) link.close('the test is over')
  }
})

it('a rank that is aborted while its links are made ends all, and leaves no messages in the store', async () => {
  const store = new HashStore()
  const abort = new AbortController()
  const made = makeAll(
    store,
    [maker(false), maker(true), maker(false)],
    [new AbortController().signal, abort.signal, new AbortController().signal],
  )
  // The others have theirs: they wait for a word of the one.
  const others = [await made[0], await made[2]]
  abort.abort(new PeerError('peer.aborted', 'enough'))
  await expect(made[1]).rejects.toThrow('enough')
  for (const { failed, settle, links } of others) {
    await expect(failed).rejects.toThrow(/^rank 1 \(tab 1\) gave up: enough/)
    await settle()
    for (const link of links.values()) link.close('the test is over')
  }
  // The counters of the boxes alone.
  expect(await store.numKeys()).toBe(size)
})

it('a rank that was aborted before its links are made makes none, and ends all', async () => {
  const signal = AbortSignal.abort(new PeerError('peer.aborted', 'enough'))
  const going = new AbortController().signal
  const store = new HashStore()
  const made = makeAll(store, [maker(true), maker(false), maker(true)], [going, signal, going])
  await expect(made[1]).rejects.toThrow('enough')
  for (const other of [made[0], made[2]])
    await expect(other).rejects.toThrow(/^rank 1 \(tab 1\) gave up: enough/)
  const alone = makeLinks({
    gathered: { round: 0, rank: 0, members: members.slice(0, 1) },
    ...{ store: new HashStore(), planned: [], maker: linkMaker(), rtc: undefined, signal },
    relay: undefined,
  })
  await expect(alone).rejects.toThrow('enough')
})

it('a store that fails ends the making', async () => {
  const store = new HashStore()
  const [made] = makeAll(store, [maker(true)])
  store.close()
  await expect(made).rejects.toMatchObject({ code: 'peer.lost' })
})
