import * as v from 'valibot'
import { clipped } from '../../util/clipped.ts'
import type { JsonValue } from '../../util/json-value.ts'
import { lastBallot } from './ballots.ts'
import type { CodeServerMessage } from './code-messages.ts'
import { membersPerRoom, meshLimit, newcomersAtOnce } from './edges.ts'
import { iceServersSchema } from './ice-servers.ts'
import { maxUs } from './microseconds.ts'
import { maxNameChars, plainName } from './names.ts'
import { refusals } from './refusals.ts'
import { storedMessageSchema } from './store-messages.ts'

/**
 * Everything a tab and the signaling server say to each other: JSON text, one object a message. What tabs say is in client-messages.ts, which no
 * page loads.
 *
 *   tab                         server
 *    <- challenge                 on connecting: version and nonce
 *    create | join ->             the room, and the key or the proof of it; to create one a server may want the proof of its room key
 *    <- asking                    the server asks the room's maker first (`npm start -- --ask`); not for who was let in before
 *    <- welcome, lobby            who is there; lobby again after every change
 *    propose -> (the maker)       the settings that it would start with now
 *    <- proposed                  the others see them; also who comes later, and what a run was started with
 *    <- asks (the maker)          who waits to be let in; again after every change
 *    letIn -> (the maker)         its answer to one of them
 *    handOver -> (the maker)      another member is the maker from now on; not during a run
 *    remove -> (the maker)        a member goes, which gets the refusal `removed`; one of a run ends it
 *    <- moved                     with a `remove`, to the others: sealed, the key of the room that they enter from now on
 *    reach <->                    sealed, between neighbours in the ring that waits: links by which they know how far they are (lobby-links.ts)
 *    reach <->                    sealed, at any time: an onlooker asks a rank, which shows the run to all onlookers that ask it
 *    start -> (the maker)         the settings of a run
 *    <- ice                       the ICE servers for the links of the assignment that follows; not where there are none
 *    <- assign                    epoch, rank, world size, the links to form
 *    signal <->                   sealed session descriptions and candidates between linked ranks
 *    ready ->                     my links are up
 *    <- start                     everyone's are: go
 *    done ->                      my part of the run has ended well
 *    <- finished | abort          the epoch is over
 *
 * An elastic run that has begun continues when a rank is lost; its members decide among themselves who the ranks are. The server helps:
 *
 *    <- gone                      a member is gone: a hint, and certain where it has left
 *    <- assign, <- start          newcomers are linked to the ranks, in another epoch: signal, ready, linkDown and abort name that one
 *    ranks ->                     who the ranks are now
 *    half <->                     exactly half of a roster is here: which half asked first?
 *    out ->                       I am no rank any more: link me again as a newcomer
 *
 * And at any time:
 *
 *    store ->, <- stored          the room's store: store-messages.ts
 *    ice ->, <- ice               ICE servers with fresh credentials
 *    ping ->, <- pong             a tab measures its round trip; the server also pings tabs
 *
 * A member may enter with a token that its tab alone knows. That of who made the room, or was handed it, is the room's: the member that shows it
 * is the maker again, at once or when the run that is on has ended. Further ranks of a tab (`isFurther`) show its token too, and are no maker for
 * it. By the token a member has its seat again, and is not asked about where its host lets newcomers in; without one it is a newcomer. The server
 * sends a token to nobody.
 *
 * A member whose connection ended comes back with its id (`again`), the newest epoch it knows, and the elastic run that it is in. A server that
 * does not know the run, because it is another process, takes it over from the room's maker, and in its first seconds from anyone: settings and
 * ranks. Else the member has its rank again where it is still among the ranks; in a run that is not elastic, where its rank is detached. Runs of
 * two servers may have the same number, so each elastic run has a random key too. A member that is in another run takes part in the room's only
 * once that has ended on it: it says `done`, `abort` or `out`.
 *
 * Who enters without `info` is a guest: inside for the store and ICE servers alone, in no lobby and no epoch.
 *
 *    relay ->                     in the place of create or join: one end of a relayed link, with the proof of the room's key, and where hosts let
 *                                 newcomers in with the token of a member
 *    <- relayed                   the other end is here: from now on binary messages go to it and come from it, sealed
 *
 * A tab may also give the room's key to who knows a short code, over a connection that enters no room: code-messages.ts.
 *
 * Only a server with that option has such a relay (`welcome` says so). Boxes are no way for gradients: their number or bytes are bounded.
 */
export const protocolVersion = 18

/** The path on the page's own port where the server takes WebSockets. */
export const signalPath = '/signal'

/** The path on the page's own port where the server gives its pages facts about itself: `ServerFacts` as JSON. */
export const serverFactsPath = '/server.json'

export const serverFactsSchema = v.object({
  /** The addresses of the page for other machines; empty when it is served to this one alone. */
  lanUrls: v.array(v.pipe(v.string(), v.url())),
  /** True if the host of a room lets each newcomer in. */
  asks: v.boolean(),
  /** Where the server has a data folder; null when it has none. */
  data: v.nullable(v.string()),
})
export type ServerFacts = v.InferOutput<typeof serverFactsSchema>

/** Limits of the signaling protocol, for server and client; server/limits.ts has the rest. */
export const limits = {
  /**
   * Largest message in either direction, in UTF-8 bytes: the server refuses a larger one, and its own largest, the lobby of
   * a full room, fits whatever its members say of themselves (`adapterBytes`, `nameChars`).
   */
  messageBytes: 64 * 1024,
  /**
   * Token bucket of each connection, store calls apart; a link with 2 attempts needs about 15 messages, with 8 lanes 45, and a run's first rank
   * gets one to each newcomer.
   */
  messagesPerSec: 20,
  messageBurst: 60 * (membersPerRoom - 1),
  /** Rooms of one server, and members of one room. */
  rooms: 1000,
  membersPerRoom,
  /** Open rooms that one address has made. */
  roomsPerAddress: 8,
  /** Those who wait for a room's maker to let them in, and how long each of them waits. */
  asksPerRoom: 20,
  askMs: 600_000,
  /** Connections inside for the store alone. */
  guestsPerRoom: 64,
  /** From connecting to a valid `create` or `join`. */
  authenticateMs: 10_000,
  /** From `assign` until every rank is ready. */
  readyMs: 20_000,
  /** In an elastic run: from a newcomer until it is assigned its links. */
  joinMs: 1_000,
  /** From `assign` until newcomers to an elastic run are ready: the others train meanwhile. */
  prepareMs: 120_000,
  /**
   * From the first member that brings an elastic run to a server that does not know it, until the server waits for the other ranks no more; and
   * from the server's beginning until it takes no run any more that the room's maker has not brought. Longer than any wait between two tries to
   * come back (room-connection.ts).
   */
  backMs: 10_000,
  /** The server pings this often and drops a connection that it has not heard from for `goneMs`. */
  pingMs: 5_000,
  goneMs: 15_000,
  /** A room with one member and no run ends when nothing has changed in it for so long. */
  idleMs: 3_600_000,
  /** Changes of a lobby within this time go out in one message. */
  lobbyDelayMs: 20,
  /** Lobbies that only have what members changed about themselves are at least this far apart. */
  lobbyUpdateMs: 1_000,
  /** Token bucket of a room's lobbies, and of its messages of who waits to be let in: a class of 64 comes within a minute. */
  newsPerSec: 2,
  newsBurst: 128,
  /** JSON text of a run's settings. */
  settingsBytes: 16 * 1024,
  /** JSON text of an adapter summary; an actual one takes about 200. */
  adapterBytes: 448,
  /** One sealed box, in characters of base64url; an offer takes about 1,200. */
  boxChars: 16 * 1024,
  /** All boxes that one rank may send in one epoch, for each of its links. */
  boxCharsPerLink: 128 * 1024,
  /** Token bucket of one member's boxes between runs: a link takes about 5, and is tried again where there is no way. */
  reachesPerSec: 1,
  reachBurst: 100,
  nameChars: maxNameChars,
  textChars: 500,
  /** Attempts to form one link. */
  attempts: 8,
  /** Connections that are ends of relayed links: 64 ranks have 704, and 808 where the first is linked to all. */
  relayEndsPerRoom: 1024,
  /** One relayed message: what a link takes, and what sealing adds. */
  relayFrameBytes: 64 * 1024 + 28,
  /** The least: a sealed message without any text. What a server keeps of each comes on top, so tiny ones would cost it most. */
  relayFrameMinBytes: 28,
  /** So much may wait for one end of a relayed link before its sender is not read any more. */
  relayQueueBytes: 512 * 1024,
  /** Cost for a server of keeping one message besides its bytes, as it counts them; ours takes about 700. */
  relayFrameCostBytes: 1024,
  /** Token bucket of the bytes that one address sends through relays: a server for strangers has less (`npm start -- --relay-rate`). */
  relayBytesPerSec: Number.POSITIVE_INFINITY,
  relayBurstSec: 4,
  /** From one end's coming to the other's. */
  relayWaitMs: 20_000,
  /** A channel's name. */
  relayChannelChars: 200,
  /**
   * Token bucket of each connection's store calls: one of 64 ranks that reads what the others say, and writes, reads and deletes an
   * offer for each of them, makes about 260. Clients send no faster, so that a quick program waits and is not cut off.
   */
  storeCallsPerSec: 100,
  storeCallBurst: 512,
  /** Calls that a client has under way; those that wait on the server do not count. */
  storeCallsAtOnce: 32,
  /** `get` and `wait` of one connection that wait. */
  storeWaits: 128,
  /** Of one room. */
  storeKeysPerRoom: 8192,
  /** One key, in UTF-8. */
  storeKeyBytes: 512,
  /** One value, before it is sealed. */
  storeValueBytes: 16 * 1024,
  /** Keys, sealed values and waits of one room (an offer from each of 64 ranks to each takes 7 MB), and of all rooms of a server. */
  storeBytesPerRoom: 8 * 1024 * 1024,
  storeBytes: 256 * 1024 * 1024,
} as const

export const hex = (bytes: number) =>
  v.pipe(v.string(), v.regex(new RegExp(`^[0-9a-f]{${2 * bytes}}$`), `${2 * bytes} hex digits`))

export const whole = (minimum: number, maximum: number) =>
  v.pipe(v.number(), v.safeInteger(), v.minValue(minimum), v.maxValue(maximum))

/** Text for people: no control characters, so it cannot play tricks on a terminal. */
export const text = (chars: number) =>
  v.pipe(v.string(), v.maxLength(chars), v.regex(/^[^\p{Cc}]*$/u, 'no control characters'))

const nameSchema = v.pipe(
  text(limits.nameChars),
  v.check((name) => plainName(name) === name, 'one line of characters that can be seen'),
  v.minLength(1),
)

export const json = (maxBytes: number) =>
  v.custom<JsonValue>((value) => {
    if (value === undefined) return false
    try {
      return utf8Bytes(JSON.stringify(value)) <= maxBytes
    } catch {
      return false // nested so deep that writing it overflows the stack
    }
  }, `JSON of at most ${maxBytes} bytes`)

/** Length of `string` in UTF-8. units: bytes. */
export function utf8Bytes(string: string): number {
  return new TextEncoder().encode(string).length
}

export const roomIdSchema = hex(16)
export const memberIdSchema = hex(8)
/** Of one elastic run alone: its server drew it when the run was started. */
export const runKeySchema = hex(8)
const maxEpoch = 2 ** 31
export const epochSchema = whole(1, maxEpoch)
/** 0 before the first. */
export const newestEpochSchema = whole(0, maxEpoch)
export const rankSchema = whole(0, limits.membersPerRoom - 1)
export const transportChoices = ['auto', 'fallback', 'webrtc', 'port', 'relay'] as const
/**
 * `auto`: MessagePorts between tabs of one browser, WebRTC between others. `fallback`: the same, and through the server, where it relays and both
 * sides choose this, between those that WebRTC does not link. The rest forces one kind.
 */
export type TransportChoice = (typeof transportChoices)[number]

/**
 * Measurements of a member, for people to read. Whole numbers, because texts of floats are long and the lobby of a full room is one message.
 */
const measuredSchema = v.strictObject({
  /** Of its device, in one fixed product. units: MFLOP/s. */
  megaflops: v.optional(whole(0, 1e9)),
  /** Round trip to the server. units: us. */
  serverUs: v.optional(whole(0, maxUs)),
  /** Round trips over its links in the current run, the shortest and the longest. units: us. */
  linkUs: v.optional(v.tuple([whole(0, maxUs), whole(0, maxUs)])),
  /** Between runs: its round trip to the member behind it in the ring; null where there is no way. units: us. */
  toNext: v.optional(v.strictObject({ id: memberIdSchema, us: v.nullable(whole(0, maxUs)) })),
})
export type Measured = v.InferOutput<typeof measuredSchema>
export type ToNext = NonNullable<Measured['toNext']>

const keyHashSchema = v.pipe(v.string(), v.regex(/^[\w-]{16}$/, 'the hash of a key'))

/** Facts that a member sends the others about itself. */
const memberEntries = {
  /** Shown to people. */
  name: nameSchema,
  /** The adapter as its owner describes it; opaque here. */
  adapter: json(limits.adapterBytes),
  /** Equal for tabs that share a browser's SharedWorker; empty when the tab has none. */
  hostTag: v.union([v.literal(''), hex(16)]),
  /** The tab is in the background. */
  hidden: v.boolean(),
  transport: v.picklist(transportChoices),
  /** Equal for the ranks of one tab; a tab with one rank may leave it out. */
  tab: v.optional(hex(4)),
  /** True if it takes no rank, and watches. */
  watches: v.optional(v.boolean()),
  /** True if it lacks the end of the run that has finished, and sees it as those who watch do. It takes a rank in the next. */
  missed: v.optional(v.boolean()),
  /** Number of its colour: the server gives it. */
  hue: v.optional(whole(0, 2 * limits.membersPerRoom)),
  /** Of the key with which it signs in elastic runs (life-keys.ts); who takes part in none may leave it out. */
  keyHash: v.optional(keyHashSchema),
}
const infoEntries = { ...memberEntries, measured: v.optional(measuredSchema) }
export const infoSchema = v.strictObject(infoEntries)
export type MemberInfo = v.InferOutput<typeof infoSchema>
export const ballotSchema = whole(0, lastBallot)

/** Members of an elastic run (lives.ts). */
export const livesSchema = v.pipe(
  v.array(v.pipe(v.string(), v.regex(/^[0-9a-f]{16}\.\d{1,10}(\.[\w-]{16})?$/, 'a life'))),
  v.minLength(1),
  v.maxLength(limits.membersPerRoom),
)

/** Result of a run: its demo's metric over held-out samples, and how long it took. */
export const reachedSchema = v.strictObject({
  value: v.pipe(v.number(), v.finite()),
  seconds: v.pipe(v.number(), v.finite(), v.minValue(0)),
})
export type Reached = v.InferOutput<typeof reachedSchema>

/**
 * Where a room is. `failed` and `finished` take a new start like `lobby` does.
 */
export const roomStates = ['lobby', 'assigned', 'running', 'finished', 'failed'] as const
export type RoomState = (typeof roomStates)[number]

/** Why the server ends an epoch. */
const abortCodes = [
  'peer.aborted',
  'peer.lost',
  'peer.removed',
  'peer.late',
  'peer.unreachable',
] as const
export type AbortCode = (typeof abortCodes)[number]

const lobbyMemberSchema = v.object({
  ...infoEntries,
  id: memberIdSchema,
  /** Its rank in the current run; null for none. */
  rank: v.nullable(rankSchema),
  /** False for a rank whose signaling socket ended while the ring runs on. */
  attached: v.boolean(),
})
export type LobbyMember = v.InferOutput<typeof lobbyMemberSchema>

export const assignedMemberSchema = v.object({ ...memberEntries, id: memberIdSchema })

const assignedLinkSchema = v.object({
  peerRank: rankSchema,
  /** This side makes the offer. */
  initiator: v.boolean(),
  /** The same on both sides, because the server chose it. */
  kind: v.picklist(['webrtc', 'port', 'relay']),
  /** Where WebRTC brings no connection about, on both sides, the relay is taken. */
  canRelay: v.optional(v.boolean()),
})
export type AssignedLink = v.InferOutput<typeof assignedLinkSchema>

export const serverMessageSchema = v.variant('type', [
  v.object({ type: v.literal('challenge'), version: v.number(), nonce: hex(16) }),
  v.object({
    type: v.literal('welcome'),
    id: memberIdSchema,
    room: roomIdSchema,
    /** True if this server relays links. */
    relay: v.optional(v.boolean()),
  }),
  v.object({ type: v.literal('relayed') }),
  /** `host`: the name of the maker, who is asked. */
  v.object({ type: v.literal('asking'), host: v.string() }),
  v.object({
    type: v.literal('asks'),
    /** The oldest first. An id is of this wait alone. */
    asks: v.pipe(
      v.array(v.object({ id: memberIdSchema, name: nameSchema })),
      v.maxLength(limits.asksPerRoom),
    ),
  }),
  v.object({
    type: v.literal('lobby'),
    state: v.picklist(roomStates),
    /** Of the current or last run; 0 before the first. */
    epoch: newestEpochSchema,
    /** Of the newest roster of an elastic run that the server knows of. */
    ballot: v.optional(v.number()),
    /** Result of the last run, where that has finished and a rank has said so. */
    reached: v.optional(reachedSchema),
    /** The member that may start: the first one. */
    maker: memberIdSchema,
    /** Who is, or can be, a rank: in order of joining, but that the maker is the first. */
    members: v.pipe(v.array(lobbyMemberSchema), v.maxLength(limits.membersPerRoom)),
    /** The others in the room; default: none. */
    watchers: v.optional(v.pipe(v.array(lobbyMemberSchema), v.maxLength(limits.membersPerRoom))),
  }),
  /** To all but the maker; null: there are none yet. */
  v.object({ type: v.literal('proposed'), settings: json(limits.settingsBytes) }),
  v.object({ type: v.literal('ice'), iceServers: iceServersSchema }),
  /** From a neighbour, an onlooker, or the rank that this onlooker asks; stamped by the server. */
  v.object({
    type: v.literal('reach'),
    from: memberIdSchema,
    /** It went to all onlookers that ask its sender. */
    toWatchers: v.optional(v.boolean()),
    box: v.pipe(v.string(), v.maxLength(limits.boxChars)),
  }),
  /** From the maker, which has removed a member: as `reach`. */
  v.object({
    type: v.literal('moved'),
    from: memberIdSchema,
    box: v.pipe(v.string(), v.maxLength(limits.boxChars)),
  }),
  v.object({
    type: v.literal('assign'),
    epoch: epochSchema,
    /** Of an elastic run: the epoch with which it began. Later ones link newcomers to it. */
    run: v.optional(epochSchema),
    /** Of an elastic run. */
    key: v.optional(runKeySchema),
    /** How many of the members are newcomers to a run that has begun: the last ones. The links are theirs alone. */
    joining: v.optional(whole(1, newcomersAtOnce)),
    rank: rankSchema,
    worldSize: whole(1, limits.membersPerRoom),
    /** By rank. */
    members: v.pipe(v.array(assignedMemberSchema), v.maxLength(limits.membersPerRoom)),
    links: v.pipe(v.array(assignedLinkSchema), v.maxLength(meshLimit - 1)),
  }),
  v.object({
    type: v.literal('signal'),
    epoch: epochSchema,
    /** Stamped by the server. */
    from: rankSchema,
    attempt: whole(1, limits.attempts),
    box: v.pipe(v.string(), v.maxLength(limits.boxChars)),
  }),
  v.object({ type: v.literal('start'), epoch: epochSchema, settings: json(limits.settingsBytes) }),
  v.object({
    type: v.literal('abort'),
    epoch: epochSchema,
    /** Set by the server alone: what a member says in its own `abort` is text, and the code is then `peer.aborted`. */
    code: v.picklist(abortCodes),
    /** The ranks that it is about: that aborted, is gone or removed, were late, or have no link to each other. */
    ranks: v.pipe(v.array(rankSchema), v.maxLength(limits.membersPerRoom)),
    /** To a newcomer: the run continues without it, and links it `again` once it is heard, or not any more. */
    leftOut: v.optional(v.picklist(['again', 'barred'])),
    text: v.string(),
  }),
  v.object({ type: v.literal('finished'), epoch: epochSchema }),
  v.object({
    type: v.literal('half'),
    /** As in the question. */
    key: runKeySchema,
    ballot: ballotSchema,
    /** Who asked first; null where the server cannot know. */
    first: v.nullable(livesSchema),
  }),
  v.object({
    type: v.literal('gone'),
    id: memberIdSchema,
    name: v.string(),
    rank: v.nullable(rankSchema),
    text: v.string(),
    /** It said bye, or the maker removed it; false where its connection just ended: it may be alive. */
    hasLeft: v.boolean(),
    /** Of the newest roster of an elastic run that the server knows of; 0 for none. */
    ballot: v.number(),
  }),
  storedMessageSchema,
  v.object({ type: v.literal('ping') }),
  v.object({ type: v.literal('pong') }),
  v.object({
    type: v.literal('error'),
    code: v.picklist(refusals),
    text: v.string(),
    /** With `removed`: the name of the host that did it. */
    by: v.optional(v.string()),
    /** The type of the message that was refused, where there was one. */
    about: v.nullable(v.string()),
    /** The number of the store call that was refused, where it was one. */
    call: v.optional(whole(0, Number.MAX_SAFE_INTEGER)),
    /** The server closes the connection. */
    isFatal: v.boolean(),
  }),
])
/** To who enters a room. */
export type RoomServerMessage = v.InferOutput<typeof serverMessageSchema>
export type ServerMessage = RoomServerMessage | CodeServerMessage
export type Abort = Omit<Extract<ServerMessage, { type: 'abort' }>, 'type'>
export type Assignment = Omit<Extract<ServerMessage, { type: 'assign' }>, 'type'>
/** Who waits to be let in. */
export type Asks = Extract<ServerMessage, { type: 'asks' }>['asks']
export type Lobby = Omit<Extract<ServerMessage, { type: 'lobby' }>, 'type'>

export type Parsed<T> = { ok: true; message: T } | { ok: false; text: string }

/** Reads one message; a refusal's text says which field, what was expected and what came. */
export function parseMessage<T>(schema: v.GenericSchema<unknown, T>, raw: string): Parsed<T> {
  let value: unknown
  try {
    value = JSON.parse(raw)
  } catch {
    return { ok: false, text: 'expected JSON text' }
  }
  const result = v.safeParse(schema, value, { abortEarly: true })
  if (result.success) return { ok: true, message: result.output }
  const issue = result.issues[0]
  const path = clipped(v.getDotPath(issue) ?? 'message')
  const got = clipped(issue.received)
  return { ok: false, text: `${path}: expected ${issue.expected ?? issue.message}, got ${got}` }
}

export const parseServerMessage = (raw: string): Parsed<RoomServerMessage> =>
  parseMessage(serverMessageSchema, raw)
