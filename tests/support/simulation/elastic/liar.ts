import { encodeElasticMessage, inOrder, signedText } from '../../../../src/peer/elastic/messages.ts'
import type { PastRoster } from '../../../../src/peer/elastic/roster.ts'
import { fieldOffset, headerBytes } from '../../../../src/peer/link/wire.ts'
import { membersPerRoom } from '../../../../src/peer/room/edges.ts'
import { memberOf } from '../../../../src/peer/room/lives.ts'
import { signedBy } from '../../cheap-signer.ts'
import type { Draw } from '../draw.ts'
import { controlEpoch } from './echo-link.ts'

export const liars = ['newcomer', 'member', 'server'] as const

/** Who says what is not so, a tab over links that are as good as any. */
export interface LiarPlan {
  /** Of no roster, with the room's link alone; a member that begins the run, which else does what members do; or the server (lying-server.ts). */
  readonly role: (typeof liars)[number]
  /** How many lies it tells, one after the other. */
  readonly lies: number
  /** Mean time between two. units: ms. */
  readonly everyMs: number
  /** When the host removes the member, which does not obey; undefined: never. units: ms. */
  readonly removedMs?: number | undefined
}

/** What a liar knows of the run: lies are drawn near the truth. */
export interface Truth {
  /** Lives that there are. */
  readonly ids: readonly string[]
  /** Its own id. */
  readonly self: string
  /** The newest call's and the newest roster's. */
  readonly ballots: readonly number[]
  /** The newest that a member has entered. */
  readonly roster: PastRoster
  /** What others have passed on to it. */
  readonly passed: readonly Passed[]
}

type Lie = Parameters<typeof encodeElasticMessage>[0]
export type Passed = Extract<Lie, { type: 'pass' }>

const types = [
  'hello',
  'call',
  'report',
  'refuse',
  'roster',
  'leave',
  'ping',
  'pong',
  'probe',
  'probed',
  'wait',
  'bye',
  'signal',
  'pass',
] as const

/** Any message but `abort`, which is every member's right, with any fields. */
export function drawLie(draw: Draw, truth: Truth): Lie {
  const { ids, self, ballots, roster: newest, passed } = truth
  const ballot = () => {
    const near = draw.pick(ballots)
    return draw.pick([
      near,
      near,
      near,
      Math.max(0, near - draw.whole(1, 3) * 2 ** 16),
      near + draw.whole(1, 3) * 2 ** 16,
      near + draw.whole(100, 20_000) * 2 ** 16,
      0,
      2 ** 32 - 1,
    ])
  }
  const within = () => Math.min(2 ** 32 - 1, ballot())
  const id = () => draw.pick([...ids, self, self.replace(/\.\d+$/, '.7'), 'nobody'])
  /** As many as a message may name. */
  const some = () => draw.some(ids, draw.whole(0, Math.min(ids.length, membersPerRoom)))
  const past = () => ({ ballot: within(), members: draw.pick([some(), [...some(), self]]) })
  /** As it could be, but for those who are in it: after the newest, and below a call or as it has called. */
  const likely = () => {
    const strangers = ['nobody', 'nobody.1', 'nobody.2'].slice(0, draw.whole(0, 3))
    const members = () => [...new Set([self, ...some(), ...strangers])]
    const at = Math.max(1, draw.pick(ballots) - draw.whole(0, 1))
    const between = draw.isOneIn(2) ? [] : [{ ballot: at - 1, members: members() }]
    return { ballot: at, members: members(), before: [...between, newest] }
  }
  const roster = () => ({
    ...draw.pick([
      likely,
      () => ({ ...past(), before: Array.from({ length: draw.whole(0, 2) }, past) }),
    ])(),
    isRing: draw.isOneIn(2),
  })
  const type = draw.pick(types)
  const why = 'a lie'
  const round = draw.whole(0, 40)
  switch (type) {
    case 'hello':
      return { type, id: id() }
    case 'call':
      return { type, ballot: within(), entered: within(), isPlanned: draw.isOneIn(2) }
    case 'report':
      return {
        type,
        ballot: within(),
        roster: draw.isOneIn(3) ? null : roster(),
        proved: within(),
        hasState: draw.isOneIn(2),
        step: draw.pick([0, draw.whole(0, 50), Number.MAX_SAFE_INTEGER]),
        linked: some(),
        apart: some(),
        former: draw.isOneIn(2) ? null : { id: id(), entered: within() },
      }
    case 'refuse':
      return {
        type,
        ballot: within(),
        promised: within(),
        outside: draw.isOneIn(2) ? null : within(),
      }
    case 'roster':
      return { type, roster: roster() }
    case 'leave':
      return { type, ballot: within() }
    case 'probe':
    case 'probed':
      return { type, round, fill: '' }
    case 'wait':
      return { type, id: id(), why, isSlow: draw.isOneIn(2), members: some() }
    case 'bye':
      return { type, entered: within(), isDone: draw.isOneIn(2), why }
    case 'signal':
      return { type, ballot: within(), attempt: draw.whole(1, 3), data: why }
    case 'pass': {
      const body = drawLie(draw, truth)
      if (!isPassable(body)) return body
      const number = draw.pick([draw.whole(1, 200), draw.whole(1, 200), Number.MAX_SAFE_INTEGER])
      const own = { type, from: self, number, to: some(), body: inOrder(body) } as const
      if (draw.isOneIn(3)) return { ...own, ...signedBy(self, signedText(own)) }
      // In another one's name, as a life of another tab that it invents, or what another one has said: once more, or changed.
      if (passed.length === 0 || draw.isOneIn(3)) {
        const other = id()
        if (number % 2 === 0) return { ...own, from: other, ...signedBy(self, signedText(own)) }
        const former = { id: other, entered: 1 }
        const from = `${memberOf(other)}.999.own`
        const said = inOrder(body.type === 'report' ? { ...body, former } : body)
        const invented = { ...own, from, body: said }
        return { ...invented, ...signedBy(from, signedText(invented)) }
      }
      const said = draw.pick(passed)
      const { from, to } = own
      return { ...said, ...draw.pick([{}, { from }, { number }, { to }, { body }]) }
    }
    default:
      return { type }
  }
}

const isPassable = (lie: Lie): lie is Passed['body'] =>
  ['call', 'report', 'refuse', 'roster', 'leave', 'wait', 'bye', 'signal'].includes(lie.type)

/** A control message as it is on a link. */
export function frameOf(message: Lie): Uint8Array<ArrayBuffer> {
  const payload = encodeElasticMessage(message)
  const frame = new Uint8Array(headerBytes + payload.length)
  new DataView(frame.buffer).setUint32(fieldOffset.epoch, controlEpoch, true)
  frame.set(payload, headerBytes)
  return frame
}
