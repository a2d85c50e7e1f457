import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import type { NewGroupOptions } from '../../peer/group/group.ts'
import type { NonGroupMember } from '../../peer/group/non-group-member.ts'
import { TabringError } from '../../util/errors.ts'
import { checkNumber, isCount } from '../../util/options.ts'
import { getProcessGroup } from './process-group.ts'

/** This rank's group, or undefined in none; and all of them, in order, with `GroupMember.NON_GROUP_MEMBER` where this rank is outside. */
export type Subgroups = [
  current: CollectiveGroup | undefined,
  subgroups: (CollectiveGroup | NonGroupMember)[],
]

/**
 * Groups of `groupSize` ranks each, in the order of ranks; without a size one for each machine. As torch.distributed.new_subgroups, whose
 * size by default is the number of a machine's devices: all ranks call it alike.
 *
 * errors: `config.invalid` for a size that does not divide the world size, or none where machines are not known; as `newGroup`'s.
 */
export async function newSubgroups(
  groupSize?: number,
  group = getProcessGroup('newSubgroups'),
  options: NewGroupOptions = {},
): Promise<Subgroups> {
  const { size, machines } = group
  const isDivisor = (count: number) => isCount(count) && size % count === 0
  checkNumber('newSubgroups', 'groupSize', groupSize, isDivisor, `a divisor of ${size} ranks`)
  if (groupSize === undefined && !machines) {
    throw new TabringError(
      'config.invalid',
      'newSubgroups: expected a groupSize, since links made by hand do not say which ranks share a machine, got none. Give it.',
    )
  }
  const keys = group.ranks.map((rank) =>
    groupSize === undefined ? machines![rank]! : Math.floor(rank / groupSize),
  )
  const lists = [...new Set(keys)].map((key) => group.ranks.filter((rank) => keys[rank] === key))
  return newSubgroupsByEnumeration(lists, group, options)
}

/**
 * Groups of the ranks that each list names, which share none; some may be in none. As torch.distributed.new_subgroups_by_enumeration: all
 * ranks call it alike.
 *
 * errors: `config.invalid` for no list, or a rank in two; as `newGroup`'s.
 */
export async function newSubgroupsByEnumeration(
  ranksPerSubgroup: readonly (readonly number[])[],
  group = getProcessGroup('newSubgroupsByEnumeration'),
  options: NewGroupOptions = {},
): Promise<Subgroups> {
  const all = ranksPerSubgroup.flat()
  const twice = all.find((rank, at) => all.indexOf(rank) !== at)
  if (all.length === 0 || twice !== undefined) {
    const got = twice === undefined ? 'none' : `rank ${twice} twice`
    throw new TabringError(
      'config.invalid',
      `newSubgroupsByEnumeration: expected lists of ranks, each rank in one of them, got ${got}. Write [[0, 1], [2, 3]].`,
    )
  }
  const subgroups: Subgroups[1] = []
  let current: CollectiveGroup | undefined
  // One after the other: all ranks make the same groups in the same order.
  for (const ranks of ranksPerSubgroup) {
    const made = await group.newGroup(ranks, options)
    subgroups.push(made)
    if (typeof made === 'object') current = made
  }
  return [current, subgroups]
}
