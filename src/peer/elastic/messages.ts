import * as v from 'valibot'
import { clipped } from '../../util/clipped.ts'
import { messageOf, PeerError } from '../../util/errors.ts'
import { lastBallot } from '../room/ballots.ts'

/**
 * Messages between the members of an elastic run, as JSON in control messages of their links (`EpochLinks`).
 *
 *   hello   member -> member     who this is: the first message
 *   call    leader -> all        stop, and promise nothing below this ballot
 *   report  member -> leader     promised; what it has entered, and to whom it is linked
 *   refuse  member -> leader     it has promised another ballot, or the leader is no member of its roster
 *   roster  leader -> all        who trains from now on
 *   leave   leader -> member     it lacks links, and the others are too few while it counts: it is to come in again over new ones. So is one that answered a leader which the others have left out
 *   ping    member -> member     are you there? the server says that your connection to it has ended
 *   pong    member -> member     yes
 *   abort   member -> all        the run is over for all, and why: each member passes it on
 *   probe   member -> newcomer   send this back: your link is measured
 *   probed  newcomer -> member   so
 *   wait    senior -> all        a newcomer is not let in yet, and why
 *   bye     leaving -> all       it takes part no more; names the newest roster that it has entered, and whether its run is done
 *   signal  member -> member     what WebRTC needs to link the two
 *   pass    member -> member     one of these to members to which its sender has no link, signed: pass it on (passing.ts)
 */
const ballot = v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(lastBallot))
const id = v.pipe(v.string(), v.minLength(1), v.maxLength(64), v.regex(/^[\w.-]+$/))
const ids = v.pipe(v.array(id), v.maxLength(64), v.readonly())
/** Of others: a terminal or a log shows it as one line. */
const why = v.pipe(
  v.string(),
  v.maxLength(300),
  v.transform((text) => text.replace(/\p{Cc}+/gu, ' ')),
)
const pastEntries = { ballot, members: ids }
const probeEntries = {
  round: v.pipe(v.number(), v.integer()),
  fill: v.pipe(v.string(), v.maxLength(2 ** 15)),
}
const past = v.strictObject(pastEntries)
const roster = v.strictObject({
  ...pastEntries,
  before: v.pipe(v.array(past), v.maxLength(64), v.readonly()),
  isRing: v.boolean(),
})

/** Messages that others may pass on. */
const passable = [
  v.strictObject({
    type: v.literal('call'),
    ballot,
    /** The newest that the leader has entered. */
    entered: ballot,
    /** All members have ended the same step, or are about to: none is lost. */
    isPlanned: v.boolean(),
  }),
  v.strictObject({
    type: v.literal('report'),
    ballot,
    roster: v.nullable(roster),
    proved: ballot,
    hasState: v.boolean(),
    step: v.pipe(v.number(), v.safeInteger(), v.minValue(0)),
    linked: ids,
    apart: ids,
    former: v.nullable(v.strictObject({ id, entered: ballot })),
  }),
  v.strictObject({
    type: v.literal('refuse'),
    /** Of the call or the roster that is refused. */
    ballot,
    promised: ballot,
    /** The newest that this member has entered, where the leader is no member of it. */
    outside: v.nullable(ballot),
  }),
  v.strictObject({ type: v.literal('roster'), roster }),
  v.strictObject({ type: v.literal('leave'), ballot }),
  v.strictObject({ type: v.literal('abort'), why }),
  v.strictObject({
    type: v.literal('wait'),
    /** The newcomer. */
    id,
    why,
    /** For its link: no member lets it in. */
    isSlow: v.boolean(),
    /** Those that train. */
    members: ids,
  }),
  v.strictObject({
    type: v.literal('bye'),
    entered: ballot,
    isDone: v.boolean(),
    why,
  }),
  v.strictObject({
    type: v.literal('signal'),
    /** Of the roster whose members are linked. */
    ballot,
    attempt: v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(16)),
    data: v.pipe(v.string(), v.maxLength(2 ** 14)),
  }),
] as const

const passableBody = v.variant('type', passable)
const base64Url = v.pipe(v.string(), v.maxLength(128), v.regex(/^[\w-]*$/))

const passed = v.strictObject({
  type: v.literal('pass'),
  from: id,
  /** Counts up by one for each message that `from` has passed on. */
  number: v.pipe(v.number(), v.safeInteger(), v.minValue(1)),
  to: ids,
  body: passableBody,
  /** Of `from`, and what it has signed (`signedText`): life-keys.ts. */
  key: base64Url,
  signature: base64Url,
})
export type PassedMessage = v.InferOutput<typeof passed>

const schema = v.variant('type', [
  ...passable,
  v.strictObject({ type: v.literal('hello'), id }),
  v.strictObject({ type: v.literal('ping') }),
  v.strictObject({ type: v.literal('pong') }),
  v.strictObject({ type: v.literal('probe'), ...probeEntries }),
  v.strictObject({ type: v.literal('probed'), ...probeEntries }),
  passed,
])
export type ElasticMessage = v.InferOutput<typeof schema>
export type PassableMessage = PassedMessage['body']
export type Probe = Extract<ElasticMessage, { type: 'probe' }>

/** The message with its fields in the order in which a decoded one has them: a signature is of that text. */
export const inOrder = (body: PassableMessage): PassableMessage => v.parse(passableBody, body)

/** All of a passed message that nobody may change. */
export const signedText = ({
  from,
  number,
  to,
  body,
}: Omit<PassedMessage, 'key' | 'signature'>): string => JSON.stringify([from, number, to, body])

export const encodeElasticMessage = (message: ElasticMessage): Uint8Array =>
  new TextEncoder().encode(JSON.stringify(message))

/** errors: `peer.protocol` for what is none of these messages. */
export function decodeElasticMessage(bytes: Uint8Array): ElasticMessage {
  try {
    return v.parse(schema, JSON.parse(new TextDecoder().decode(bytes)), { abortEarly: true })
  } catch (thrown) {
    throw new PeerError(
      'peer.protocol',
      `membership: expected a message of a member (${clipped(messageOf(thrown))}). Reload every tab so that all run the same build.`,
    )
  }
}
