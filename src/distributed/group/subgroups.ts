import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { type NewGroupOptions, ProcessGroup } from '../../peer/group/group.ts'
import type { NonGroupMember } from '../../peer/group/non-group-member.ts'
import { calledAs } from '../../util/called-as.ts'
import { TabringError } from '../../util/errors.ts'
import { checkArgument, checkList, checkNumber, isCount } from '../../util/options.ts'
import { getProcessGroup } from './process-group.ts'

/** This rank's group, or undefined if it is in none; then all groups in order, with `GroupMember.NON_GROUP_MEMBER` for those without this rank. */
export type Subgroups = [
  current: CollectiveGroup | undefined,
  subgroups: (CollectiveGroup | NonGroupMember)[],
]

const checkGroup = (where: string, group: ProcessGroup) =>
  checkArgument(where, 'group', group, group instanceof ProcessGroup, 'the group of all ranks')

/**
 * Creates groups of `groupSize` consecutive ranks; without a size, one group per machine.
 *
 * As torch.distributed.new_subgroups, whose default size is the number of devices of a machine. All ranks call it with the same arguments.
 * errors: `config.invalid` for a size that does not divide the world size, or no size if the machines are unknown; those of `newGroup`.
 */
export async function newSubgroups(
  groupSize?: number,
  group = getProcessGroup('newSubgroups'),
  options: NewGroupOptions = {},
): Promise<Subgroups> {
  checkGroup('newSubgroups', group)
  const { size, machines } = group
  const isDivisor = (count: number) => isCount(count) && size % count === 0
  checkNumber('newSubgroups', 'groupSize', groupSize, isDivisor, `a divisor of ${size} ranks`)
  if (groupSize === undefined && !machines) {
    throw new TabringError(
      'config.invalid',
      'newSubgroups: groupSize is missing, and links passed by the caller do not say which ranks share a machine. Pass groupSize.',
    )
  }
  const keys = group.ranks.map((rank) =>
    groupSize === undefined ? machines![rank]! : Math.floor(rank / groupSize),
  )
  const lists = [...new Set(keys)].map((key) => group.ranks.filter((rank) => keys[rank] === key))
  return calledAs('newSubgroups', 'newSubgroupsByEnumeration', () =>
    newSubgroupsByEnumeration(lists, group, options),
  )
}

/**
 * Creates one group for each list of ranks: torch.distributed.new_subgroups_by_enumeration. Lists may not share ranks, and may omit some.
 *
 * All ranks call it with the same arguments. errors: `config.invalid` for no list, or a rank in two lists; those of `newGroup`.
 */
export async function newSubgroupsByEnumeration(
  ranksPerSubgroup: readonly (readonly number[])[],
  group = getProcessGroup('newSubgroupsByEnumeration'),
  options: NewGroupOptions = {},
): Promise<Subgroups> {
  checkGroup('newSubgroupsByEnumeration', group)
  checkList(
    'newSubgroupsByEnumeration',
    'ranksPerSubgroup',
    ranksPerSubgroup,
    Array.isArray,
    'lists of ranks',
  )
  const all = ranksPerSubgroup.flat()
  const twice = all.find((rank, at) => all.indexOf(rank) !== at)
  if (all.length === 0 || twice !== undefined) {
    const got = twice === undefined ? 'none' : `rank ${twice} twice`
    throw new TabringError(
      'config.invalid',
      `newSubgroupsByEnumeration: ranksPerSubgroup must be lists of ranks, each rank in at most one, got ${got}. Write [[0, 1], [2, 3]].`,
    )
  }
  const subgroups: Subgroups[1] = []
  let current: CollectiveGroup | undefined
  // One after the other: all ranks make the same groups in the same order.
  for (const ranks of ranksPerSubgroup) {
    const made = await calledAs('newSubgroupsByEnumeration', 'newGroup', () =>
      group.newGroup(ranks, options),
    )
    subgroups.push(made)
    if (typeof made === 'object') current = made
  }
  return [current, subgroups]
}
