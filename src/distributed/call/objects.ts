/**
 * torch.distributed's functions for objects. What travels is text made by devalue, which holds what JSON holds and Map, Set, Date, BigInt,
 * typed arrays, undefined and cycles, and runs nothing when it is read; functions and instances of classes are refused.
 *
 * Lists are filled in place, as in PyTorch, and returned. Outside of the group nothing happens.
 */
import { parse, stringify } from 'devalue'
import { longestAnnounced } from '../../peer/group/announced-length.ts'
import { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { secondHalf } from '../../peer/group/group-calls.ts'
import { calledAs } from '../../util/called-as.ts'
import { ArgumentTypeError, messageOf, PeerError } from '../../util/errors.ts'
import { kindOf } from '../../util/kind-of.ts'
import { checkOptions } from '../../util/options.ts'
import { groupOf } from '../group/group-of.ts'
import { checkRank, placeOf } from '../group/place-of.ts'
import { type GroupOptions, refuseInTrace, refusing } from './call.ts'
import { checkCount, checkRootList } from './tensor-lists.ts'

function encode(where: string, name: string, value: unknown): Uint8Array {
  try {
    return new TextEncoder().encode(stringify(value))
  } catch (error) {
    throw new PeerError(
      'peer.mismatch',
      `${where}: ${name} must be plain objects, arrays, Maps, Sets, dates, typed arrays or strings, got something that cannot be sent (${messageOf(error)}). Send its parts.`,
    )
  }
}

/** `rank`: among all, who has sent it. errors: `peer.protocol` for what `encode` has not made. */
function decode<T>(where: string, rank: number | undefined, bytes: Uint8Array): T {
  try {
    return parse(new TextDecoder().decode(bytes)) as T
  } catch (cause) {
    throw new PeerError(
      'peer.protocol',
      `${where}: rank ${rank} sent ${bytes.length} bytes that are not an object. Call the same functions on all ranks.`,
      { cause },
    )
  }
}

/** Bytes from one rank to all, whatever their length. */
async function broadcastBytes(
  where: string,
  group: CollectiveGroup,
  bytes: Uint8Array | undefined,
  place: number,
): Promise<Uint8Array> {
  const turn = group.reserve()
  const length = Uint32Array.of(bytes?.length ?? 0)
  await group.broadcast(length, place, { label: where, ...turn })
  const longest = longestAnnounced(where, group, length, { slots: 1, rankOf: () => place })
  const all = bytes ?? new Uint8Array(longest)
  await group.broadcast(all, place, { label: where, ...secondHalf(turn) })
  return all
}

/** Stores every rank's object in `objectList`, in rank order, and returns the list. It has one place per rank. */
export async function allGatherObject<T>(
  objectList: T[],
  object: T,
  options: GroupOptions = {},
): Promise<T[]> {
  const where = 'allGatherObject'
  const group = openGroup(where, options)
  if (!group) return objectList
  const bytes = group.refusing(where, {}, () => {
    checkCount(where, 'objectList', objectList, group.size)
    return encode(where, 'object', object)
  })
  const received = await group.allGatherBytes(bytes, { label: where })
  return fill(where, group, objectList, received)
}

/**
 * Stores every rank's object in `objectGatherList` of rank `dst`, in rank order, and returns the list there. It has one place per rank; the
 * other ranks pass no list.
 */
export async function gatherObject<T>(
  object: T,
  objectGatherList?: T[] | null,
  dst = 0,
  options: GroupOptions = {},
): Promise<T[] | undefined> {
  const where = 'gatherObject'
  refusing(where, options, () => checkRank(where, 'dst', dst))
  const group = openGroup(where, options)
  if (!group) return undefined
  const { place, list, bytes } = group.refusing(where, {}, () => {
    const place = placeOf(where, 'dst', group, dst)
    checkRootList(where, 'objectGatherList', objectGatherList, group, dst)
    const list = group.rank === place ? objectGatherList! : undefined
    if (list) checkCount(where, 'objectGatherList', list, group.size)
    return { place, list, bytes: encode(where, 'object', object) }
  })
  const turn = group.reserve()
  const lengths = await group.allGatherU32(Uint32Array.of(bytes.length), { label: where, ...turn })
  const slot = new Uint8Array(longestAnnounced(where, group, lengths))
  slot.set(bytes)
  const all = list && new Uint8Array(slot.length * group.size)
  await calledAs(where, 'gather', () =>
    group.gather(slot, all, place, { label: where, ...secondHalf(turn) }),
  )
  if (!list) return undefined
  const parts = Array.from(lengths, (length, rank) =>
    all!.subarray(rank * slot.length, rank * slot.length + length),
  )
  return fill(where, group, list, parts)
}

/** Replaces the objects of the list by those of rank `src`. All lists have the same length. */
export async function broadcastObjectList(
  objectList: unknown[],
  src = 0,
  options: GroupOptions = {},
): Promise<void> {
  const where = 'broadcastObjectList'
  refusing(where, options, () => checkRank(where, 'src', src))
  const group = openGroup(where, options)
  if (!group) return
  const { place, own } = group.refusing(where, {}, () => {
    const place = placeOf(where, 'src', group, src)
    checkCount(where, 'objectList', objectList)
    return {
      place,
      own: group.rank === place ? encode(where, 'objectList', objectList) : undefined,
    }
  })
  const all = decode(where, src, await broadcastBytes(where, group, own, place))
  if (!Array.isArray(all))
    throw new PeerError(
      'peer.protocol',
      `${where}: rank ${src} sent ${kindOf(all)} in place of its list. Call the same functions on all ranks.`,
    )
  if (all.length !== objectList.length)
    throw new PeerError(
      'peer.mismatch',
      `${where}: expected a list of ${all.length} as on rank ${src}, got one of ${objectList.length} on rank ${group.ranks[group.rank]}. Use lists of the same length.`,
    )
  if (!own) objectList.splice(0, objectList.length, ...all)
}

/**
 * Stores this rank's object of the input list of rank `src` at the first place of `outputList`, and returns it; undefined outside the group.
 * The input list has one object per rank. The input lists of the other ranks are ignored, as in PyTorch.
 */
export async function scatterObjectList<T>(
  outputList: T[],
  inputList?: readonly T[] | null,
  src = 0,
  options: GroupOptions = {},
): Promise<T | undefined> {
  const where = 'scatterObjectList'
  refusing(where, options, () => checkRank(where, 'src', src))
  const group = openGroup(where, options)
  if (!group) return undefined
  const { place, isRoot, parts } = group.refusing(where, {}, () => {
    const place = placeOf(where, 'src', group, src)
    checkCount(where, 'outputList', outputList)
    if (outputList.length === 0)
      throw new PeerError(
        'peer.mismatch',
        `${where}: outputList must have a place for this rank's object, got an empty list. Write [undefined].`,
      )
    const isRoot = group.rank === place
    if (isRoot) checkCount(where, 'inputList', inputList ?? [], group.size)
    return {
      place,
      isRoot,
      parts: isRoot ? inputList!.map((one, n) => encode(where, `inputList[${n}]`, one)) : [],
    }
  })
  const lengths = isRoot
    ? Uint32Array.from(parts, (part) => part.length)
    : new Uint32Array(group.size)
  const turn = group.reserve()
  await group.broadcast(lengths, place, { label: where, ...turn })
  const slotBytes = longestAnnounced(where, group, lengths, { rankOf: () => place })
  const all = isRoot ? new Uint8Array(slotBytes * group.size) : undefined
  for (const [at, part] of parts.entries()) all!.set(part, at * slotBytes)
  const own = new Uint8Array(slotBytes)
  await group.scatter(all, own, place, { label: where, ...secondHalf(turn) })
  const object = decode<T>(where, src, own.subarray(0, lengths[group.rank]))
  outputList[0] = object
  return object
}

function openGroup(where: string, options: GroupOptions): CollectiveGroup | undefined {
  refuseInTrace(where)
  const { group } = refusing(where, options, () => {
    if (options instanceof CollectiveGroup)
      throw new ArgumentTypeError(
        `${where}: options must be an object (group), got a group. Write { group }.`,
      )
    return checkOptions(where, options, { group: true })
  })
  return groupOf(where, group)
}

function fill<T>(
  where: string,
  { ranks }: CollectiveGroup,
  list: T[],
  received: readonly Uint8Array[],
): T[] {
  for (const [place, bytes] of received.entries())
    list[place] = decode<T>(where, ranks[place], bytes)
  return list
}
