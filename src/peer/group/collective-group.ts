/**
 * The collectives of some ranks, as their callers see them.
 *
 * Map: CollectiveGroup: who it is - sums and chunks - from and to a root - everyone with everyone - messages between two - records - failing - turns.
 */
import type { Env } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import { isDetached, isOf } from '../../util/kind-of.ts'
import { checkArgument, checkNumber, checkText, isCount } from '../../util/options.ts'
import { type AlgorithmChoice, defaultChoice } from '../algorithms/algorithm-choice.ts'
import { type ChunkRange, chunkRange } from '../algorithms/plan.ts'
import { countedBucket, countedDataBucket, monitorTag } from '../collective/announcement.ts'
import { share } from '../collective/arrays-in-use.ts'
import type { CollectiveOptions, GroupPlace } from '../collective/collectives.ts'
import {
  type CollectiveArray,
  type ElementArray,
  elementsOf,
  elementTypeOf,
  sameType,
} from '../collective/element.ts'
import type { Membership } from '../collective/membership.ts'
import { longestAnnounced } from './announced-length.ts'
import {
  checkAlgorithms,
  checkCollective,
  checkLength,
  isWhole,
  type MessageOptions,
} from './collective-checks.ts'
import { gatherJson } from './gather-json.ts'
import { GroupCalls, type Turn } from './group-calls.ts'

/**
 * One rank's view of a process group: its collectives with the other ranks.
 *
 * Collectives run in the background, and many may be in flight at once. Their arrays belong to the group until the promise settles; a
 * later call with the same array waits for that.
 * Elements are float32, int32, uint32, uint8, or float16 (a Float16Array or its `Float16Bits`).
 *
 * A failure (timeout, disagreement, `abort`, a call that one rank refuses and another makes) ends the group: it rejects every pending and
 * later collective of it on every rank with the same cause. Buffer contents are then undefined. A lost rank, a bad frame or a failure of the
 * group of all ranks ends the epoch: all groups.
 */
export class CollectiveGroup {
  /** This rank's number in the group. */
  readonly rank: number
  /** Number of ranks in the group. */
  readonly size: number
  /** Number of this membership; ranks of different epochs do not exchange data. */
  readonly epoch: number
  /** Global rank of each rank of the group. */
  readonly ranks: readonly number[]
  /** True if every pair of its ranks is linked; otherwise they are linked in a ring. */
  readonly isFullyLinked: boolean
  /** Machine of each rank of the group, or undefined if unknown. The same on all ranks. */
  readonly machines: readonly number[] | undefined
  /** The `backend` option of `initProcessGroup`; `links` if the caller passed the links. */
  get backend(): string {
    return this.ownBackend
  }
  /** @internal */
  set backend(value: string) {
    checkText('group', 'backend', value)
    this.ownBackend = value
  }
  /** Which algorithm each buffer size uses. Must be the same on all ranks. */
  get choice(): AlgorithmChoice {
    return this.ownChoice
  }
  set choice(value: AlgorithmChoice) {
    checkAlgorithms(value)
    this.ownChoice = value
  }
  /** @internal */
  protected readonly membership: Membership
  /** @internal */
  protected readonly place: GroupPlace
  private readonly calls: GroupCalls
  private ownBackend = 'links'
  private ownChoice = defaultChoice
  private ownDeadlineMs: number | undefined

  /** @internal */
  constructor(
    membership: Membership,
    place: GroupPlace,
    isFullyLinked: boolean,
    machines: readonly number[] | undefined,
  ) {
    this.membership = membership
    this.place = place
    this.rank = place.rank
    this.size = place.ranks.length
    this.ranks = place.ranks
    this.epoch = membership.epoch
    this.isFullyLinked = isFullyLinked
    this.machines = machines
    this.calls = new GroupCalls(this, membership, place)
  }

  /** @internal The clock that its collectives go by. */
  get env(): Env {
    return this.membership.env
  }

  /** @internal True if it was destroyed, alone or with all groups of its epoch. */
  get isDestroyed(): boolean {
    return this.calls.isRetired || this.membership.isOver
  }

  /** @internal Refuses all calls from now on, and resolves when those under way have ended, well or not. Links and the other groups stay. */
  retire(): Promise<void> {
    return this.calls.retire()
  }

  /**
   * How long a collective without its own deadline may make no progress before it fails. Applies to collectives launched from now on. A
   * subgroup inherits the value of the whole group until it is set. units: ms.
   */
  get deadlineMs(): number {
    return this.ownDeadlineMs ?? this.membership.collectives.deadlineMs
  }
  set deadlineMs(value: number) {
    checkNumber('deadlineMs', 'deadlineMs', value, (ms) => ms > 0, 'above 0', true)
    if (this.place.id === 0) this.membership.collectives.deadlineMs = value
    else this.ownDeadlineMs = value
  }

  /** Returns this rank's chunk of a buffer of `length` elements, which it owns after `reduceScatter`. units: elements. */
  ownRange(length: number, alignment = 1): ChunkRange {
    checkNumber('ownRange', 'length', length, isWhole, 'a whole number of at least 0', true)
    checkNumber('ownRange', 'alignment', alignment, isCount, 'a whole number above 0')
    return chunkRange(length, this.size, this.rank, alignment)
  }

  // Sums and chunks

  /**
   * Reduces `buffer` over the ranks. Afterwards this rank's chunk (`ownRange`) holds the result; the rest is undefined.
   *
   * cost: ring N-1 steps, direct 1; (N-1)/N of the buffer's bytes sent per rank. order: chunk c sums rank c+1, c+2, ..., c.
   * errors: `peer.*`, see the class.
   */
  reduceScatter(buffer: CollectiveArray, options: CollectiveOptions = {}): Promise<void> {
    return this.calls.inPlace('reduceScatter', elementsOf(buffer), options)
  }

  /** Fills `buffer` on every rank with the chunks of all ranks. cost: ring N-1 steps, direct 1; (N-1)/N of the bytes sent. errors: `peer.*`. */
  allGather(buffer: CollectiveArray, options: CollectiveOptions = {}): Promise<void> {
    return this.calls.inPlace('allGather', elementsOf(buffer), options)
  }

  /**
   * Reduces `buffer` over the ranks. All ranks get the same bits.
   *
   * cost: ring 2(N-1) steps and direct 2, each sending 2(N-1)/N of the bytes; oneShot 1 step with N-1 times the bytes; hierarchical 4
   * steps, 2 of them between machines. order: chunk c sums rank c+1, c+2, ..., c; hierarchical as in docs/how-it-works/collectives.md. errors: `peer.*`.
   */
  allReduce(buffer: CollectiveArray, options: CollectiveOptions = {}): Promise<void> {
    return this.calls.inPlace('allReduce', elementsOf(buffer), options)
  }

  /** Resolves when every rank has called it. cost: ring N-1 steps of 4 bytes, direct 1. errors: `peer.*`. */
  async barrier(options: CollectiveOptions = {}): Promise<void> {
    this.refusing('barrier', options, () => checkCollective('barrier', options))
    return this.calls.begin('barrier', { buffer: new Float32Array(this.size) }, options)
  }

  // From and to a root

  /**
   * Copies `buffer` from rank `root` to all ranks. At the root it resolves when the links have taken all bytes and the receivers of them
   * have called it.
   *
   * cost: ring N-1 pipelined steps, every rank but the last sends all bytes once; direct 1 step, the root sends all bytes N-1 times.
   * errors: `peer.*`.
   */
  broadcast(buffer: CollectiveArray, root: number, options: CollectiveOptions = {}): Promise<void> {
    return this.calls.inPlace('broadcast', elementsOf(buffer), options, root)
  }

  /**
   * Reduces `buffer` to rank `root`. On the other ranks its contents are undefined afterwards.
   *
   * cost: that of `broadcast`, in the other direction. order: rank root+1, root+2, ..., root. errors: `peer.*`.
   */
  reduce(buffer: CollectiveArray, root: number, options: CollectiveOptions = {}): Promise<void> {
    return this.calls.inPlace('reduce', elementsOf(buffer), options, root)
  }

  /**
   * Collects every rank's `input` on rank `root`, in rank order, into `output`. Other ranks pass no output.
   *
   * shape: input [L], output [N * L]. cost: 1 step, L elements sent; N-1 steps in a ring. errors: `peer.*`.
   */
  async gather(
    given: CollectiveArray,
    into: CollectiveArray | undefined,
    root: number,
    options: CollectiveOptions = {},
  ): Promise<void> {
    const [input, output] = [elementsOf(given), into === undefined ? into : elementsOf(into)]
    const isRoot = this.rank === root
    const length = this.refusing('gather', options, () => {
      elementTypeOf(input, 'gather')
      const all = isRoot ? input.length * this.size : 0
      checkLength('gather', this, output?.length ?? 0, all, 'output')
      return input.length
    })
    const uses = { reads: [input], writes: output === undefined ? [] : [output] }
    await this.calls.inTurn('gather', uses, options, async (own) => {
      if (!this.isFullyLinked && this.size > 1) {
        const all = await this.gatherAll(input, { label: 'gather', ...own })
        output?.set(all)
        return
      }
      output?.set(input, length * this.rank)
      await this.calls.begin('gather', { input, buffer: output ?? input, length, root }, own)
    })
  }

  /**
   * Sends each rank its part of `input` of rank `root`, which holds the parts in rank order. Other ranks pass no input.
   *
   * shape: input [N * L], output [L]. cost: 1 step, (N-1) L elements sent by the root; in a ring, pipelined through all ranks. errors: `peer.*`.
   */
  async scatter(
    given: CollectiveArray | undefined,
    into: CollectiveArray,
    root: number,
    options: CollectiveOptions = {},
  ): Promise<void> {
    const [source, output] = [given === undefined ? given : elementsOf(given), elementsOf(into)]
    const isRoot = this.rank === root
    const length = this.refusing('scatter', options, () => {
      elementTypeOf(output, 'scatter')
      const all = isRoot ? output.length * this.size : 0
      checkLength('scatter', this, source?.length ?? 0, all, 'input')
      return output.length
    })
    const ownPart = (all: ElementArray) =>
      output.set(all.subarray(length * this.rank, length * (this.rank + 1)))
    const uses = { reads: source === undefined ? [] : [source], writes: [output] }
    await this.calls.inTurn('scatter', uses, options, async (own) => {
      // What this rank takes must not change what the others are sent.
      const input = source && share(source, output) ? source.slice() : source
      if (!this.isFullyLinked && this.size > 1) {
        const all = input?.slice() ?? sameType(output, length * this.size)
        await this.broadcast(all, root, { label: 'scatter', ...own })
        ownPart(all)
        return
      }
      if (input) ownPart(input)
      const parts = { buffer: output, length, root, ...(input && { input }) }
      await this.calls.begin('scatter', parts, own)
    })
  }

  // Everyone with everyone

  /** Returns every rank's `input`, in rank order, as a new array. shape: [L] -> [N * L]. cost: that of `allGather`. errors: `peer.*`. */
  allGatherConcat<A extends CollectiveArray>(
    input: A,
    options: CollectiveOptions = {},
  ): Promise<A> {
    const uses = { reads: [elementsOf(input)], writes: [] }
    return this.calls.inTurn('allGather', uses, options, (own) => this.gatherAll(input, own))
  }

  private async gatherAll<A extends CollectiveArray>(
    input: A,
    options: CollectiveOptions,
  ): Promise<A> {
    const all = sameType(input, input.length * this.size)
    const buffer = elementsOf(all)
    buffer.set(elementsOf(input), input.length * this.rank)
    // Chunks of the same length begin at multiples of it.
    await this.calls.begin('allGather', { buffer }, { ...options, alignment: 1 })
    return all
  }

  /**
   * Sends part p of `input` to rank p, which stores it as part r of its `output`, where r is this rank.
   *
   * shape: both [N * L]. cost: 1 step, (N-1) L elements sent per rank; in a ring N-1 steps and N times as many elements. errors: `peer.*`.
   */
  async allToAll(
    given: CollectiveArray,
    into: CollectiveArray,
    options: CollectiveOptions = {},
  ): Promise<void> {
    const [source, output] = [elementsOf(given), elementsOf(into)]
    const { rank, size } = this
    const length = this.refusing('allToAll', options, () => {
      for (const array of [source, output]) elementTypeOf(array, 'allToAll')
      const whole = Math.floor(source.length / size) * size
      checkLength('allToAll', this, source.length, whole, 'input')
      checkLength('allToAll', this, output.length, source.length, 'output')
      return source.length / size
    })
    const partOf = (all: ElementArray, index: number) =>
      all.subarray(index * length, (index + 1) * length)
    await this.calls.inTurn(
      'allToAll',
      { reads: [source], writes: [output] },
      options,
      async (own) => {
        const input = share(source, output) ? source.slice() : source
        if (!this.isFullyLinked && size > 1) {
          const all = await this.gatherAll(input, { label: 'allToAll', ...own })
          for (let from = 0; from < size; from++)
            output.set(partOf(all, from * size + rank), from * length)
          return
        }
        output.set(partOf(input, rank), rank * length)
        await this.calls.begin('allToAll', { input, buffer: output, length }, own)
      },
    )
  }

  // Messages between two

  /** Sends `buffer` to a rank of the group. Resolves when the link has taken it and that rank has called `recv`. errors: `peer.*`. */
  send(buffer: CollectiveArray, to: number, options: MessageOptions = {}): Promise<void> {
    return this.calls.messageInTurn('send', elementsOf(buffer), to, options)
  }

  /** Receives the next message of a rank of the group into `buffer`, in the order sent. errors: `peer.*`; `peer.mismatch` if length or type differ. */
  recv(buffer: CollectiveArray, from: number, options: MessageOptions = {}): Promise<void> {
    return this.calls.messageInTurn('receive', elementsOf(buffer), from, options)
  }

  /** @internal A message of `monitoredBarrier`, which matches no caller's message. */
  word(side: 'send' | 'receive', peer: number, deadlineMs: number): Promise<void> {
    return this.calls.message(
      side,
      new Uint8Array(1),
      peer,
      { tag: monitorTag, deadlineMs },
      'monitoredBarrier',
    )
  }

  // Records

  /** Returns every rank's `values`, in rank order. All ranks pass the same number of values. For hashes and counts. errors: `peer.*`. */
  async allGatherU32(values: Uint32Array, options: CollectiveOptions = {}): Promise<Uint32Array> {
    this.refusing('allGatherU32', options, () => {
      checkCollective('allGatherU32', options)
      const isArray = isOf(values, Uint32Array) && !isDetached(values)
      checkArgument('allGatherU32', 'values', values, isArray, 'a Uint32Array')
    })
    const all = new Uint32Array(values.length * this.size)
    all.set(values, values.length * this.rank)
    await this.calls.begin('allGatherU32', { buffer: all }, { ...options, alignment: 1 })
    return all
  }

  /**
   * Returns every rank's `bytes`, in rank order. Lengths may differ. For records.
   *
   * Uses two keys: `bucket` for the lengths and `bucket` + 1 for the bytes.
   * cost: two all-gathers; N-1 times the longest. errors: `peer.*`; `peer.protocol` if N times the longest exceeds 1 GiB.
   */
  async allGatherBytes(bytes: Uint8Array, options: CollectiveOptions = {}): Promise<Uint8Array[]> {
    this.refusing('allGatherBytes', options, () => {
      checkCollective('allGatherBytes', options)
      const isArray = isOf(bytes, Uint8Array) && !isDetached(bytes)
      checkArgument('allGatherBytes', 'bytes', bytes, isArray, 'a Uint8Array')
    })
    const isCounted = options.sequence === undefined
    const sequence = options.sequence ?? this.calls.countSequence()
    const named = { label: 'allGatherBytes', ...options }
    // Once all have begun the first half, none is late for the second.
    const { onstarted: _once, ...second } = named
    const lengths = await this.allGatherU32(Uint32Array.of(bytes.length), {
      ...named,
      sequence,
      bucket: isCounted ? countedBucket : (options.bucket ?? 0),
    })
    const slotBytes = longestAnnounced(named.label ?? 'allGatherBytes', this, lengths)
    const all = new Uint8Array(slotBytes * this.size)
    all.set(bytes, slotBytes * this.rank)
    await this.calls.begin(
      'allGatherBytes',
      { buffer: all },
      {
        ...second,
        alignment: 1,
        sequence,
        bucket: isCounted ? countedDataBucket : (options.bucket ?? 0) + 1,
      },
    )
    return Array.from(lengths, (length, rank) =>
      all.subarray(rank * slotBytes, rank * slotBytes + length),
    )
  }

  /** @internal See `gatherJson`. */
  gatherJson<T>(
    label: string,
    own: T,
    isRight: (received: unknown) => received is T,
    options?: CollectiveOptions,
  ): Promise<T[]> {
    return gatherJson(label, this, own, isRight, options)
  }

  // Failing

  /**
   * Ends the group: every pending and later collective of it on every rank rejects, naming `reason`. The group of all ranks ends with all
   * groups, and so does any by `peer.lost` or `peer.protocol`. Idempotent.
   */
  abort(reason: PeerError | string): void {
    const isReason = typeof reason === 'string' || reason instanceof PeerError
    checkArgument('abort', 'reason', reason, isReason, 'a text or a PeerError')
    this.membership.fail(
      typeof reason === 'string'
        ? new PeerError('peer.aborted', `rank ${this.membership.rank} aborted: ${reason}`)
        : reason,
      this.place.id,
    )
  }

  /** @internal Returns what `check` does. Ends the group where another rank begins a call that it refuses here: see `GroupCalls.refusing`. */
  refusing<T>(where: string, options: CollectiveOptions, check: () => T): T {
    return this.calls.refusing(where, options, check)
  }

  /** @internal As `refusing`, for a message. */
  refusingMessage<T>(
    side: 'send' | 'receive',
    peer: number,
    tag: number,
    call: { where: string; check: () => T },
  ): T {
    return this.calls.refusingMessage(side, peer, tag, call)
  }

  // Turns

  /** The sequence that `takeSequence` will return next. */
  get nextSequence(): number {
    return this.calls.nextSequence
  }

  /**
   * Returns the next explicit sequence, from 1. It is unused in this epoch if all callers take theirs here.
   *
   * Ranks that take sequences in the same order get the same ones. errors: `graph.misuse` once the group was destroyed. After the end of its
   * epoch the collective is refused that the sequence is for.
   */
  takeSequence(): number {
    return this.calls.takeSequence()
  }

  /**
   * @internal A place in the order of the collectives that the group counts, taken now, for one that begins when its array has been read:
   * collectives match in the order in which they were called for, however long reading takes on each rank.
   */
  reserve(): Turn {
    return this.calls.reserve()
  }

  /** @internal The number of a message that begins later, taken now: messages with one tag match in the order in which they were called for. */
  reserveMessage(side: 'send' | 'receive', peer: number, tag: number): number {
    return this.calls.reserveMessage(side, peer, tag)
  }
}
