/**
 * What is checked of tensors and lists of them before a call begins, and how lists become one array and back.
 *
 * errors of all: `peer.mismatch` for another number, length or type; a TypeError for what is no list or no tensor.
 */

import { type ElementArray, type ElementTypeName, sameType } from '../../peer/collective/element.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { ArgumentTypeError, PeerError } from '../../util/errors.ts'
import { kindOf } from '../../util/kind-of.ts'
import { arrayOf, type Contents, elementNameOf, lengthOf, putBack } from './contents.ts'

/** What a tensor must be. */
interface Form {
  type: ElementTypeName
  /** units: elements. */
  length: number
}

/** What `tensor` is, and so what the other tensors of its call must be, of `times` its length. */
export function formOf(where: string, name: string, tensor: Contents, times = 1): Form {
  const type = elementNameOf(where, name, tensor)
  return { type, length: times * lengthOf(tensor) }
}

/** Refuses a tensor of another form. */
export function checkTensor(where: string, name: string, tensor: Contents, expected: Form): void {
  const got = formOf(where, name, tensor)
  if (got.type === expected.type && got.length === expected.length) return
  throw new PeerError(
    'peer.mismatch',
    `${where}: expected ${name} to have ${expected.length} elements of ${expected.type}, got ${got.length} of ${got.type}. Use one type for all tensors of a call, and the right length for each.`,
  )
}

/** Refuses a list that has not one tensor of this form for each rank. */
export function checkTensorList(
  where: string,
  name: string,
  list: readonly Contents[],
  { size }: CollectiveGroup,
  expected: Form,
): void {
  checkCount(where, name, list, size)
  for (const [at, tensor] of list.entries()) checkTensor(where, `${name}[${at}]`, tensor, expected)
}

/** Refuses what is no list, or, with `size`, one that has not one entry for each rank. */
export function checkCount(
  where: string,
  name: string,
  list: readonly unknown[],
  size = list?.length,
): void {
  if (!Array.isArray(list)) {
    throw new ArgumentTypeError(
      `${where}: ${name} must be an array, got ${kindOf(list)}. Write [one, another].`,
    )
  }
  if (list.length === size) return
  throw new PeerError(
    'peer.mismatch',
    `${where}: expected ${name} to have ${size} entries, one for each rank of the group, got ${list.length}. Pass one entry per rank.`,
  )
}

/** Refuses a list on ranks that are not `root`, and none on it. `list`: empty is as good as none. */
export function checkRootList(
  where: string,
  name: string,
  list: readonly unknown[] | null | undefined,
  { rank, ranks }: CollectiveGroup,
  root: number,
): void {
  const isRoot = ranks[rank] === root
  const hasList = list !== undefined && list !== null && list.length !== 0
  if (isRoot === hasList) return
  throw new PeerError(
    'peer.mismatch',
    `${where}: only rank ${root} must pass ${name}, got ${hasList ? 'one' : 'none'} on rank ${ranks[rank]}. Pass ${hasList ? 'undefined here' : 'one entry per rank'}.`,
  )
}

/** Tensors of one form, one after the other. */
export async function joined(parts: readonly Contents[]): Promise<ElementArray> {
  const arrays = await Promise.all(parts.map(arrayOf))
  const { length } = arrays[0]
  const all = sameType(arrays[0], length * arrays.length)
  for (const [at, array] of arrays.entries()) all.set(array, at * length)
  return all
}

/** The inverse of `joined`. */
export function spread(all: ElementArray, parts: readonly Contents[]): void {
  const length = all.length / parts.length
  for (const [at, part] of parts.entries())
    putBack(part, all.subarray(at * length, (at + 1) * length))
}

/** Runs on a tensor's array, and puts the array back. */
export async function inPlace(
  tensor: Contents,
  run: (array: ElementArray) => Promise<void>,
): Promise<void> {
  const array = await arrayOf(tensor)
  await run(array)
  putBack(tensor, array)
}

/** The list of the rank `root`, which alone passes one; undefined on the others. Refuses any other use. */
export function rootTensorList(
  where: string,
  name: string,
  list: readonly Contents[] | null | undefined,
  group: CollectiveGroup,
  root: number,
  expected: Form,
): readonly Contents[] | undefined {
  checkRootList(where, name, list, group, root)
  if (group.ranks[group.rank] !== root) return undefined
  checkTensorList(where, name, list!, group, expected)
  return list!
}
