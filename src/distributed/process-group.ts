import type { CollectiveGroup } from '../peer/collective-group.ts'
import { FaultyLink } from '../peer/faulty-link.ts'
import { type GroupConfig, ProcessGroup } from '../peer/group.ts'
import type { Link } from '../peer/link.ts'
import { systemEnv } from '../util/env.ts'
import { messageOf, TabringError } from '../util/errors.ts'
import { tell } from '../util/log.ts'
import { checkOptions } from '../util/options.ts'
import { switchValue } from '../util/switches.ts'

export interface InitProcessGroupOptions {
  rank: number
  worldSize: number
  /** One membership of the group; ranks of different epochs do not talk. Default 0. */
  epoch?: number
  /** One link to each ring neighbour, by rank. */
  links: Map<number, Link>
  /** A collective without progress for this long fails on every rank; default 30 s. */
  timeoutMs?: number
  /** How long neighbours may take to come; default 15 s. */
  joinTimeoutMs?: number
  onspan?: ConstructorParameters<typeof ProcessGroup>[0]['onspan']
}

let current: ProcessGroup | undefined

/**
 * Joins the ranks and makes them the default group; resolves when both neighbours have answered.
 *
 * errors: `peer.timeout`, `peer.lost`, `peer.mismatch`; `graph.misuse` when a group is there already.
 */
export async function initProcessGroup(options: InitProcessGroupOptions): Promise<ProcessGroup> {
  if (current) {
    throw new TabringError(
      'graph.misuse',
      `initProcessGroup: this rank is in a group of ${current.size} already. Call destroyProcessGroup() first.`,
    )
  }
  checkOptions('initProcessGroup', options, {
    rank: true,
    worldSize: true,
    epoch: true,
    links: true,
    timeoutMs: true,
    joinTimeoutMs: true,
    onspan: true,
  })
  const { rank, worldSize: size, epoch = 0, links, timeoutMs, joinTimeoutMs, onspan } = options
  const config: Partial<GroupConfig> = {
    ...(timeoutMs !== undefined && { deadlineMs: timeoutMs }),
    ...(joinTimeoutMs !== undefined && { session: { helloMs: joinTimeoutMs } }),
  }
  current = new ProcessGroup({
    rank,
    size,
    epoch,
    links: withFaults(links, rank),
    env: systemEnv,
    config,
    onspan,
  })
  const joined = current
  try {
    await joined.ready()
  } catch (error) {
    tell(1, 'group', () => `epoch ${epoch}: rank ${rank} did not join: ${messageOf(error)}`)
    destroyProcessGroup()
    throw error
  }
  tell(1, 'group', () => `epoch ${epoch}: rank ${rank} of ${size} has its neighbours`)
  return joined
}

/** The default group. errors: `graph.misuse` before initProcessGroup. */
export function getProcessGroup(): ProcessGroup {
  if (!current) {
    throw new TabringError(
      'graph.misuse',
      'process group: there is none. Call initProcessGroup() first, also for one rank.',
    )
  }
  return current
}

/** This rank's number in the group; default: among all ranks. */
export const getRank = (group: CollectiveGroup = getProcessGroup()): number => group.rank
/** How many ranks the group has; default: all. */
export const getWorldSize = (group: CollectiveGroup = getProcessGroup()): number => group.size

/** Whether there is a default group. */
export const isInitialized = (): boolean => current !== undefined

/**
 * A group of some ranks; undefined on the others, whose calls with it do nothing. As torch.distributed.new_group: all ranks call it
 * alike and in the same order. errors: see `ProcessGroup.newGroup`.
 */
export const newGroup = (ranks: readonly number[]): Promise<CollectiveGroup | undefined> =>
  getProcessGroup().newGroup(ranks)

/** Leaves the default group; a no-op when there is none. */
export function destroyProcessGroup(): void {
  current?.destroy()
  current = undefined
}

/** The links with the faults that switches ask for: as they are, as a rule. */
function withFaults(links: Map<number, Link>, rank: number): Map<number, Link> {
  const faults = {
    drop: switchValue('drop'),
    delayMs: switchValue('delayMs'),
    isStalled: switchValue('stallRank') === rank,
  }
  if (faults.drop === 0 && faults.delayMs === 0 && !faults.isStalled) return links
  const faulty = (link: Link): Link => new FaultyLink(link, faults, systemEnv)
  return new Map([...links].map(([peer, link]) => [peer, faulty(link)]))
}
