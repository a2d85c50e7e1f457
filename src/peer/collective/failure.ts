/**
 * How the end of an epoch is told on every rank, each fact once.
 *
 * The rank that notices it makes one record, which ABORT carries from rank to rank unchanged. Its text says which rank, what
 * and why, behind the name of the operation that noticed it, if one did. Whoever shows it adds what the record leaves out:
 *
 *     record                               allReduce #4 bucket 0: rank 2 waited 30000 ms for chunk 1 from rank 1; ...
 *     the group                  epoch 1: allReduce #4 bucket 0: rank 2 waited ...
 *     that collective, all ranks           allReduce #4 bucket 0 (epoch 1): rank 2 waited ...
 *     others          barrier #7 (epoch 1): allReduce #4 bucket 0: rank 2 waited ...
 */
import { type ErrorCode, errorCodes, PeerError } from '../../util/errors.ts'
import type { AbortRecord } from '../link/wire.ts'

/** `error` as the rank `origin` tells it to the others: without the epoch, and never without a rank. */
export function recordOf(error: PeerError, origin: number, epoch: number): AbortRecord {
  const text = withoutEpoch(error.message, epoch)
  return {
    origin,
    code: error.code,
    text: /\brank \d/.test(text) ? text : `rank ${origin}: ${text}`,
  }
}

/** What ended the epoch, as the group reports it. */
export function epochError(record: AbortRecord, epoch: number, cause?: PeerError): PeerError {
  const code = Object.hasOwn(errorCodes, record.code) ? (record.code as ErrorCode) : 'peer.aborted'
  return new PeerError(code, `epoch ${epoch}: ${record.text}`, { cause })
}

/** What ended the epoch, as the collective `name` reports it; `cause` is the group's error. */
export function collectiveError(
  name: string,
  record: AbortRecord,
  epoch: number,
  cause: PeerError,
): PeerError {
  const text = without(`${name}: `, record.text)
  return new PeerError(cause.code, `${name} (epoch ${epoch}): ${text}`, { cause })
}

/** `text` for a place that names the epoch itself: without `epoch 1: ` in front, or ` (epoch 1)` behind an operation. */
export function withoutEpoch(text: string, epoch: number): string {
  return without(`epoch ${epoch}: `, text).replace(` (epoch ${epoch}): `, ': ')
}

/** `text` for a place that says `start` itself. */
export function without(start: string, text: string): string {
  return text.startsWith(start) ? text.slice(start.length) : text
}
