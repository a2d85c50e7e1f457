import { ArgumentTypeError, PeerError } from '../../util/errors.ts'
import { isRecord, kindOf, quoted } from '../../util/kind-of.ts'
import { checkArgument, checkOptions, checkText, checkTimeout } from '../../util/options.ts'
import { formatShape } from '../../util/shape.ts'
import type { HeldBy } from '../collective/collectives.ts'
import { type GroupOptions, type GroupStats, Membership } from '../collective/membership.ts'
import type { LinkPeaks } from '../session/session-config.ts'
import { CollectiveGroup } from './collective-group.ts'
import { gatherJson } from './gather-json.ts'
import { type NonGroupMember, nonGroupMember } from './non-group-member.ts'

export type { GroupConfig, GroupOptions } from '../collective/membership.ts'
export type { CollectiveSpan } from '../collective/pending-collectives.ts'

/** Options of `newGroup`. */
export interface NewGroupOptions {
  /** How long a collective of the group may make no progress before it fails. Default: that of the group of all ranks. units: ms. */
  timeoutMs?: number
}

/** One rank's membership in one epoch: the collectives of all ranks, the subgroups, and the end of the epoch. */
export class ProcessGroup extends CollectiveGroup {
  private failing: (error: PeerError) => void = ignore
  private suspecting: (rank: number, isSuspect: boolean, silentMs: number) => void = ignore

  /** Called once, with the error that ended the epoch. */
  get onfailure(): (error: PeerError) => void {
    return this.failing
  }
  set onfailure(value: (error: PeerError) => void) {
    checkArgument('group', 'onfailure', value, typeof value === 'function', 'a function')
    this.failing = value
  }

  /** Called when a linked rank has been silent for some seconds, and when it is heard again. */
  get onsuspect(): (rank: number, isSuspect: boolean, silentMs: number) => void {
    return this.suspecting
  }
  set onsuspect(value: (rank: number, isSuspect: boolean, silentMs: number) => void) {
    checkArgument('group', 'onsuspect', value, typeof value === 'function', 'a function')
    this.suspecting = value
  }

  constructor(options: GroupOptions) {
    const { rank, size } = options
    const membership = new Membership(options, {
      onfailure: (error) => this.onfailure(error),
      onsuspect: (who, isSuspect, silentMs) => this.onsuspect(who, isSuspect, silentMs),
    })
    const ranks = Array.from({ length: size }, (_, index) => index)
    super(membership, { id: 0, ranks, rank }, membership.peers.isComplete, options.machines)
  }

  /** The error that ended the epoch; undefined if there was none. */
  get error(): PeerError | undefined {
    return this.membership.failure
  }

  /** Resolves (never rejects) with the error that ended the epoch. */
  get failed(): Promise<PeerError> {
    return this.membership.failed
  }

  /** Resolves when all linked ranks have sent HELLO. errors: `peer.timeout`, `peer.lost`, `peer.mismatch`, `peer.protocol`. */
  ready(): Promise<void> {
    return this.membership.ready()
  }

  /**
   * Creates a group of some ranks, by default of all, with separate collectives; returns `GroupMember.NON_GROUP_MEMBER` on the other ranks.
   *
   * As torch.distributed.new_group: all ranks call it with the same arguments and in the same order, including ranks outside the group.
   * `timeoutMs`: how long a collective of the group may make no progress before it fails. Default: that of the group of all ranks.
   * cost: one all-gather of a record. errors: `peer.mismatch` for invalid ranks, or if ranks disagree; `peer.unreachable`, on all ranks, if
   * the group's ranks are not linked at least in a ring.
   */
  async newGroup(
    ranks: readonly number[] = this.ranks,
    options: NewGroupOptions = {},
  ): Promise<CollectiveGroup | NonGroupMember> {
    const { timeoutMs } = this.refusing('newGroup', {}, () => this.checkNewGroup(ranks, options))
    // The same on all ranks.
    const id = this.membership.groups++
    // As torch orders them.
    const members = [...ranks].sort((a, b) => a - b)
    const record: GroupRecord = {
      ranks: members,
      links: this.ranks.filter((rank) => this.membership.peers.has(rank)),
    }
    const all = await gatherJson('newGroup', this, record, isGroupRecord)
    const other = all.findIndex((one) => one.ranks.join() !== members.join())
    if (other >= 0)
      throw new PeerError(
        'peer.mismatch',
        `newGroup: ranks disagree: rank ${this.rank} creates a group of ${formatShape(members)}, rank ${other} one of ${formatShape(all[other]!.ranks)}. Create the same groups in the same order on all ranks.`,
      )
    const isLinked = (a: number, b: number) => a === b || all[a]!.links.includes(b)
    const apart = members.find((rank, at) => !isLinked(rank, members[(at + 1) % members.length]!))
    if (apart !== undefined)
      throw new PeerError(
        'peer.unreachable',
        `newGroup: rank ${apart} of ${formatShape(members)} has no link to the next of them, only to ${formatShape(all[apart]!.links)}. Use initProcessGroup({ topology: 'mesh' }).`,
      )
    const rank = members.indexOf(this.rank)
    if (rank < 0) return nonGroupMember
    const isFullyLinked = members.every((a) => members.every((b) => isLinked(a, b)))
    const place = { id, ranks: members, rank }
    const machinesOf = (all?: readonly number[]) => all && members.map((member) => all[member]!)
    const group = new CollectiveGroup(
      this.membership,
      place,
      isFullyLinked,
      machinesOf(this.machines),
    )
    const { choice } = this
    group.choice = choice.machines ? { ...choice, machines: machinesOf(choice.machines)! } : choice
    group.backend = this.backend
    if (timeoutMs !== undefined) group.deadlineMs = timeoutMs
    return group
  }

  private checkNewGroup(ranks: readonly number[], options: NewGroupOptions): NewGroupOptions {
    checkOptions('newGroup', options, { timeoutMs: true })
    checkTimeout('newGroup', 'timeoutMs', options.timeoutMs)
    if (!Array.isArray(ranks)) {
      throw new ArgumentTypeError(
        `newGroup: ranks must be an array, or omitted for all ranks, got ${kindOf(ranks)}. Write [0, 1].`,
      )
    }
    const isWrong = ranks.some((rank) => !this.ranks.includes(rank))
    if (isWrong || new Set(ranks).size !== ranks.length || ranks.length === 0)
      throw new PeerError(
        'peer.mismatch',
        `newGroup: expected distinct ranks from 0 to ${this.size - 1}, got ${quoted(ranks)}. Name each rank once.`,
      )
    return options
  }

  /** Returns a snapshot of the bytes and frames so far. */
  stats(): GroupStats {
    return this.membership.stats()
  }

  /** Returns how full the link to a rank was at most since the last call; undefined if there is no link. */
  takeLinkPeaks(rank: number): LinkPeaks | undefined {
    return this.membership.takeLinkPeaks(rank)
  }

  /** The rank whose bytes the oldest collective that all have begun waits for; null where none does. */
  get heldBy(): HeldBy | null {
    return this.membership.collectives.heldBy
  }

  /**
   * Leaves cleanly: waits until the other ranks have consumed what was sent (at most `leaveMs`), says goodbye and closes the links.
   * Call it after the last collective; closing the connection then loses nothing.
   */
  async leave(detail = 'the run is over'): Promise<void> {
    checkText('leave', 'detail', detail)
    return this.membership.leave(detail)
  }

  /** Leaves at once: pending collectives on this rank reject with `peer.aborted`, and the other ranks get a goodbye. Idempotent. */
  destroy(detail = 'the group was destroyed'): void {
    checkText('destroy', 'detail', detail)
    this.membership.destroy(detail)
  }
}

interface GroupRecord {
  readonly ranks: readonly number[]
  readonly links: readonly number[]
}

const isGroupRecord = (received: unknown): received is GroupRecord =>
  isRecord(received) &&
  [received.ranks, received.links].every(
    (list) => Array.isArray(list) && list.every(Number.isInteger),
  )

function ignore(): undefined {
  return undefined
}
