import { type EndFacts, type ErrorCode, PeerError, RunError } from '../../util/errors.ts'

/** Why the signaling server says no, as the codes that it sends. */
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
  'wrong-code',
  'declined',
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

/** Thrown if the signaling server refuses a request. */
export class SignalError extends PeerError {
  static override name = 'SignalError'
  /** The server's reason. */
  readonly refusal: Refusal
  constructor(
    refusal: Refusal,
    text: string,
    /** The name of who removed this tab, with `removed`. */
    readonly by = '',
    /** The type of the message that was refused; empty where that is not known. */
    readonly about = '',
  ) {
    super('signal.refused', `signaling: ${refusal}: ${text}`)
    this.refusal = refusal
  }
}

/** The error of a tab that an elastic run leaves out: it joins `again`, over other links, or is `barred`. */
export const leftOutError = (
  code: ErrorCode,
  why: string,
  leftOut: NonNullable<EndFacts['leftOut']> = 'again',
): RunError => new RunError(code, leftOutText(why), { leftOut })

/** Text for people; that a tab is left out stands in `EndFacts`. */
export const leftOutText = (why: string): string => `the run continues without this tab: ${why}`

/** The reason that a tab gets whose run the others have ended while it was away. */
export const endedWithout = 'the run has ended without this tab.'

/** The error that the server's `abort` stands for. */
export const abortError = (abort: EndFacts & { code: ErrorCode; text: string }): RunError => {
  const { code, text, ranks, leftOut } = abort
  return new RunError(code, text, { ranks, leftOut })
}
