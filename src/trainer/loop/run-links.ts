import * as v from 'valibot'
import { isHierarchy } from '../../peer/algorithms/hierarchical.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import { type LinkMeasurement, measureLinks } from '../../peer/group/measure-links.ts'
import { linksSchema } from '../saves/links-schema.ts'

export interface LinkSources {
  /** Of the checkpoint that the run continues from, between the same ranks. */
  readonly saved?: LinkMeasurement
  /** Measurement of the same ranks in the run before. */
  readonly before?: LinkMeasurement
  /** The run has had other ranks, and its sums have the same bits in any order: then a change of ranks does not wait for a measurement. */
  readonly isQuick: boolean
}

/** Files may hold more than `linksSchema` reads; ranks say no more. */
const reportedLinks = v.strictObject({
  choice: v.strictObject(linksSchema.entries.choice.entries),
  bytesPerMs: linksSchema.entries.bytesPerMs,
})
const reportSchema = v.strictObject({
  now: v.optional(reportedLinks),
  before: v.optional(reportedLinks),
  isQuick: v.boolean(),
})
interface Report {
  readonly now?: LinkMeasurement
  readonly before?: LinkMeasurement
  readonly isQuick: boolean
}

/** Tells whether a measurement can be of a group of that size: it names the machines of all its ranks, or none. */
const isOf = (size: number, links: Pick<LinkMeasurement, 'choice'> | undefined): boolean =>
  (links?.choice.machines ?? { length: size }).length === size

/** Measurements of a run's links, in one group after the other. */
export class RunLinks {
  /** By the machines that the ranks are on. */
  readonly #measured = new Map<string, LinkMeasurement>()
  #newest: LinkMeasurement | undefined

  /** The measurement of the current group's links, by this run or the one before. */
  get newest(): LinkMeasurement | undefined {
    return this.#newest
  }

  /** The next group has other ranks, and what was measured must not be used there. */
  forget(): void {
    this.#measured.clear()
  }

  /**
   * Returns the same on all ranks and sets `group.choice`. In order: what a rank has measured in this run, `saved`, `before` where all ranks
   * have the same, the group's own choice where that is quick and ranks do not share some of several machines, what they measure now.
   *
   * errors: the group's.
   */
  async settle(
    group: CollectiveGroup,
    { saved, before, isQuick }: LinkSources,
  ): Promise<LinkMeasurement> {
    const { machines = group.machines } = group.choice
    const layout = JSON.stringify(machines ?? group.size)
    const { size } = group
    const own = {
      now: this.#measured.get(layout),
      before: isOf(size, before) ? before : undefined,
      isQuick,
    }
    const isReport = (received: unknown): received is Report =>
      v.is(reportSchema, received) && isOf(size, received.now) && isOf(size, received.before)
    const received = await gatherJson('the measured links', group, own, isReport)
    const [first] = received
    const isShared = received.every(
      (one) => JSON.stringify(one.before) === JSON.stringify(first.before),
    )
    const now = received.find((one) => one.now)?.now
    const known = now ?? saved ?? (isShared ? first.before : undefined)
    this.#newest = undefined
    if (known) group.choice = known.choice
    else if (received.some((one) => one.isQuick) && !isHierarchy(machines))
      return { choice: group.choice, bytesPerMs: undefined }
    const links = known ?? (await measureLinks(group))
    if (known && !now && saved) return links
    this.#measured.set(layout, links)
    this.#newest = links
    return links
  }
}
