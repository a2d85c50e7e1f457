/**
 * Name of a collective, and what ranks must agree on before a byte of it is written.
 *
 * Map: the table of operations - buckets, keys and names - announcements and their comparison.
 */

import { algorithms, type Operation, operations } from '../algorithms/operations.ts'
import { type Fingerprint, labelBytes } from '../link/wire.ts'
import { elementTypeName, reduceOps } from './element.ts'

const rooted: readonly string[] = ['broadcast', 'reduce', 'gather', 'scatter']
const reducing: readonly string[] = ['reduceScatter', 'allReduce', 'reduce']

/** Callers' buckets end here; those above are the group's own. */
export const lastExplicitBucket = 65_000
/** Buckets of collectives that the group counts itself. */
export const countedBucket = 65_535
export const countedDataBucket = 65_534
/** The tag of a monitored barrier's messages, which no caller's can have. */
export const monitorTag = 65_533

const ownBuckets: readonly number[] = [countedBucket, countedDataBucket, monitorTag]

/** Returns whether callers may give it, as a bucket or as a message's tag. */
export const isTag = (tag: number): boolean =>
  Number.isInteger(tag) && tag >= 0 && tag <= lastExplicitBucket

export function isBucket(bucket: number): boolean {
  return ownBuckets.includes(bucket) || isTag(bucket)
}

/**
 * As errors show it: `allReduce #42 bucket 0`; without the bucket where the group counts, with the group where it is not the first, and
 * behind what it is called for, as in `newGroup via allGatherU32 #0`.
 */
export function nameOf(
  operation: string,
  sequence: number,
  bucket: number,
  group = 0,
  label = '',
): string {
  return `${isPart(operation, label) ? `${label} via ` : ''}${operation} #${sequence}${bucket <= lastExplicitBucket ? ` bucket ${bucket}` : ''}${group > 0 ? ` of group ${group}` : ''}`
}

/** Returns whether it is called for something that has another name. */
const isPart = (operation: string, label: string): boolean => label !== '' && label !== operation

/** Returns whether START has room for a label, and errors can show it. */
export const isLabel = (label: string): boolean =>
  label.length <= labelBytes && /^[ -~]*$/.test(label)

/** Key that distinguishes the collectives of a group. `pair`: sender and receiver of a message between two. */
export interface CollectiveKey {
  readonly group: number
  readonly kind: number
  readonly sequence: number
  readonly bucket: number
  readonly pair?: string
}

/**
 * One text per (group, slot, sequence, bucket). Each pair has a separate slot, and so has an all-gather whose key the caller names
 * (CollectiveOptions); those that the group counts share one slot, since no two have the same number.
 */
export function keyOf({ group, kind, sequence, bucket, pair }: CollectiveKey): string {
  const isGather = operationOf(kind) === 'allGather' && bucket <= lastExplicitBucket
  const slot = pair ?? (isGather ? 'gather' : '')
  return `${group}/${sequence}/${bucket}/${slot}`
}

/** The slot of messages from one rank to another. */
export const pairOf = (sender: number, receiver: number): string => `${sender}>${receiver}`

/** The operation in a frame's `kind`, in words. */
export function operationOf(kind: number): string {
  return operations[kind & 15] ?? `operation ${kind & 15}`
}

/** A frame's `kind`: the operation below, the element type above. */
export function kindOf(operation: Operation, typeCode: number): number {
  return operations.indexOf(operation) | (typeCode << 4)
}

/** A number for who shares a machine, above 0; undefined is 0. Different layouts have different ones as a rule. source: FNV-1a. */
export const layoutHash = (machines: readonly number[] | undefined): number =>
  machines
    ? machines.reduce((hash, one) => Math.imul(hash ^ (one + 1), 16_777_619), 2_166_136_261) >>> 0
    : 0

/** Contents of START about a collective. */
export interface Announcement {
  kind: number
  fingerprint: Fingerprint
}

/** Returns how `own` and `theirs` differ, naming both ranks; undefined when they agree. */
export function disagreement(
  rank: number,
  own: Announcement,
  theirRank: number,
  theirs: Announcement,
): string | undefined {
  if (isSame(own, theirs)) return undefined
  return `ranks disagree: rank ${rank} runs ${describe(own)}, rank ${theirRank} runs ${describe(theirs)}. Every rank must call the same collectives with the same lengths.`
}

function isSame(a: Announcement, b: Announcement): boolean {
  return (
    a.kind === b.kind &&
    a.fingerprint.elements === b.fingerprint.elements &&
    a.fingerprint.alignment === b.fingerprint.alignment &&
    a.fingerprint.root === b.fingerprint.root &&
    a.fingerprint.reduction === b.fingerprint.reduction &&
    a.fingerprint.algorithm === b.fingerprint.algorithm &&
    a.fingerprint.machines === b.fingerprint.machines &&
    a.fingerprint.label === b.fingerprint.label
  )
}

/** A collective in words. */
export function describe({ kind, fingerprint }: Announcement): string {
  const operation = operationOf(kind)
  const { elements, alignment, root, reduction, algorithm, machines, label } = fingerprint
  const details = [
    alignment === 1 ? '' : `alignment ${alignment}`,
    rooted.includes(operation) ? `root ${root}` : '',
    reducing.includes(operation) && reduction > 0
      ? (reduceOps[reduction] ?? `op ${reduction}`)
      : '',
    algorithm > 0 ? (algorithms[algorithm] ?? `algorithm ${algorithm}`) : '',
    machines > 0 ? `machines ${machines.toString(16)}` : '',
  ].filter(Boolean)
  const what = operation === 'send' ? `a message from rank ${root}` : operation
  return `${isPart(operation, label) ? `${label}, via ` : ''}${what} of ${elements} elements of ${elementTypeName(kind >> 4)}${details.length > 0 ? ` (${details.join(', ')})` : ''}`
}
