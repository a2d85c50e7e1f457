import { afterAll, beforeAll, expect, it, vi } from 'vitest'
import { type LinkMaker, linkMaker } from '../../../src/distributed/link/link-maker.ts'
import { makeLinks } from '../../../src/distributed/link/make-links.ts'
import type { Gathered } from '../../../src/distributed/rendezvous/gather-ranks.ts'
import type { PlannedLink } from '../../../src/distributed/rendezvous/plan-links.ts'
import { PortLink } from '../../../src/peer/link/port.ts'
import { HashStore } from '../../../src/peer/store/hash-store.ts'
import { PeerError } from '../../../src/util/errors.ts'
import { type RelayServer, startRelay } from '../../support/relay-server.ts'

// What two ranks do whose WebRTC connection comes about on both sides, on one or on none: node has no WebRTC, so a connection is a promise here.

let relay: RelayServer
beforeAll(async () => {
  relay = await startRelay()
  vi.stubGlobal('WebSocket', relay.WebSocket)
})
afterAll(async () => {
  vi.unstubAllGlobals()
  await relay.close()
})

const members = [0, 1].map((rank) => ({
  ...{ rank, id: `id${rank}`, name: `tab ${rank}`, pageTag: `${rank}` },
  ...{ hostTag: '', nodeTag: '', hasWebRtc: true, hasRelay: true },
}))
const blocked = new PeerError('peer.unreachable', 'link to rank 1: none of 2 addresses reaches one')

type Connect = LinkMaker['connect']
const fails: Connect = () => Promise.reject(blocked)
const hangs: Connect = () => new Promise(() => undefined)

async function link(connects: readonly Connect[], round: number) {
  const store = new HashStore()
  const disconnected: number[] = []
  const made = await Promise.all(
    connects.map((connect, rank) => {
      const gathered: Gathered = { round, rank, members }
      const planned: PlannedLink[] = [
        { peer: 1 - rank, way: 'webrtc', isInitiator: rank === 0, canRelay: true },
      ]
      const maker: LinkMaker = {
        ...linkMaker(),
        connect,
        disconnect: () => disconnected.push(rank),
      }
      const signal = undefined
      return makeLinks({
        ...{ store, gathered, planned, maker, rtc: undefined, signal },
        relay: relay.address,
      })
    }),
  )
  const links = made.map((one, rank) => one.links.get(1 - rank)!)
  const got = new Promise<Uint8Array>((resolve) => {
    links[1].onmessage = resolve
  })
  links[0].send(Uint8Array.of(7, round))
  expect(await got).toEqual(Uint8Array.of(7, round))
  for (const one of made) await one.settle()
  for (const one of links) one.close('the test is over')
  // The counters of the boxes alone.
  expect(await store.numKeys()).toBeLessThanOrEqual(2)
  return { kinds: links.map(({ kind }) => kind), disconnected: disconnected.sort() }
}

/** A connection that is up, by its two sides. */
function up(): Connect[] {
  const { port1, port2 } = new MessageChannel()
  return [port1, port2].map(
    (port): Connect =>
      async (_, onTransport) =>
        void (await onTransport({ kind: 'port', port }, 0)),
  )
}

it('up on both sides: it stays', async () => {
  expect(await link(up(), 1)).toEqual({ kinds: ['port', 'port'], disconnected: [] })
})

it.each([
  ['fails on both', fails, fails],
  ['fails on one, and the other would wait long', fails, hangs],
  ['the other way round', hangs, fails],
])('%s: both take the relay', async (_, first, second) => {
  expect(await link([first, second], 2)).toEqual({
    kinds: ['relay', 'relay'],
    disconnected: [0, 1],
  })
})

it('up on one side alone: that side gives it up', async () => {
  const { port1, port2 } = new MessageChannel()
  const end = new Promise((resolve) => {
    new PortLink(port2).onend = resolve
  })
  const isUp: Connect = async (_, onTransport) =>
    void (await onTransport({ kind: 'port', port: port1 }, 0))
  expect((await link([isUp, fails], 3)).kinds).toEqual(['relay', 'relay'])
  expect(await end).toMatchObject({ detail: 'the relay is used instead' })
})
