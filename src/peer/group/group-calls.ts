/**
 * How the calls of a group begin: in their turn, as one collective or message of all ranks.
 *
 * Map: collectives - messages - turns.
 */
import { messageOf } from '../../util/errors.ts'
import { isRecord } from '../../util/kind-of.ts'
import { chooseAlgorithm } from '../algorithms/algorithm-choice.ts'
import { pointToPoint } from '../algorithms/direct.ts'
import { planCollective } from '../algorithms/plan-collective.ts'
import {
  countedBucket,
  countedDataBucket,
  isTag,
  kindOf,
  lastExplicitBucket,
  pairOf,
} from '../collective/announcement.ts'
import { callsBefore, noteCall, type Uses } from '../collective/arrays-in-use.ts'
import type { CollectiveOptions, GroupPlace, Launch } from '../collective/collectives.ts'
import { type ElementArray, elementTypeOf } from '../collective/element.ts'
import { without } from '../collective/failure.ts'
import type { Membership } from '../collective/membership.ts'
import {
  type CalledGroup,
  type Collective,
  checkCollective,
  checkMessage,
  destroyed,
  type MessageOptions,
  noAlgorithm,
  noPeer,
  noRoot,
  noTag,
  refuse,
} from './collective-checks.ts'

interface Begin {
  input?: ElementArray
  buffer: ElementArray
  /** Of the plan: see `PlanArguments`. Default: the buffer's. */
  length?: number
  /** A rank in the group. */
  root?: number
}

/** A collective's place in the order of calls: see `reserve`. */
export interface Turn {
  readonly sequence: number
  readonly bucket: number
}

/** Of a call that is two collectives, one behind the other. */
export const secondHalf = ({ sequence }: Turn): Turn => ({ sequence, bucket: countedDataBucket })

/** The calls of one rank on one group. */
export class GroupCalls {
  /** True if the group has been destroyed, so that all calls are refused. */
  isRetired = false
  private readonly group: CalledGroup
  private readonly membership: Membership
  private readonly place: GroupPlace
  private sequencesTaken = 0
  private sequencesCounted = 0
  /** Messages sent and received so far, by partner and tag. */
  private readonly messages = new Map<string, number>()

  constructor(group: CalledGroup, membership: Membership, place: GroupPlace) {
    this.group = group
    this.membership = membership
    this.place = place
  }

  /** Refuses all calls from now on, and resolves when those under way have ended, well or not. */
  async retire(): Promise<void> {
    this.isRetired = true
    await this.membership.collectives.settled(this.place.id)
    this.messages.clear()
  }

  // Collectives

  /**
   * Returns what `check` does. A call that it refuses takes its place in the order of calls, and ends the group where another rank begins it.
   *
   * `where`: what begins the texts of its errors.
   */
  refusing<T>(where: string, options: CollectiveOptions, check: () => T): T {
    try {
      return check()
    } catch (thrown) {
      this.refused(where, options, thrown)
      throw thrown
    }
  }

  private refused(where: string, options: CollectiveOptions, thrown: unknown): void {
    if (this.group.size === 1 || this.isRetired) return
    const { sequence, bucket = 0 }: CollectiveOptions = isRecord(options) ? { ...options } : {}
    const turn = sequence === undefined ? this.reserve() : { sequence, bucket }
    // Of those with a key only an all-gather has a slot to itself.
    const kind = kindOf(where === 'allGather' ? where : 'allReduce', 0)
    const key = { ...turn, group: this.place.id, kind }
    this.membership.collectives.refuse(key, without(`${where}: `, messageOf(thrown)))
  }

  /** Runs a collective that reads or writes one array. */
  inPlace(
    operation: Collective,
    buffer: ElementArray,
    options: CollectiveOptions,
    root?: number,
  ): Promise<void> {
    const isRead = operation === 'broadcast' && root === this.group.rank
    const uses = isRead ? { reads: [buffer], writes: [] } : { reads: [], writes: [buffer] }
    const work = (own: CollectiveOptions) =>
      this.begin(operation, { buffer, ...(root !== undefined && { root }) }, own)
    return this.inTurn(operation, uses, options, work)
  }

  /** Runs `work` when no earlier call uses its arrays. A caller that has reserved its turn has waited. */
  inTurn<T>(
    operation: Collective,
    uses: Uses,
    options: CollectiveOptions,
    work: (options: CollectiveOptions) => Promise<T>,
  ): Promise<T> {
    const check = () => {
      checkCollective(operation, options)
      for (const array of [...uses.reads, ...uses.writes])
        elementTypeOf(array as ElementArray, operation)
    }
    try {
      this.refusing(operation, options, check)
    } catch (thrown) {
      return Promise.reject(thrown)
    }
    const { sequence, bucket = 0 } = options
    if (bucket > lastExplicitBucket) return work(options)
    const reserved = () => (sequence === undefined ? { ...options, ...this.reserve() } : options)
    return this.whenFree(uses, options, reserved, work)
  }

  /** Runs `work` at once, or, with its place among all calls taken now, when the earlier calls that use its arrays are over. */
  private whenFree<Options, T>(
    uses: Uses,
    options: Options,
    reserved: () => Options,
    work: (options: Options) => Promise<T>,
  ): Promise<T> {
    const before = callsBefore(uses)
    const own = before.length > 0 ? reserved() : options
    const over = before.length > 0 ? Promise.allSettled(before).then(() => work(own)) : work(own)
    noteCall(uses, over)
    return over
  }

  /** Begins at once. */
  begin(
    operation: Collective,
    { input, buffer, length = buffer.length, root = 0 }: Begin,
    options: CollectiveOptions,
  ): Promise<void> {
    const { rank, size, ranks, isFullyLinked, deadlineMs } = this.group
    if (this.isRetired) return Promise.reject(destroyed(operation, this.group))
    const cannotBegin = (text: string) => {
      this.refused(operation, options, new Error(text))
      return refuse(text)
    }
    const isNone = noRoot(operation, this.group, root)
    if (isNone) return cannotBegin(isNone)
    const choice = options.choice ?? this.group.choice
    const layout = { isFullyLinked, machines: choice.machines ?? this.group.machines }
    const algorithm =
      options.algorithm ??
      chooseAlgorithm(operation, length * buffer.BYTES_PER_ELEMENT, layout, choice)
    const machines = algorithm === 'hierarchical' ? layout.machines : undefined
    const cannot = noAlgorithm(operation, this.group, algorithm, machines)
    if (cannot) return cannotBegin(cannot)
    const isCounted = options.sequence === undefined
    const launch: Launch = {
      operation,
      place: this.place,
      plan: planCollective(operation, algorithm, {
        rank,
        size,
        root,
        length,
        alignment: options.alignment ?? 1,
        machines,
      }),
      // What is folded in place may not have gone to everyone yet.
      input: algorithm === 'oneShot' ? buffer.slice() : input,
      buffer,
      elements: length,
      root: ranks[root]!,
      algorithm,
      machines,
      sequence: options.sequence ?? this.countSequence(),
      bucket: isCounted ? countedBucket : (options.bucket ?? 0),
    }
    return this.membership.collectives.launch(launch, { deadlineMs, ...options })
  }

  // Messages

  /** As `message`, when no earlier call uses the array. A caller that has a number has waited. */
  messageInTurn(
    side: 'send' | 'receive',
    buffer: ElementArray,
    peer: number,
    options: MessageOptions,
  ): Promise<void> {
    const { tag = 0, sequence }: MessageOptions = isRecord(options) ? { ...options } : {}
    const check = () => {
      checkMessage(side, options)
      elementTypeOf(buffer, side)
    }
    try {
      this.refusingMessage(side, peer, tag, { where: side, check })
    } catch (thrown) {
      return Promise.reject(thrown)
    }
    if (sequence !== undefined || !isTag(tag)) return this.message(side, buffer, peer, options)
    const uses = side === 'send' ? { reads: [buffer], writes: [] } : { reads: [], writes: [buffer] }
    const reserved = () => ({ ...options, sequence: this.reserveMessage(side, peer, tag) })
    return this.whenFree(uses, options, reserved, (own) => this.message(side, buffer, peer, own))
  }

  message(
    side: 'send' | 'receive',
    buffer: ElementArray,
    peer: number,
    options: MessageOptions,
    word?: string,
  ): Promise<void> {
    const { tag = 0, deadlineMs, sequence, label } = options
    if (this.isRetired) return Promise.reject(destroyed(side, this.group))
    const cannot = (word === undefined && noTag(side, tag)) || noPeer(side, this.group, peer)
    if (cannot) return refuse(cannot)
    const { rank, ranks, deadlineMs: groupMs } = this.group
    if (!this.membership.peers.has(ranks[peer]!))
      return refuse(
        `${side}: this rank has no link to rank ${ranks[peer]}. Use initProcessGroup({ topology: 'mesh' }), or send through the ranks in between.`,
      )
    const [sender, receiver] = side === 'send' ? [rank, peer] : [peer, rank]
    return this.membership.collectives.launch(
      {
        operation: 'send',
        place: this.place,
        plan: pointToPoint(side, peer, buffer.length),
        buffer,
        elements: buffer.length,
        root: ranks[sender]!,
        receiver: ranks[receiver]!,
        algorithm: 'direct',
        sequence: sequence ?? this.reserveMessage(side, peer, tag),
        bucket: tag,
      },
      { label: word ?? label, deadlineMs: deadlineMs ?? groupMs },
    )
  }

  /** As `refusing`, for a message to or from `peer`. Where that is no rank, nobody hears of it. */
  refusingMessage<T>(
    side: 'send' | 'receive',
    peer: number,
    tag: number,
    { where, check }: { where: string; check: () => T },
  ): T {
    try {
      return check()
    } catch (thrown) {
      if (!isTag(tag) || noPeer(side, this.group, peer) || this.isRetired) throw thrown
      const { rank, ranks } = this.group
      const [from, to] = side === 'send' ? [rank, peer] : [peer, rank]
      const turn = { sequence: this.reserveMessage(side, peer, tag), bucket: tag }
      const between = { kind: kindOf('send', 0), pair: pairOf(ranks[from]!, ranks[to]!) }
      const key = { ...turn, ...between, group: this.place.id }
      this.membership.collectives.refuse(key, without(`${where}: `, messageOf(thrown)))
      throw thrown
    }
  }

  /** The number of a message that begins later, taken now: messages with one tag match in the order in which they were called for. */
  reserveMessage(side: 'send' | 'receive', peer: number, tag: number): number {
    const key = `${side}/${peer}/${tag}`
    const sequence = this.messages.get(key) ?? 0
    this.messages.set(key, sequence + 1)
    return sequence
  }

  // Turns

  /** See `CollectiveGroup.nextSequence`. */
  get nextSequence(): number {
    return this.sequencesTaken + 1
  }

  /** See `CollectiveGroup.takeSequence`. */
  takeSequence(): number {
    if (this.isRetired) throw destroyed('takeSequence', this.group)
    this.sequencesTaken += 1
    return this.sequencesTaken
  }

  /** See `CollectiveGroup.reserve`. */
  reserve(): Turn {
    return { sequence: this.countSequence(), bucket: countedBucket }
  }

  /** The next sequence number of those that the group counts. */
  countSequence(): number {
    const sequence = this.sequencesCounted
    this.sequencesCounted = (this.sequencesCounted + 1) >>> 0
    return sequence
  }
}
