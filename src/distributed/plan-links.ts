import { ringEdges } from '../peer/topology.ts'
import { PeerError } from '../util/errors.ts'

/** How ranks may be linked; `auto` takes the shortest way that each pair has. */
export const backends = ['auto', 'webrtc', 'broadcast', 'local'] as const
export type Backend = (typeof backends)[number]

/** Who is linked to whom: all to all, each to the next, or by the number of ranks. */
export const topologies = ['auto', 'mesh', 'ring'] as const
export type Topology = (typeof topologies)[number]

/** The most ranks of which `auto` links all to all. */
export const meshLimit = 16

/** Where a rank is, as far as the others need to know. */
export interface Place {
  /** Equal for ranks of one page, and its workers that were lent it. */
  pageTag: string
  /** Equal for tabs that reach each other by ports; empty for those that reach none. */
  hostTag: string
  /** Equal for what one launcher opened on its machine; empty without a launcher. */
  nodeTag: string
  hasWebRtc: boolean
  /** For error texts. */
  name: string
}

export type LinkWay = 'local' | 'port' | 'webrtc'

export interface PlannedLink {
  peer: number
  way: LinkWay
  /** This side makes the offers; exactly one of the two does. */
  isInitiator: boolean
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
): PlannedLink[] {
  const edges = edgesOf(places.length, topology).map(([from, to]) => ({
    from,
    to,
    way: wayBetween(places, from, to, backend),
  }))
  return edges
    .filter(({ from, to }) => from === rank || to === rank)
    .map(({ from, to, way }) => ({
      peer: from === rank ? to : from,
      way,
      isInitiator: from === rank,
    }))
}

function edgesOf(size: number, topology: Topology): [number, number][] {
  if (topology === 'ring' || (topology === 'auto' && size > meshLimit)) return ringEdges(size)
  const ranks = Array.from({ length: size }, (_, rank) => rank)
  return ranks.flatMap((from) => ranks.slice(from + 1).map((to): [number, number] => [from, to]))
}

function wayBetween(places: readonly Place[], from: number, to: number, backend: Backend): LinkWay {
  const [a, b] = [places[from], places[to]]
  const isSamePage = a.pageTag === b.pageTag
  const isSameBrowser = a.hostTag !== '' && a.hostTag === b.hostTag
  const hasWebRtc = a.hasWebRtc && b.hasWebRtc
  const who = `rank ${from} (${a.name}) and rank ${to} (${b.name})`
  const fail = (expected: string, remedy: string): never => {
    throw new PeerError(
      'peer.unreachable',
      `initProcessGroup: expected ${who} ${expected}, got ranks that do not. ${remedy}`,
    )
  }
  switch (backend) {
    case 'local':
      if (isSamePage) return 'local'
      return fail(
        'to share a page for the backend "local"',
        'Give the workers of a page lendPage(), or take another backend.',
      )
    case 'broadcast':
      if (isSamePage) return 'local'
      if (isSameBrowser) return 'port'
      return fail(
        'to share a browser for the backend "broadcast"',
        'Take the backend "webrtc" or "auto".',
      )
    case 'webrtc':
      if (hasWebRtc) return 'webrtc'
      return fail('to have WebRTC', withoutWebRtc)
    case 'auto':
      if (isSamePage) return 'local'
      if (isSameBrowser) return 'port'
      if (hasWebRtc) return 'webrtc'
      return fail('to share a browser, or to have WebRTC', withoutWebRtc)
  }
}

const withoutWebRtc =
  'Workers have no WebRTC of their own: give them the option page, a port that lendPage() makes on their page.'
