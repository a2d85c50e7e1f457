import { PeerError } from '../../util/errors.ts'
import type { ElasticMemberOptions } from './options.ts'
import type { Presence } from './presence.ts'
import { type Verdict, winsHalf } from './roster.ts'

type Half = Extract<Verdict, { kind: 'half' }>

/** Tells whether the members of that verdict may continue: asks the server, roster by roster, which half of it was the first to say so. */
export async function areFirst(
  { members, before, ballots, missing }: Half,
  { dead, saidBye, surelyDead }: Presence,
  firstHalf: ElasticMemberOptions['firstHalf'] = noServer,
): Promise<boolean> {
  const later: (readonly string[])[] = []
  try {
    for (const { ballot, members: all } of before) {
      if (ballots.includes(ballot)) {
        const own = members.filter((id) => all.includes(id))
        const alive = all.filter((id) => !dead.has(id))
        const first = await firstHalf(ballot, alive, own)
        // Of those that won it together with one that is here, none can go on alone: neither who said bye, nor who is in a later roster that
        // those here may follow.
        const isOurs = first?.some((id) => own.includes(id))
        const isFollowed =
          isOurs &&
          all.every((id) => !saidBye.has(id)) &&
          later.some((ids) => first!.every((id) => ids.includes(id)))
        if (!first || !(isFollowed || winsHalf(own, first, isOurs ? dead : surelyDead)))
          return false
      }
      later.push(all)
    }
    return true
  } catch {
    // Without the server their word must do.
    return missing.every((id) => saidBye.has(id))
  }
}

const noServer = () => Promise.reject(new PeerError('peer.lost', 'membership: no server'))
