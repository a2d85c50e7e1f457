import { PeerError } from '../../util/errors.ts'
import type { ChunkRange, Fold, Plan, Receive, Send } from '../algorithms/plan.ts'
import {
  bytesOf,
  type ElementArray,
  type ElementType,
  elementsAt,
  type ReduceOp,
  sameType,
} from './element.ts'

export interface ExchangeOptions {
  plan: Plan
  /** As errors show it: `allReduce #42 bucket 0`. */
  name: string
  rank: number
  /** How many ranks an average divides by. */
  size: number
  /** Array that is sent, unless it has been received. Default: `buffer`. */
  input?: ElementArray | undefined
  /** Array that is received into, and combined. */
  buffer: ElementArray
  type: ElementType
  op: ReduceOp
}

/** A piece of one send, ready to go. Reused: read it before the next call. */
export interface Segment {
  /** Which send, by its place in the plan. */
  send: number
  step: number
  /** Bytes, in the send's range. */
  offset: number
  length: number
}

/** Work that is left with one other rank. */
interface Side {
  readonly sends: number[]
  /** Of `sends`. */
  firstUnsent: number
  sendRemaining: number
  receiveRemaining: number
  /** Receives by step. */
  readonly receives: Map<number, number>
}

/**
 * One rank's part in one collective under way: what it may send, what it still awaits, and where received bytes go.
 *
 * It carries out a plan over byte counters and knows no links. Cut-through: the bytes of a range that have arrived are at
 * once what may be sent on, so a segment travels on without waiting for its chunk. Everything is counted (`received`,
 * `ready`, `sent`), never queued, so a stalled link costs no memory.
 *
 * In a ring a region of the buffer is written again only after it has been sent on: the bytes that overwrite it have been
 * round the ring behind those that left.
 *
 * order: a received element is combined with what the buffer holds, or folds in their sources' order.
 * errors: `receive` throws `peer.protocol` before it writes anything.
 */
export class Exchange {
  readonly plan: Plan
  private readonly name: string
  private readonly rank: number
  private readonly size: number
  private readonly input: ElementArray
  private readonly buffer: ElementArray
  private readonly type: ElementType
  private readonly op: ReduceOp
  private readonly sides = new Map<number, Side>()
  /** Bytes, by place in the plan. */
  private readonly received: Float64Array
  private readonly ready: Float64Array
  private readonly sent: Float64Array
  private readonly folded: Float64Array
  /** Arrays received aside, by receive; a fold may write over what it has combined. */
  private readonly aside: (ElementArray | undefined)[]
  /** Sends that wait for a receive or a fold, by its place. */
  private readonly sendsAfterReceive: number[][]
  private readonly sendsAfterFold: number[][]
  private readonly foldsOf: number[][]
  private readonly segment: Segment = { send: 0, step: 0, offset: 0, length: 0 }

  constructor(options: ExchangeOptions) {
    const { plan, buffer, input = buffer, type } = options
    this.plan = plan
    this.name = options.name
    this.rank = options.rank
    this.size = options.size
    this.input = input
    this.buffer = buffer
    this.type = type
    this.op = options.op
    this.received = new Float64Array(plan.receives.length)
    this.ready = new Float64Array(plan.sends.length)
    this.sent = new Float64Array(plan.sends.length)
    this.folded = new Float64Array(plan.folds.length)
    this.sendsAfterReceive = plan.receives.map(() => [])
    this.sendsAfterFold = plan.folds.map(() => [])
    this.foldsOf = plan.receives.map(() => [])
    this.aside = new Array(plan.receives.length)
    plan.sends.forEach((send, index) => {
      const side = this.sideOf(send.peer)
      side.sends.push(index)
      side.sendRemaining += this.bytesIn(send.range)
      const { after } = send
      if (!after) this.ready[index] = this.bytesIn(send.range)
      else if ('receive' in after) this.sendsAfterReceive[after.receive]!.push(index)
      else this.sendsAfterFold[after.fold]!.push(index)
    })
    plan.receives.forEach((receive, index) => {
      const side = this.sideOf(receive.peer)
      side.receives.set(receive.step, index)
      side.receiveRemaining += this.bytesIn(receive.range)
    })
    plan.folds.forEach(({ sources }, index) => {
      for (const source of sources) if (source !== 'own') this.foldsOf[source]!.push(index)
    })
  }

  /** The ranks that it sends to or receives from. */
  get peers(): readonly number[] {
    return [...this.sides.keys()]
  }

  isReceivingFrom(peer: number): boolean {
    return (this.sides.get(peer)?.receiveRemaining ?? 0) > 0
  }

  isSendingTo(peer: number): boolean {
    return (this.sides.get(peer)?.sendRemaining ?? 0) > 0
  }

  /** The first receive that is not here in full; undefined when all are. */
  get awaited(): Receive | undefined {
    return this.plan.receives.find(
      ({ range }, index) => this.received[index]! < this.bytesIn(range),
    )
  }

  /** The first send that has not gone in full; undefined when all have. */
  get unsent(): Send | undefined {
    return this.plan.sends.find(({ range }, index) => this.sent[index]! < this.bytesIn(range))
  }

  /** Returns the next piece to send to `peer`, at most `maxBytes` long, or undefined when nothing is ready. Oldest send first. */
  nextSegment(peer: number, maxBytes: number): Segment | undefined {
    const side = this.sides.get(peer)
    if (!side || side.sendRemaining === 0) return undefined
    const { sends } = side
    const { ready, sent, segment } = this
    while (
      side.firstUnsent < sends.length &&
      sent[sends[side.firstUnsent]!]! >=
        this.bytesIn(this.plan.sends[sends[side.firstUnsent]!]!.range)
    )
      side.firstUnsent += 1
    for (let at = side.firstUnsent; at < sends.length; at++) {
      const index = sends[at]!
      const waiting = ready[index]! - sent[index]!
      if (waiting <= 0) continue
      segment.send = index
      segment.step = this.plan.sends[index]!.step
      segment.offset = sent[index]!
      segment.length = Math.min(waiting, maxBytes - (maxBytes % this.type.bytes))
      return segment
    }
    return undefined
  }

  /** Notes that `segment` has been handed to the link. */
  markSent({ send, length }: Segment): void {
    this.sent[send]! += length
    this.sides.get(this.plan.sends[send]!.peer)!.sendRemaining -= length
  }

  /** Writes a segment's bytes into a message. */
  writeSegment(
    { send, offset, length }: Segment,
    target: Uint8Array<ArrayBuffer>,
    at: number,
  ): void {
    const { range, after } = this.plan.sends[send]!
    const { bytes } = this.type
    const source = after ? this.buffer : this.input
    target.set(bytesOf(source, range.start + offset / bytes, length / bytes), at)
  }

  /** Takes the payload of one DATA frame from `peer`: `length` bytes of `message` from `at` on. */
  receive(
    peer: number,
    step: number,
    offset: number,
    length: number,
    message: Uint8Array<ArrayBuffer>,
    at: number,
  ): void {
    const { bytes } = this.type
    const side = this.sides.get(peer)
    const index = side?.receives.get(step)
    if (!side || index === undefined)
      throw this.error(peer, `expected no data at step ${step}, got ${length} bytes`)
    const plan = this.plan.receives[index]!
    const where = `step ${step}, chunk ${plan.chunk}`
    const expected = this.received[index]!
    const wholeBytes = this.bytesIn(plan.range)
    if (offset < expected)
      throw this.error(
        peer,
        `${where}: expected offset ${expected}, got ${offset}: bytes were repeated`,
      )
    if (offset > expected)
      throw this.error(
        peer,
        `${where}: expected offset ${expected}, got ${offset}: bytes are missing`,
      )
    if (length === 0 || length % bytes !== 0 || offset + length > wholeBytes)
      throw this.error(
        peer,
        `${where}: expected whole elements within ${wholeBytes} bytes, got ${length} bytes at offset ${offset}`,
      )
    this.take(index, plan, offset / bytes, length / bytes, message, at)
    this.received[index] = offset + length
    side.receiveRemaining -= length
    for (const send of this.sendsAfterReceive[index]!) this.ready[send] = offset + length
    for (const fold of this.foldsOf[index]!) this.fold(fold)
  }

  private take(
    index: number,
    { range, into, isTotal }: Receive,
    first: number,
    count: number,
    message: Uint8Array<ArrayBuffer>,
    at: number,
  ): void {
    const { buffer, type } = this
    if (into === 'reduce') {
      const start = range.start + first
      const target = buffer.subarray(start, start + count)
      type.combine[this.combining](target, elementsAt(buffer, message, at, count))
      if (isTotal) this.finish(target)
      return
    }
    const length = range.end - range.start
    if (into === 'aside' && count === length) {
      // All of it in one message, which is ours to keep.
      this.aside[index] = elementsAt(buffer, message, at, count)
      return
    }
    // As bytes: a copy through numbers may change the payload of a NaN, and records are not numbers.
    if (into === 'aside') this.aside[index] ??= sameType(buffer, length)
    const target =
      into === 'aside'
        ? bytesOf(this.aside[index]!, first, count)
        : bytesOf(buffer, range.start + first, count)
    target.set(message.subarray(at, at + type.bytes * count))
  }

  /** Combines as far as all of its sources are here. */
  private fold(index: number): void {
    const { bytes } = this.type
    const plan = this.plan.folds[index]!
    const { range, sources } = plan
    let end = this.bytesIn(range)
    for (const source of sources) {
      if (source === 'own') continue
      const before = bytes * (range.start - this.plan.receives[source]!.range.start)
      end = Math.min(end, this.received[source]! - before)
    }
    const from = this.folded[index]!
    if (end <= from) return
    this.combine(plan, range.start + from / bytes, (end - from) / bytes)
    this.folded[index] = end
    for (const send of this.sendsAfterFold[index]!) this.ready[send] = end
  }

  private combine({ sources, isPartial }: Fold, start: number, count: number): void {
    const { buffer, type } = this
    const partOf = (source: number | 'own'): ElementArray => {
      if (source === 'own') return buffer.subarray(start, start + count)
      const from = start - this.plan.receives[source]!.range.start
      return this.aside[source]!.subarray(from, from + count)
    }
    // In the first part's own place: nothing else reads it again.
    const total = partOf(sources[0]!)
    for (let at = 1; at < sources.length; at++)
      type.combine[this.combining](total, partOf(sources[at]!))
    if (!isPartial) this.finish(total)
    if (sources[0] !== 'own') buffer.set(total, start)
  }

  private get combining() {
    return this.op === 'avg' ? 'sum' : this.op
  }

  /** A finished sum becomes the average, once, before it is passed on. */
  private finish(total: ElementArray): void {
    if (this.op === 'avg') this.type.divide!(total, this.size)
  }

  private bytesIn({ start, end }: ChunkRange): number {
    return (end - start) * this.type.bytes
  }

  private sideOf(peer: number): Side {
    let side = this.sides.get(peer)
    if (!side) {
      side = {
        sends: [],
        firstUnsent: 0,
        sendRemaining: 0,
        receiveRemaining: 0,
        receives: new Map(),
      }
      this.sides.set(peer, side)
    }
    return side
  }

  private error(peer: number, text: string): PeerError {
    return new PeerError(
      'peer.protocol',
      `${this.name}: rank ${this.rank} got bad data from rank ${peer}: ${text}.`,
    )
  }
}
