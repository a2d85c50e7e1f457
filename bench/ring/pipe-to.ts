import type { ProcessGroup } from '../../src/peer/group/group.ts'

/** Where a group keeps what a link stands on. No interface of the library leads there: only a floor is measured on it. */
interface Inside {
  membership: {
    peers: { get(rank: number): { link: { channel?: RTCDataChannel; port?: MessagePort } } }
  }
}

/** The data channel or port below the link to `rank`; undefined for a relayed link. */
export function pipeTo(
  group: ProcessGroup,
  rank: number,
): RTCDataChannel | MessagePort | undefined {
  const { link } = (group as unknown as Inside).membership.peers.get(rank)
  return link.channel ?? link.port
}
