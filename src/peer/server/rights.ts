import type { ClientMessage } from '../room/client-messages.ts'
import type { Refusal } from '../room/refusals.ts'

/**
 * Roles of a connection: outside, at the maker's door, with a short code to give or to use, one end of a relayed link, here for the store alone, a
 * member, or the room's maker.
 */
export type Role =
  | 'stranger'
  | 'waiting'
  | 'code giver'
  | 'code user'
  | 'link end'
  | 'guest'
  | 'member'
  | 'maker'

const outside: readonly Role[] = ['stranger']
const anyone: readonly Role[] = [
  'stranger',
  'waiting',
  'code giver',
  'code user',
  'link end',
  'guest',
  'member',
  'maker',
]
const inside: readonly Role[] = ['guest', 'member', 'maker']
const members: readonly Role[] = ['member', 'maker']
const maker: readonly Role[] = ['maker']

/** Who may say what; protocol.md has the same table, with what else holds. Who of the members is in a run, and in which epoch, the run knows. */
const sayers: { readonly [T in ClientMessage['type']]: readonly Role[] } = {
  create: outside,
  join: outside,
  relay: outside,
  giveCode: outside,
  useCode: ['stranger', 'code user'],
  codeAnswer: ['code giver'],
  ping: anyone,
  pong: anyone,
  bye: anyone,
  store: inside,
  ice: inside,
  update: members,
  reach: members,
  signal: members,
  ready: members,
  linkDown: members,
  abort: members,
  done: members,
  ranks: members,
  half: members,
  out: members,
  propose: maker,
  handOver: maker,
  letIn: maker,
  remove: maker,
  start: maker,
}

/** Why who has this role may not say it; null where it may. */
export function refusalOf(role: Role, type: ClientMessage['type']): [Refusal, string] | null {
  if (sayers[type].includes(role)) return null
  if (sayers[type] === outside || type === 'useCode') {
    const text = 'this connection has already sent another first message. Open another one.'
    return ['already-in-a-room', text]
  }
  if (type === 'codeAnswer')
    return ['wrong-state', `this connection shows no short code, got ${type}.`]
  switch (role) {
    case 'link end':
      return ['wrong-state', `a relayed link carries only binary messages, got ${type}.`]
    case 'guest': {
      const text = `a guest may only make store calls, got ${type}. Enter the room as a member.`
      return ['not-a-member', text]
    }
    case 'code giver':
    case 'code user':
      return ['wrong-state', `a connection for a short code is in no room, got ${type}.`]
    case 'member':
      return ['not-the-host', `only the host may say ${type}. Ask the host.`]
    default: {
      const text = `${type} arrived before create or join. Enter the room first.`
      return ['not-in-a-room', text]
    }
  }
}
