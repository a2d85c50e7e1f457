import { PeerError } from '../../util/errors.ts'

export const refusals = [
  'bad-message',
  'too-large',
  'too-fast',
  'too-slow',
  'too-many',
  'foreign-origin',
  'wrong-version',
  'unknown-room',
  'room-exists',
  'room-full',
  'server-full',
  'store-full',
  'bad-proof',
  'no-key',
  'wrong-key',
  'not-in-a-room',
  'already-in-a-room',
  'not-a-member',
  'not-the-host',
  'unknown-member',
  'removed',
  'idle',
  'wrong-state',
  'wrong-epoch',
  'unknown-rank',
  'no-transport',
  'no-relay',
  'channel-taken',
  'other-end-gone',
  'shutting-down',
  'internal',
] as const
/** Why the signaling server refused a request. */
export type Refusal = (typeof refusals)[number]

/** Of a member that the maker took out of the room: what the server tells it and the others. */
export const removedBy = (makerName: string): string => `${removalMark}${makerName}`
const removalMark = 'removed by '

/** Whether a text tells of a removal. */
export const isRemoval = (text: string): boolean => text.includes(removalMark)

/** Who removed this tab, from what the server told it. */
export const removerIn = (text: string): string =>
  text.slice(text.indexOf(removalMark) + removalMark.length)

/** What the server tells a tab that an elastic run leaves out. */
export const leftOutBecause = (why: string): string => `${leftOutMark}${why}`
const leftOutMark = 'the run continues without this tab: '

/** Whether a text tells of a tab that an elastic run leaves out. */
export const isLeftOut = (text: string): boolean => text.includes(leftOutMark)

/** What the server tells of ranks and newcomers that could not be linked in time begins so. */
export const lateMark = 'not every rank had its links'

/** Thrown if the signaling server refuses a request. */
export class SignalError extends PeerError {
  /** The server's reason. */
  readonly refusal: Refusal
  constructor(refusal: Refusal, text: string) {
    super('signal.refused', `signaling: ${refusal}: ${text}`)
    this.refusal = refusal
  }
}

/** The rank that a failure says is gone or lost; null for none. */
export function lostRankIn(text: string): number | null {
  const named = /\brank (\d+) \(.*?\) is gone|\blost rank (\d+)/.exec(text)
  return named && Number(named[1] ?? named[2])
}
