import type { Env } from '../../util/env.ts'
import type { MessageOf } from '../room/client-messages.ts'
import type { ServerMessage } from '../room/messages.ts'
import { TokenBucket } from '../room/token-bucket.ts'
import type { Limits } from './limits.ts'
import type { Member } from './linking.ts'

export interface OnlookersOptions {
  readonly env: Env
  readonly limits: Limits
  members(): readonly Member[]
  /** Returns whether the member has a rank in the run that is on, or could have one in the next. */
  mayShow(member: Member): boolean
  send(member: Member, message: ServerMessage): void
}

/** Returns whether ranks show the member their run: it has no rank, or lacks the end of a finished run. */
export const isOnlooker = ({ info }: Member): boolean =>
  info.watches === true || info.missed === true

/** Boxes between onlookers and the ranks that show them the run: a rank reaches those alone that have asked it, and no other member since. */
export class Onlookers {
  /** Of the bytes that ranks show. */
  private readonly shown: TokenBucket

  constructor(private readonly options: OnlookersOptions) {
    const { env, limits } = options
    this.shown = new TokenBucket(env, limits.shownBytesPerSec, limits.shownBurst)
  }

  /** Passes a box of an onlooker, or one for onlookers; any other, and what is too much, is dropped. */
  pass(from: Member, { to, box }: MessageOf<'reach'>): void {
    const { send, members, mayShow } = this.options
    const reach = { type: 'reach', from: from.id, box } as const
    if (isOnlooker(from)) {
      const rank = members().find(({ id, info }) => id === to && !info.watches)
      if (!rank || !from.askBytes.take(box.length)) return
      // One with a rank also sends boxes to its neighbours in the ring.
      if (from.info.watches) from.asks.clear()
      from.asks.add(rank.id)
      send(rank, reach)
    } else if (to === null && mayShow(from) && this.shown.take(box.length))
      for (const one of members())
        if (isOnlooker(one) && one.asks.has(from.id)) send(one, { ...reach, toWatchers: true })
  }
}
