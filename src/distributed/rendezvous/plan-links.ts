import { edgesBySize, meshEdges, ringEdges } from '../../peer/room/edges.ts'
import type { LinkPlan, LinkWay } from '../../peer/tab/forming-link.ts'
import { PeerError } from '../../util/errors.ts'

/** How ranks may be linked; `auto` takes the shortest way that each pair has. */
export const backends = ['auto', 'webrtc', 'broadcast', 'local', 'relay'] as const
/** How ranks may be linked; `auto` chooses the shortest path for each pair. */
export type Backend = (typeof backends)[number]

/** Who is linked to whom: all to all, each to the next, or by the number of ranks. */
export const topologies = ['auto', 'mesh', 'ring'] as const
/** Which ranks are linked: every pair, each to the next, or by the number of ranks. */
export type Topology = (typeof topologies)[number]

/** True if `auto` may send data through the signaling server where no other way leads. */
export const relayChoices = ['off', 'fallback'] as const
/** True if `auto` may send data through the signaling server if there is no other path. */
export type RelayChoice = (typeof relayChoices)[number]

/** Where a rank is, as far as the others need to know. */
export interface Place {
  /** Equal for ranks of one page, and its workers that were lent it. */
  pageTag: string
  /** Equal for tabs that reach each other by ports; empty for those that reach none. */
  hostTag: string
  /** Equal for what one launcher opened on its machine; empty without a launcher. */
  nodeTag: string
  hasWebRtc: boolean
  /** True if the rendezvous was at a signaling server that relays, and this rank has WebSockets. */
  hasRelay: boolean
  /** For error texts. */
  name: string
}

export interface PlannedLink extends LinkPlan {
  readonly peer: number
}

/** By rank: which machine it is on, numbered as they come. Without a launcher a browser counts as one, and else a page. */
export function machinesOf(places: readonly Place[]): number[] {
  const tags = places.map(({ pageTag, hostTag, nodeTag }) =>
    nodeTag ? `node ${nodeTag}` : hostTag ? `browser ${hostTag}` : `page ${pageTag}`,
  )
  const known = [...new Set(tags)]
  return tags.map((tag) => known.indexOf(tag))
}

/** A rank's links, in the order of `edges`. errors: `peer.unreachable`, naming two ranks that the backend cannot join, the same on all ranks. */
export function planLinks(
  places: readonly Place[],
  rank: number,
  backend: Backend,
  topology: Topology,
  relay: RelayChoice = 'off',
): PlannedLink[] {
  const edges = edgesOf[topology](places.length).map(([from, to]) => ({
    from,
    to,
    ...wayBetween(places, from, to, backend, relay),
  }))
  return edges
    .filter(({ from, to }) => from === rank || to === rank)
    .map(({ from, to, way, canRelay }) => ({
      peer: from === rank ? to : from,
      way,
      canRelay,
      isInitiator: from === rank,
    }))
}

const edgesOf = { auto: edgesBySize, mesh: meshEdges, ring: ringEdges } satisfies Record<
  Topology,
  (size: number) => [number, number][]
>

type Way = Pick<PlannedLink, 'way' | 'canRelay'>

function wayBetween(
  places: readonly Place[],
  from: number,
  to: number,
  backend: Backend,
  relay: RelayChoice,
): Way {
  const [a, b] = [places[from], places[to]]
  const isSamePage = a.pageTag === b.pageTag
  const isSameBrowser = a.hostTag !== '' && a.hostTag === b.hostTag
  const hasWebRtc = a.hasWebRtc && b.hasWebRtc
  const hasRelay = a.hasRelay && b.hasRelay
  const canRelay = hasRelay && backend === 'auto' && relay === 'fallback'
  const by = (way: LinkWay): Way => ({ way, canRelay: way === 'webrtc' && canRelay })
  const who = `rank ${from} (${a.name}) and rank ${to} (${b.name})`
  const fail = (problem: string, remedy: string): never => {
    throw new PeerError('peer.unreachable', `initProcessGroup: ${who} ${problem}. ${remedy}`)
  }
  switch (backend) {
    case 'local':
      if (isSamePage) return by('local')
      return fail(
        'do not share a page, which backend "local" needs',
        'Pass the workers of a page a port of lendPage(), or use another backend.',
      )
    case 'broadcast':
      if (isSamePage) return by('local')
      if (isSameBrowser) return by('port')
      return fail(
        'do not share a browser, which backend "broadcast" needs',
        'Use backend "webrtc" or "auto".',
      )
    case 'webrtc':
      if (hasWebRtc) return by('webrtc')
      return fail('do not both have WebRTC', withoutWebRtc)
    case 'relay':
      if (hasRelay) return by('relay')
      return fail(
        'have no relay in common, which backend "relay" needs',
        'Start the server with --relay.',
      )
    case 'auto':
      if (isSamePage) return by('local')
      if (isSameBrowser) return by('port')
      if (hasWebRtc) return by('webrtc')
      if (canRelay) return by('relay')
      return fail('neither share a browser nor both have WebRTC', withoutWebRtc)
  }
}

const withoutWebRtc =
  'Workers have no WebRTC: pass them the option page, a port that lendPage() returns on their page. In Node, or if a network blocks WebRTC, use relay: "fallback" and a signaling server with --relay.'
