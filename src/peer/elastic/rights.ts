import { memberOf } from '../room/lives.ts'
import type { ElasticMessage } from './messages.ts'
import { follows, hasHalf, type PastRoster, type Roster } from './roster.ts'

/** Role of a message's sender for the member that receives it: nobody says so itself. */
export type Role =
  /** The member whose call this one has promised last. */
  | 'leader'
  /** In this member's roster; for one that joins: a rank, as the server and other ranks say. */
  | 'member'
  /** Linked by the server, and in no roster that this member knows. */
  | 'newcomer'

interface Right {
  readonly from: readonly Role[]
  /**
   * Its cost for the others. `end`: no build of this project says it, so the sender's link ends. `drop`: nothing, since it may be in a newer
   * roster that this member has not heard of, or in an older one.
   */
  readonly others: 'end' | 'drop'
}

const members: readonly Role[] = ['leader', 'member']
const all: readonly Role[] = ['leader', 'member', 'newcomer']

/** Who may say what; protocol.md has the table with the bounds of each field. `hello` is for links whose other end is not known yet. */
export const rights: Readonly<Record<ElasticMessage['type'], Right>> = {
  hello: { from: all, others: 'drop' },
  call: { from: members, others: 'drop' },
  report: { from: all, others: 'drop' },
  refuse: { from: members, others: 'drop' },
  roster: { from: ['leader'], others: 'end' },
  leave: { from: ['leader'], others: 'end' },
  abort: { from: members, others: 'drop' },
  ping: { from: all, others: 'drop' },
  pong: { from: all, others: 'drop' },
  probe: { from: members, others: 'drop' },
  probed: { from: all, others: 'drop' },
  wait: { from: members, others: 'drop' },
  bye: { from: all, others: 'drop' },
  signal: { from: members, others: 'drop' },
  pass: { from: members, others: 'drop' },
}

/** Knowledge of a member as it receives a message. */
export interface Hearer {
  readonly self: string
  /** The newest that it has entered; null for one that joins. */
  readonly roster: Roster | null
  readonly promised: number
  /** The largest ballot that the sender may name: ballots count up, by one for each call. */
  readonly limit: number
  /** Tells whether it has a link to that member. */
  isUp(id: string): boolean
  /** Of members. */
  readonly dead: { has(id: string): boolean }
}

/** `drop`: it changes nothing. `end`: what no build of this project says, in words that follow the sender's name. */
export type Breach = { readonly kind: 'drop' } | { readonly kind: 'end'; readonly what: string }

const drop: Breach = { kind: 'drop' }
const end = (what: string): Breach => ({ kind: 'end', what })

/** Why a message must not be taken; null where its sender may say it, and its fields are within their bounds. */
export function breachOf(
  message: ElasticMessage,
  from: string,
  role: Role,
  hearer: Hearer,
): Breach | null {
  const { promised, limit } = hearer
  const { from: allowed, others } = rights[message.type]
  if (ballotOf(message) > limit) return end('names a ballot that nobody has called with')
  if (!allowed.includes(role)) {
    // Of a call before the one that this member has promised.
    const isOld = ballotOf(message) < promised
    if (isOld && role === 'member') return null
    return isOld || others === 'drop' ? drop : end(`is no leader, and sent "${message.type}"`)
  }
  switch (message.type) {
    case 'call':
      return message.entered < message.ballot ? null : end('called with a ballot below its roster')
    case 'report':
      return reportBreach(message, from, hearer)
    case 'refuse': {
      const { promised: other, outside } = message
      if (other > limit) return end('promised a ballot that nobody has called with')
      return outside !== null && outside > other ? end('entered a roster above its promise') : null
    }
    case 'roster':
      return message.roster.ballot < promised ? null : rosterBreach(message.roster, hearer)
    case 'leave':
      return message.ballot > promised
        ? end('told this member to leave in a call that it has not answered')
        : null
    case 'wait': {
      const { members = [message.id] } = hearer.roster ?? {}
      const mayJudge = members.includes(message.id) || from === members[0]
      const isNear = message.id === hearer.self || hearer.isUp(message.id)
      return mayJudge && isNear ? null : drop
    }
    case 'bye':
      return message.entered > limit ? end('entered a roster that nobody has called for') : null
    default:
      return null
  }
}

const ballotOf = (message: ElasticMessage): number =>
  message.type === 'roster' ? message.roster.ballot : 'ballot' in message ? message.ballot : 0

function reportBreach(
  { ballot, roster, proved, former }: Extract<ElasticMessage, { type: 'report' }>,
  from: string,
  { self, limit }: Hearer,
): Breach | null {
  if (roster && !isOrdered(roster)) return end('reported a roster that cannot be')
  if (roster && (roster.ballot >= ballot || !roster.members.includes(from)))
    return end('reported a roster that it cannot have entered')
  if (roster && !roster.members.includes(self)) return end('answered one that it has left out')
  if (proved > (roster?.ballot ?? 0)) return end('reported a proof that it cannot have')
  if (!former) return null
  const isOther = memberOf(former.id) !== memberOf(from) || former.id === from
  return isOther || former.entered > limit ? end('spoke for another member') : null
}

/**
 * A roster that its leader sends to this member, which has promised it. It must follow this member's own roster, and keep at least as many of
 * those to which this member is linked as it leaves out: leaders decide with more than half. So were those between the two decided, and none of them
 * with this member, which would have entered it.
 */
function rosterBreach(
  next: Roster,
  { self, roster: own, promised, isUp, dead }: Hearer,
): Breach | null {
  if (next.ballot !== promised) return end('sent a roster that it has not called for')
  if (!isOrdered(next)) return end('sent a roster that cannot be')
  if (!own || !next.members.includes(self) || !follows(next, own)) return null
  const between = next.before.filter(({ ballot }) => ballot > own.ballot)
  if (between.some((one) => one.members.includes(self) || !hasHalf(one.members, own.members, dead)))
    return end('sent a roster after one that cannot be')
  const kept = own.members.filter((id) => next.members.includes(id))
  const leftOut = own.members.filter((id) => !next.members.includes(id) && isUp(id))
  return leftOut.length > kept.length ? end('sent a roster without most members') : null
}

/** Each member is named once, and ballots fall. */
function isOrdered({ ballot, members: ids, before }: Roster): boolean {
  const ballots = [ballot, ...before.map((one: PastRoster) => one.ballot)]
  const areDistinct = [ids, ...before.map((one) => one.members)].every(
    (some) => some.length > 0 && new Set(some).size === some.length,
  )
  return areDistinct && ballots.every((one, at) => at === 0 || one < ballots[at - 1])
}
