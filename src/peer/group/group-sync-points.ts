import { TabringError } from '../../util/errors.ts'
import type { CollectiveOptions } from '../collective/collectives.ts'
import { CollectiveGroup } from './collective-group.ts'

/** Sync point of ranks, and the group of a step that it is of. */
export interface GroupSyncPoint {
  readonly syncPoint: 'gather' | 'sum' | 'scatter'
  readonly group: number
}

/** Of the keys of a step's meetings. */
export const firstSyncPointKey = 54_000

/** A group with the number that it has for a step. Sync points of the step have keys from `firstSyncPointKey` up. */
export interface StepGroup {
  readonly group: CollectiveGroup
  readonly sequence: number
}

/** A group that synchronizes in the middle of steps. */
interface SyncPointGroup {
  readonly group: CollectiveGroup
  /** True if programs synchronize in it: what one rank alone traces, as for detectAnomaly, must not count its steps. */
  isExpected: boolean
  /** In the step under way. */
  sequence: number
}

/** The groups whose ranks synchronize in the middle of a step, by number from 1 on; each numbers its steps. */
export class GroupSyncPoints {
  readonly #groups: SyncPointGroup[] = []
  readonly #agree: ((groups: readonly StepGroup[]) => Promise<void>) | undefined
  /** Of the step under way. */
  #agreed: Promise<void> | undefined

  /** `agree`: called at the start of each step with its groups; all meetings of the step wait for it, and fail with it. */
  constructor(agree?: (groups: readonly StepGroup[]) => Promise<void>) {
    this.#agree = agree
  }

  /** The number of a group. errors: `graph.misuse` for what is no process group. */
  numberOf(group: object): number {
    if (!(group instanceof CollectiveGroup)) {
      throw new TabringError(
        'graph.misuse',
        'compile: a group of ranks in the step is not a process group. Pass the result of initProcessGroup() or newGroup().',
      )
    }
    const known = this.#groups.findIndex((one) => one.group === group)
    if (known >= 0) return known + 1
    return this.#groups.push({ group, isExpected: false, sequence: 0 })
  }

  /** By number, from 1 on. */
  get groups(): readonly CollectiveGroup[] {
    return this.#groups.map(({ group }) => group)
  }

  /** Steps may have meetings of these groups from now on. */
  expectSyncPoints(groups: readonly number[]): void {
    for (const number of groups) if (number > 0) this.#groups[number - 1].isExpected = true
  }

  /** Called once at the start of each step. */
  beginStep(): void {
    const expected = this.#groups.filter(({ isExpected }) => isExpected)
    for (const one of expected) one.sequence = one.group.takeSequence()
    this.#agreed = this.#agree?.(expected.map(({ group, sequence }) => ({ group, sequence })))
    // The meetings fail with it.
    this.#agreed?.catch(() => undefined)
  }

  /** Combines the values of the ranks, see `StepSyncPoints`. errors: the group's. */
  async syncRanks(
    index: number,
    values: Float32Array<ArrayBuffer>,
    { syncPoint, group: number }: GroupSyncPoint,
    onstarted?: () => void,
    options: CollectiveOptions = {},
  ): Promise<Float32Array<ArrayBuffer>> {
    const { group, sequence } = this.#groups[number - 1]
    const key = { sequence, bucket: firstSyncPointKey + index, onstarted }
    const met = syncIn(group, values, syncPoint, { ...options, ...key })
    const [result] = await Promise.all([met, this.#agreed])
    return result
  }
}

/** Combines the values of a group's ranks. errors: the group's. */
export async function syncIn(
  group: CollectiveGroup,
  values: Float32Array<ArrayBuffer>,
  syncPoint: GroupSyncPoint['syncPoint'],
  options: CollectiveOptions,
): Promise<Float32Array<ArrayBuffer>> {
  if (syncPoint === 'gather') return group.allGatherConcat(values, options)
  if (syncPoint === 'sum') {
    await group.allReduce(values, options)
    return values
  }
  await group.reduceScatter(values, { ...options, alignment: 1 })
  const { start, end } = group.ownRange(values.length)
  return values.subarray(start, end)
}
