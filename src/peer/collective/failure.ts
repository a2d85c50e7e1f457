/**
 * The error that ends an epoch, or one of its groups, on every rank: each fact once.
 *
 * The rank that notices it makes one record, which ABORT carries from rank to rank unchanged. Its text says which rank, what
 * and why, behind the name of the operation that noticed it, if one did. Each rank adds what the record leaves out:
 *
 *     record, the group                     allReduce #4 bucket 0: rank 2 waited 30000 ms for chunk 1 from rank 1; ...
 *     that collective, all ranks            allReduce #4 bucket 0: rank 2 waited ...
 *     others                    barrier #7: allReduce #4 bucket 0: rank 2 waited ...
 *
 * That a rank is lost comes first, and the operation behind it: rank 0 lost rank 1: it left (...). ... (allReduce #4 bucket 0)
 */
import { isErrorCode } from '../../util/error-codes.ts'
import { type ErrorCode, endFactsOf, PeerError, RunError } from '../../util/errors.ts'
import type { LinkEnd } from '../link/link.ts'
import type { AbortRecord } from '../link/wire.ts'

/** Codes that say that a rank or a link is lost or broken; all groups need both. */
const ofAllGroups: readonly string[] = ['peer.lost', 'peer.protocol'] satisfies ErrorCode[]

/**
 * `error` in `group` as the rank `origin` sends it to the others: without a room's epoch, and never without a rank. Only an error that
 * accuses neither ranks nor links leaves the other groups as they are.
 */
export function recordOf(
  error: PeerError,
  origin: number,
  epoch: number,
  group: number,
): AbortRecord {
  const text = withoutEpoch(error.message, epoch)
  const lost = endFactsOf(error).ranks?.[0] ?? null
  const ends = ofAllGroups.includes(error.code) ? 0 : group
  return withRank({ group: ends, origin, lost, code: error.code, text }, origin)
}

/** `record`, which `rank` has made or passed on; whatever it says, a rank is named. */
export const withRank = (record: AbortRecord, rank: number): AbortRecord =>
  /\brank \d/.test(record.text) ? record : { ...record, text: `rank ${rank}: ${record.text}` }

/** Codes that the room's server alone sends: no rank can have it said in its name. */
const ofServer: readonly string[] = ['peer.removed', 'peer.late'] satisfies ErrorCode[]

/** Returns the error that ended the epoch or the group, as it reports it. */
export function epochError(record: AbortRecord, cause?: PeerError): PeerError {
  const { code: given, lost, text } = record
  const code = isErrorCode(given) && !ofServer.includes(given) ? given : 'peer.aborted'
  return lost === null
    ? new PeerError(code, text, { cause })
    : new RunError(code, text, { ranks: [lost] }, { cause })
}

/** Returns the error that ended the epoch, as the collective `name` reports it; `cause` is the group's error. */
export function collectiveError(name: string, record: AbortRecord, cause: PeerError): PeerError {
  const text = without(`${name}: `, record.text)
  const whole = cause.code === 'peer.lost' ? `${text} (${name})` : `${name}: ${text}`
  return new PeerError(cause.code, whole, { cause })
}

/** What to do where a loss ends the run. */
export const lossRemedy = ' Start again without it, or reload all tabs.'

/** The text of a rank's loss; `end` is that of its link. */
export function lostText(rank: number, peerRank: number, { why, detail }: LinkEnd): string {
  const reason = detail.replace(/\.$/, '')
  const news = { bye: `it left (${reason})`, timeout: `it stopped answering (${reason})` }
  const how = Object.hasOwn(news, why) ? news[why as keyof typeof news] : reason
  return `rank ${rank} lost rank ${peerRank}: ${how}.${lossRemedy}`
}

/** Text of a rank to those that begin what it has refused, behind the operation's name. */
export const refusedText = (rank: number, reason: string): string =>
  `rank ${rank} refused this call: ${reason}`

/** Returns the record of a rank that stood still itself, in the place of those that it misses or that gave it up; `record` where it did not. */
export function ownRecord(record: AbortRecord, rank: number, stoodStillMs: number): AbortRecord {
  const isLoss = record.code === 'peer.lost' || record.code === 'peer.timeout'
  if (stoodStillMs === 0 || !isLoss) return record
  const text = `rank ${rank} stood still for ${Math.round(stoodStillMs / 1000)} s, and the others gave it up: its tab or process was suspended, or its machine slept. Keep it awake, and start again.`
  return { group: 0, origin: rank, lost: rank, code: 'peer.lost', text }
}

/** `text` for a place that names the epoch itself: without the room's `epoch 1: ` in front. */
export const withoutEpoch = (text: string, epoch: number): string =>
  without(`epoch ${epoch}: `, text)

/** `text` for a place that says `start` itself. */
export function without(start: string, text: string): string {
  return text.startsWith(start) ? text.slice(start.length) : text
}
