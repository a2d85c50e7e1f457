/**
 * What a collective is called, and what two neighbours must agree on before a byte of it is written.
 *
 * Map: the table of operations - buckets, keys and names - announcements and their comparison.
 */
import type { RingPattern } from './schedule.ts'
import type { Fingerprint } from './wire.ts'

/** The index is the operation's number on the wire. */
const operations = [
  'none',
  'reduceScatter',
  'allGather',
  'allReduce',
  'broadcast',
  'barrier',
  'allGatherBytes',
  'allGatherU32',
] as const
export type Operation = Exclude<(typeof operations)[number], 'none'>

/** How each operation's bytes travel. */
export const patterns: Record<Operation, RingPattern> = {
  reduceScatter: 'reduceScatter',
  allGather: 'allGather',
  allReduce: 'allReduce',
  broadcast: 'broadcast',
  barrier: 'allGather',
  allGatherBytes: 'allGather',
  allGatherU32: 'allGather',
}

/** Callers' buckets end here; those above are the group's own. */
export const lastExplicitBucket = 65_000
/** Buckets of collectives that the group counts itself. */
export const countedBucket = 65_535
export const countedDataBucket = 65_534

export function isBucket(bucket: number): boolean {
  const isReserved = bucket === countedBucket || bucket === countedDataBucket
  return isReserved || (bucket >= 0 && bucket <= lastExplicitBucket)
}

/** As errors show it: `allReduce #42 bucket 0`; without the bucket where the group counts. */
export function nameOf(operation: string, sequence: number, bucket: number): string {
  return `${operation} #${sequence}${bucket <= lastExplicitBucket ? ` bucket ${bucket}` : ''}`
}

/** One number per (slot, sequence, bucket); below 2^49. An all-gather has a slot of its own (CollectiveOptions). */
export function keyOf(kind: number, sequence: number, bucket: number): number {
  const slot = operationOf(kind) === 'allGather' ? 1 : 0
  return (sequence * 65_536 + bucket) * 2 + slot
}

/** The operation in a frame's `kind`, in words. */
export function operationOf(kind: number): string {
  return operations[kind & 15] ?? `operation ${kind & 15}`
}

/** A frame's `kind`: the operation below, the element type above. */
export function kindOf(operation: Operation, typeCode: number): number {
  return operations.indexOf(operation) | (typeCode << 4)
}

/** What START says about a collective. */
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
    a.fingerprint.reduction === b.fingerprint.reduction
  )
}

function describe({ kind, fingerprint }: Announcement): string {
  const operation = operationOf(kind)
  const { elements, alignment, root, reduction } = fingerprint
  const details = [
    alignment === 1 ? '' : `alignment ${alignment}`,
    operation === 'broadcast' ? `root ${root}` : '',
    reduction === 1 ? 'mean' : '',
  ].filter(Boolean)
  return `${operation} of ${elements} elements of type ${kind >> 4}${details.length > 0 ? ` (${details.join(', ')})` : ''}`
}
