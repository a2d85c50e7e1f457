import { PeerError } from '../../util/errors.ts'
import { EpochLinks, followingEpoch } from '../link/epoch-link.ts'
import type { Link } from '../link/link.ts'
import type { ProcessGroup } from './group.ts'

export interface RejoiningOptions {
  /** The first epoch. */
  epoch: number
  /** One link for each neighbour, by rank; they outlive the epochs. */
  links: Map<number, Link>
  /** Makes the group of an epoch over its links; resolves when the neighbours are there. The group before it is over. */
  join: (epoch: number, links: Map<number, Link>) => Promise<ProcessGroup>
  /** Decides whether the same ranks form another group after one that ended so: equally on all ranks. */
  follows: (error: PeerError) => boolean
}

/**
 * One rank's place in a ring, through groups that follow one another over the same links.
 *
 * A rank joins the next group as soon as it hears that the one before has ended, and not when its own work comes to need it: the others
 * would take a silent rank for a lost one.
 */
export class Rejoining {
  readonly #options: RejoiningOptions
  readonly #links: (readonly [number, EpochLinks])[]
  readonly #following = new WeakMap<ProcessGroup, Promise<ProcessGroup>>()
  #epoch: number

  constructor(options: RejoiningOptions) {
    this.#options = options
    this.#epoch = options.epoch
    this.#links = [...options.links].map(([peer, link]) => [peer, new EpochLinks(link)] as const)
  }

  /** Joins the first group; once. errors: those of `join`. */
  first(): Promise<ProcessGroup> {
    return this.#join()
  }

  /** The group that follows `group`, which has ended, or a later one where that ended before it began here. errors: those of `join`. */
  after(group: ProcessGroup): Promise<ProcessGroup> {
    let next = this.#following.get(group)
    if (!next) {
      this.#epoch = followingEpoch(this.#epoch)
      next = this.#join()
      this.#following.set(group, next)
    }
    return next
  }

  async #join(): Promise<ProcessGroup> {
    const links = new Map(this.#links.map(([peer, one]) => [peer, one.open(this.#epoch)]))
    const { join, follows } = this.#options
    let group: ProcessGroup
    try {
      group = await join(this.#epoch, links)
    } catch (error) {
      // Others had it already, and lost it while this rank's neighbours were still coming.
      if (!(error instanceof PeerError) || !follows(error)) throw error
      this.#epoch = followingEpoch(this.#epoch)
      return this.#join()
    }
    group.failed.then((error) => {
      // Callers of `after` get the failure.
      if (follows(error)) this.after(group).catch(() => undefined)
    })
    return group
  }
}
