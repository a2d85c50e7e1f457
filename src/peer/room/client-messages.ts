import * as v from 'valibot'
import { codeBoxSchema, codeNameSchema, guestSchema } from './code-messages.ts'
import {
  ballotSchema,
  epochSchema,
  hex,
  infoSchema,
  json,
  limits,
  livesSchema,
  memberIdSchema,
  newestEpochSchema,
  type Parsed,
  parseMessage,
  protocolVersion,
  rankSchema,
  reachedSchema,
  roomIdSchema,
  runKeySchema,
  text,
  whole,
} from './messages.ts'
import { storeMessageSchema } from './store-calls.ts'

/** What tabs say to the server, which alone reads it: messages.ts has the order in which it comes. */

const tokenSchema = v.optional(hex(16))
/** Of a rank of a tab that another rank with its token speaks for. */
const isFurtherSchema = v.optional(v.boolean())
const boxSchema = v.pipe(v.string(), v.maxLength(limits.boxChars), v.regex(/^[\w-]+$/, 'base64url'))

/** Null for a guest. */
const entrySchema = v.nullable(infoSchema)

/** Members in the order of their ranks. */
const ranksSchema = v.pipe(
  v.array(memberIdSchema),
  v.minLength(1),
  v.maxLength(limits.membersPerRoom),
  v.check((ids) => new Set(ids).size === ids.length, 'distinct ids'),
)

/** An elastic run, as a member that is in it knows it. */
const runNowSchema = v.strictObject({
  key: runKeySchema,
  /** The epoch with which it began. */
  run: epochSchema,
  /** As in the newest message `ranks`. */
  ballot: ballotSchema,
  ids: ranksSchema,
  settings: json(limits.settingsBytes),
  /** A server has let its half continue: it may be in a newer roster by now. */
  mayBeAhead: v.optional(v.boolean()),
})
export type RunNow = v.InferOutput<typeof runNowSchema>

/** Of a member whose connection ended, and which is back. */
const againSchema = v.optional(
  v.strictObject({
    /** The id that the server gave it; it does so again where no member in the room has that id. */
    id: memberIdSchema,
    /** The newest that it knows, up to the last that it can have received from a server: later ones have other numbers, on a new server too. */
    epoch: newestEpochSchema,
    run: v.optional(runNowSchema),
  }),
)
export type Again = NonNullable<v.InferOutput<typeof againSchema>>

export const clientMessageSchema = v.variant('type', [
  v.strictObject({
    type: v.literal('create'),
    version: v.literal(protocolVersion),
    room: roomIdSchema,
    authKey: hex(32),
    /** Of the server's own key, where it has one (room-key.ts). */
    keyProof: v.optional(hex(32)),
    info: entrySchema,
    token: tokenSchema,
    isFurther: isFurtherSchema,
    again: againSchema,
  }),
  v.strictObject({
    type: v.literal('join'),
    version: v.literal(protocolVersion),
    room: roomIdSchema,
    proof: hex(32),
    info: entrySchema,
    token: tokenSchema,
    isFurther: isFurtherSchema,
    again: againSchema,
  }),
  v.strictObject({
    type: v.literal('relay'),
    version: v.literal(protocolVersion),
    room: roomIdSchema,
    proof: hex(32),
    token: tokenSchema,
    channel: text(limits.relayChannelChars),
    side: v.picklist([0, 1]),
  }),
  v.strictObject({
    type: v.literal('giveCode'),
    version: v.literal(protocolVersion),
    room: roomIdSchema,
    proof: hex(32),
    /** By which the server knows this tab when it comes back. */
    token: hex(16),
    /** The name that its code had before its connection ended. */
    name: v.optional(codeNameSchema),
  }),
  v.strictObject({
    type: v.literal('useCode'),
    version: v.literal(protocolVersion),
    name: codeNameSchema,
    box: codeBoxSchema,
  }),
  v.strictObject({
    type: v.literal('codeAnswer'),
    guest: guestSchema,
    /** Null: the password was wrong. */
    box: v.nullable(codeBoxSchema),
  }),
  v.strictObject({ type: v.literal('update'), info: infoSchema }),
  v.strictObject({ type: v.literal('propose'), settings: json(limits.settingsBytes) }),
  v.strictObject({ type: v.literal('handOver'), id: memberIdSchema }),
  v.strictObject({ type: v.literal('letIn'), id: memberIdSchema, isLetIn: v.boolean() }),
  v.strictObject({
    type: v.literal('remove'),
    id: memberIdSchema,
    /** For the others, between runs: where they move to. */
    boxes: v.optional(
      v.pipe(
        v.array(v.strictObject({ to: memberIdSchema, box: boxSchema })),
        v.maxLength(limits.membersPerRoom),
      ),
    ),
  }),
  /** Null: to all onlookers that ask this member. */
  v.strictObject({ type: v.literal('reach'), to: v.nullable(memberIdSchema), box: boxSchema }),
  v.strictObject({
    type: v.literal('start'),
    settings: json(limits.settingsBytes),
    /** True if the run continues when a rank is lost, and admits newcomers. Default false. */
    isElastic: v.optional(v.boolean()),
  }),
  v.strictObject({
    type: v.literal('signal'),
    epoch: epochSchema,
    to: rankSchema,
    attempt: whole(1, limits.attempts),
    box: boxSchema,
  }),
  v.strictObject({ type: v.literal('ready'), epoch: epochSchema }),
  v.strictObject({
    type: v.literal('linkDown'),
    epoch: epochSchema,
    peerRank: rankSchema,
    text: text(limits.textChars),
  }),
  v.strictObject({ type: v.literal('abort'), epoch: epochSchema, text: text(limits.textChars) }),
  v.strictObject({
    type: v.literal('done'),
    epoch: epochSchema,
    reached: v.optional(reachedSchema),
  }),
  v.strictObject({
    type: v.literal('ranks'),
    key: runKeySchema,
    /** Of several messages the one with the highest counts. */
    ballot: ballotSchema,
    ids: ranksSchema,
  }),
  v.strictObject({
    type: v.literal('half'),
    key: runKeySchema,
    /** Of the roster of which half is here. */
    ballot: ballotSchema,
    /** Its members that are not known to be dead. */
    alive: livesSchema,
    /** Those that would continue. */
    lives: livesSchema,
  }),
  v.strictObject({ type: v.literal('out'), key: runKeySchema }),
  storeMessageSchema,
  v.strictObject({ type: v.literal('ice') }),
  v.strictObject({ type: v.literal('ping') }),
  v.strictObject({ type: v.literal('bye') }),
  v.strictObject({ type: v.literal('pong') }),
])
export type ClientMessage = v.InferOutput<typeof clientMessageSchema>
export type MessageOf<T extends ClientMessage['type']> = Extract<ClientMessage, { type: T }>

export const parseClientMessage = (raw: string): Parsed<ClientMessage> =>
  parseMessage(clientMessageSchema, raw)
