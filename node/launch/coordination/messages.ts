import * as v from 'valibot'

/**
 * What launchers of one run say to each other: JSON text over a WebSocket to the leader, which is the launcher of rank 0.
 *
 *   launcher                 leader
 *    <- challenge              nonce
 *    hello ->                  who, for which run, and the proof of the key
 *    <- welcome | refused      the leader's own proof
 *    <- start                  all are there: which ranks are whose, and which start this is
 *    failed ->                 one of its ranks has failed
 *    <- stop                   close your tabs
 *    ended ->                  its tabs have ended or are closed
 *    <- start | finish         once more, or the end and how it went
 */
export const launchersPath = '/launchers'
export const coordinationVersion = 1

const whole = (minimum: number, maximum: number) =>
  v.pipe(v.number(), v.safeInteger(), v.minValue(minimum), v.maxValue(maximum))
const hex32 = v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/))
const text = (chars: number) => v.pipe(v.string(), v.maxLength(chars))
const rank = whole(0, 65_535)

const placeEntries = {
  nodeRank: rank,
  /** Of the launcher's first tab. */
  localRank: rank,
  localWorldSize: whole(1, 65_536),
}

/** What one launcher brings. */
const launcherMemberSchema = v.object({
  /** Its place among all launchers; null: whichever is free. */
  index: v.nullable(rank),
  /** For people. */
  name: text(100),
  tabs: whole(1, 1024),
  /** Where several launchers are on one machine (one a Slurm task): which one this is there. */
  place: v.nullable(v.object(placeEntries)),
})
export type LauncherMember = v.InferOutput<typeof launcherMemberSchema>

const failureSchema = v.object({
  /** Null when a launcher failed, not a rank. */
  rank: v.nullable(rank),
  /** The launcher's name. */
  host: text(100),
  /** Of Tabring's errors; else empty. */
  code: text(100),
  /** What happened, with the stack where there is one. */
  text: text(20_000),
  /** Absent where that is not known. */
  hasTrained: v.optional(v.boolean()),
})
/** Why a run failed. */
export type Failure = v.InferOutput<typeof failureSchema>

/** Which ranks a launcher has in one start of a run. */
const partSchema = v.object({
  ...placeEntries,
  /** Counts starts from 0: RESTART_COUNT. */
  attempt: whole(0, 1_000_000),
  firstRank: rank,
  worldSize: whole(1, 65_536),
})
export type Part = v.InferOutput<typeof partSchema>

export const fromMemberSchema = v.variant('type', [
  v.object({
    type: v.literal('hello'),
    version: v.literal(coordinationVersion),
    runId: text(200),
    nonce: hex32,
    proof: hex32,
    launchers: whole(1, 65_536),
    member: launcherMemberSchema,
  }),
  v.object({ type: v.literal('failed'), attempt: rank, failure: failureSchema }),
  v.object({ type: v.literal('ended'), attempt: rank }),
])
export type FromMember = v.InferOutput<typeof fromMemberSchema>
export type Hello = Extract<FromMember, { type: 'hello' }>
export type Report = Exclude<FromMember, Hello>

export const orderSchema = v.variant('type', [
  v.object({ type: v.literal('start'), part: partSchema }),
  v.object({ type: v.literal('stop'), attempt: rank }),
  v.object({ type: v.literal('finish'), failure: v.nullable(failureSchema) }),
])
/** What the leader tells a launcher that is in. */
export type Order = v.InferOutput<typeof orderSchema>

export const toMemberSchema = v.union([
  orderSchema,
  v.variant('type', [
    v.object({ type: v.literal('challenge'), version: v.number(), nonce: hex32 }),
    v.object({ type: v.literal('welcome'), proof: hex32 }),
    // `isStranger`: it is of another run, or has another key.
    v.object({ type: v.literal('refused'), text: text(1000), isStranger: v.boolean() }),
  ]),
])
export type ToMember = v.InferOutput<typeof toMemberSchema>
