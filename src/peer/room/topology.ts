/** How the members of a room are linked: pure functions of its members. */
import { meshEdges, roomEdges } from './edges.ts'
import type { AssignedLink, MemberInfo } from './messages.ts'

const isOpen = (transport: MemberInfo['transport']) =>
  transport === 'auto' || transport === 'fallback'

/** The one rule that decides how two members are joined; null when what they ask for cannot be. */
export function linkKind(a: MemberInfo, b: MemberInfo): AssignedLink['kind'] | null {
  for (const forced of ['webrtc', 'relay'] as const) {
    if (a.transport !== forced && b.transport !== forced) continue
    return [a, b].every(({ transport }) => transport === forced || isOpen(transport))
      ? forced
      : null
  }
  if (a.hostTag !== '' && a.hostTag === b.hostTag) return 'port'
  return a.transport === 'port' || b.transport === 'port' ? null : 'webrtc'
}

/** Returns whether two members that WebRTC is to join may send through the server instead. */
export const canFallBack = (a: MemberInfo, b: MemberInfo): boolean =>
  a.transport === 'fallback' && b.transport === 'fallback' && linkKind(a, b) === 'webrtc'

/**
 * Each rank's links, by rank, of these `edges`; or two ranks that cannot be joined as they ask: any two may be neighbours once others have left.
 */
export function planLinks(
  members: readonly MemberInfo[],
  hasRelay: boolean,
  edges = roomEdges(members.length),
): { links: AssignedLink[][] } | { apart: [number, number] } {
  const apart = meshEdges(members.length).find(([a, b]) => !linkKind(members[a], members[b]))
  if (apart) return { apart }
  const links = members.map((): AssignedLink[] => [])
  for (const [from, to] of edges) {
    const way = {
      kind: linkKind(members[from], members[to])!,
      ...(hasRelay && canFallBack(members[from], members[to]) && { canRelay: true }),
    }
    links[from].push({ peerRank: to, initiator: true, ...way })
    links[to].push({ peerRank: from, initiator: false, ...way })
  }
  return { links }
}

/** Equal for members that ports join. */
export const machineKey = (member: MemberInfo & { readonly id: string }): string =>
  linkKind(member, member) === 'port' ? member.hostTag : member.id

/** By rank: members that ports join count as one machine, numbered as they come. */
export function machinesOf(members: readonly MemberInfo[]): number[] {
  const firsts = members.map((member, rank) =>
    members.findIndex((other, at) => at === rank || linkKind(member, other) === 'port'),
  )
  const known = [...new Set(firsts)]
  return firsts.map((first) => known.indexOf(first))
}
