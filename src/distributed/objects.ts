/**
 * torch.distributed's functions for objects. What travels is text made by devalue, which holds what JSON holds and Map, Set, Date, BigInt,
 * typed arrays, undefined and cycles, and runs nothing when it is read; functions and instances of classes are refused.
 */
import { parse, stringify } from 'devalue'
import type { CollectiveGroup } from '../peer/collective-group.ts'
import { messageOf, PeerError } from '../util/errors.ts'
import { placeOf } from './place-of.ts'
import { getProcessGroup } from './process-group.ts'

function encode(where: string, value: unknown): Uint8Array {
  try {
    return new TextEncoder().encode(stringify(value))
  } catch (error) {
    throw new PeerError(
      'peer.mismatch',
      `${where}: expected plain objects, arrays, Maps, Sets, dates, typed arrays or texts, got something else (${messageOf(error)}). Send its parts.`,
    )
  }
}

const decode = <T>(bytes: Uint8Array): T => parse(new TextDecoder().decode(bytes)) as T

/** Bytes from one rank to all, whatever their length. */
async function broadcastBytes(
  group: CollectiveGroup,
  bytes: Uint8Array | undefined,
  place: number,
): Promise<Uint8Array> {
  const length = Uint32Array.of(bytes?.length ?? 0)
  await group.broadcast(length, place)
  const all = bytes ?? new Uint8Array(length[0])
  await group.broadcast(all, place)
  return all
}

/** Every rank's object, in rank order. PyTorch fills a list that is given. */
export async function allGatherObject<T>(
  object: T,
  group: CollectiveGroup = getProcessGroup(),
): Promise<T[]> {
  const told = await group.allGatherBytes(encode('allGatherObject', object))
  return told.map((bytes) => decode<T>(bytes))
}

/** Every rank's object, in rank order, on rank `dst` alone. */
export async function gatherObject<T>(
  object: T,
  dst = 0,
  group: CollectiveGroup = getProcessGroup(),
): Promise<T[] | undefined> {
  const place = placeOf('gatherObject', group, dst)
  const bytes = encode('gatherObject', object)
  const lengths = await group.allGatherU32(Uint32Array.of(bytes.length))
  const slot = new Uint8Array(Math.max(...lengths))
  slot.set(bytes)
  const all = group.rank === place ? new Uint8Array(slot.length * group.size) : undefined
  await group.gather(slot, all, place)
  return (
    all &&
    Array.from(lengths, (length, rank) =>
      decode<T>(all.subarray(rank * slot.length, rank * slot.length + length)),
    )
  )
}

/** Replaces the list's objects by those of rank `src`. The lists have one length. */
export async function broadcastObjectList(
  objects: unknown[],
  src = 0,
  group: CollectiveGroup = getProcessGroup(),
): Promise<void> {
  const place = placeOf('broadcastObjectList', group, src)
  const own = group.rank === place ? encode('broadcastObjectList', objects) : undefined
  const all = decode<unknown[]>(await broadcastBytes(group, own, place))
  if (all.length !== objects.length)
    throw new PeerError(
      'peer.mismatch',
      `broadcastObjectList: expected a list of ${all.length} as on rank ${src}, got one of ${objects.length} on rank ${group.ranks[group.rank]}.`,
    )
  if (!own) objects.splice(0, objects.length, ...all)
}

/** This rank's object of rank `src`'s list, which has one for each rank; others give no list. PyTorch fills a list of one. */
export async function scatterObjectList<T>(
  objects: readonly T[] | undefined,
  src = 0,
  group: CollectiveGroup = getProcessGroup(),
): Promise<T> {
  const place = placeOf('scatterObjectList', group, src)
  const isRoot = group.rank === place
  if (isRoot && objects?.length !== group.size)
    throw new PeerError(
      'peer.mismatch',
      `scatterObjectList: expected a list of ${group.size} on rank ${src}, one for each rank, got ${objects?.length ?? 'none'}.`,
    )
  const parts = isRoot ? objects!.map((one) => encode('scatterObjectList', one)) : []
  const lengths = isRoot
    ? Uint32Array.from(parts, (part) => part.length)
    : new Uint32Array(group.size)
  await group.broadcast(lengths, place)
  const slotBytes = Math.max(...lengths)
  const all = isRoot ? new Uint8Array(slotBytes * group.size) : undefined
  for (const [at, part] of parts.entries()) all!.set(part, at * slotBytes)
  const own = new Uint8Array(slotBytes)
  await group.scatter(all, own, place)
  return decode<T>(own.subarray(0, lengths[group.rank]))
}
