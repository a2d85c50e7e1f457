import { PeerError } from '../util/errors.ts'
import type { Codec } from './codec.ts'
import type { SegmentSource } from './frames.ts'
import {
  type ChunkRange,
  chunkRange,
  type RingPattern,
  type RingStep,
  ringSchedule,
} from './schedule.ts'

export type Reduction = 'sum' | 'mean'

export interface RingCollectiveOptions {
  pattern: RingPattern
  /** As errors show it: `allReduce #42 bucket 0`. */
  name: string
  rank: number
  size: number
  root: number
  buffer: Float32Array
  alignment: number
  reduction: Reduction
  codec: Codec
}

/** A piece of one chunk, ready to go. Reused: read it before the next call. */
export interface Segment {
  step: number
  /** Bytes, in the chunk as the codec writes it. */
  offset: number
  length: number
}

/**
 * One rank's part in one collective: what it may send, what it still awaits, and where received bytes go.
 *
 * It walks a schedule over byte counters and knows no links. Cut-through: the bytes of step s that have arrived are at
 * once what may be sent at step s + 1, so a segment travels on without waiting for its chunk. Everything is counted per
 * step (`received`, `ready`, `sent`), never queued, so a stalled link costs no memory.
 *
 * A region of the buffer is written again only after it has been sent on: the bytes that overwrite it have been round
 * the ring behind those that left.
 *
 * order: a received element is added to what the buffer holds, once per rank, along the ring (schedule.ts).
 * errors: `receive` throws `peer.protocol` before it writes anything.
 */
export class RingCollective implements SegmentSource {
  readonly rank: number
  readonly size: number
  /** Sends us data. */
  readonly previousRank: number
  /** Takes data from us. */
  readonly nextRank: number
  private readonly name: string
  private readonly steps: RingStep[]
  private readonly chunks: ChunkRange[]
  private readonly buffer: Float32Array
  private readonly codec: Codec
  private readonly reduction: Reduction
  /** Bytes by step. */
  private readonly received: Float64Array
  private readonly ready: Float64Array
  private readonly sent: Float64Array
  private firstUnsent = 0
  private sendRemaining = 0
  private receiveRemaining = 0
  private readonly segment: Segment = { step: 0, offset: 0, length: 0 }

  constructor(options: RingCollectiveOptions) {
    const { pattern, rank, size, root, buffer, alignment } = options
    this.rank = rank
    this.previousRank = (rank + size - 1) % size
    this.nextRank = (rank + 1) % size
    this.name = options.name
    this.buffer = buffer
    this.codec = options.codec
    this.size = size
    this.reduction = options.reduction
    this.steps = ringSchedule(pattern, rank, size, root)
    this.chunks =
      pattern === 'broadcast'
        ? [{ start: 0, end: buffer.length }]
        : Array.from({ length: size }, (_, index) =>
            chunkRange(buffer.length, size, index, alignment),
          )
    this.received = new Float64Array(this.steps.length)
    this.ready = new Float64Array(this.steps.length)
    this.sent = new Float64Array(this.steps.length)
    this.steps.forEach(({ sendChunk, receiveChunk }, step) => {
      const sendBytes = this.chunkBytes(sendChunk)
      this.sendRemaining += sendBytes
      this.receiveRemaining += this.chunkBytes(receiveChunk)
      const isPassedOn = step > 0 && this.steps[step - 1]!.receiveChunk === sendChunk
      if (!isPassedOn) this.ready[step] = sendBytes
    })
  }

  get isReceiving(): boolean {
    return this.receiveRemaining > 0
  }

  get isSending(): boolean {
    return this.sendRemaining > 0
  }

  /** The first chunk that has not arrived in full; -1 when all have. */
  get awaitedChunk(): number {
    return this.firstOpen(this.received, 'receiveChunk')
  }

  /** The first chunk that has not been sent in full; -1 when all have. */
  get unsentChunk(): number {
    return this.firstOpen(this.sent, 'sendChunk')
  }

  /** Returns the next piece to send, at most `maxBytes` long, or undefined when nothing is ready. Oldest step first. */
  nextSegment(maxBytes: number): Segment | undefined {
    const { ready, sent, steps } = this
    while (
      this.firstUnsent < steps.length &&
      sent[this.firstUnsent]! >= this.chunkBytes(steps[this.firstUnsent]!.sendChunk)
    )
      this.firstUnsent += 1
    for (let step = this.firstUnsent; step < steps.length; step++) {
      const waiting = ready[step]! - sent[step]!
      if (waiting <= 0) continue
      const { bytesPerElement } = this.codec
      this.segment.step = step
      this.segment.offset = sent[step]!
      this.segment.length = Math.min(waiting, maxBytes - (maxBytes % bytesPerElement))
      return this.segment
    }
    return undefined
  }

  /** Notes that `segment` has been handed to the link. */
  markSent(segment: Segment): void {
    this.sent[segment.step]! += segment.length
    this.sendRemaining -= segment.length
  }

  writeSegment(
    step: number,
    offset: number,
    length: number,
    target: Uint8Array<ArrayBuffer>,
    at: number,
  ): void {
    const { bytesPerElement } = this.codec
    const start = this.chunks[this.steps[step]!.sendChunk]!.start + offset / bytesPerElement
    this.codec.encode(this.buffer, start, length / bytesPerElement, target, at)
  }

  /** Takes the payload of one DATA frame: `length` bytes of `message` from `at` on. */
  receive(
    step: number,
    offset: number,
    length: number,
    message: Uint8Array<ArrayBuffer>,
    at: number,
  ): void {
    const { bytesPerElement } = this.codec
    const plan = this.steps[step]
    if (!plan || plan.receiveChunk < 0)
      throw this.error(`expected no data at step ${step}, got ${length} bytes`)
    const where = `step ${step}, chunk ${plan.receiveChunk}`
    const expected = this.received[step]!
    const chunkBytes = this.chunkBytes(plan.receiveChunk)
    if (offset < expected)
      throw this.error(
        `${where}: expected offset ${expected}, got ${offset}: bytes that came before came again`,
      )
    if (offset > expected)
      throw this.error(`${where}: expected offset ${expected}, got ${offset}: bytes are missing`)
    if (length === 0 || length % bytesPerElement !== 0 || offset + length > chunkBytes)
      throw this.error(
        `${where}: expected whole elements within ${chunkBytes} bytes, got ${length} bytes at offset ${offset}`,
      )
    const start = this.chunks[plan.receiveChunk]!.start + offset / bytesPerElement
    const count = length / bytesPerElement
    if (plan.combine === 'add') {
      this.codec.add(message, at, count, this.buffer, start)
      if (this.reduction === 'mean' && plan.receiveChunk === this.rank) this.divide(start, count)
    } else {
      this.codec.copy(message, at, count, this.buffer, start)
    }
    this.received[step] = offset + length
    this.receiveRemaining -= length
    if (this.steps[step + 1]?.sendChunk === plan.receiveChunk)
      this.ready[step + 1] = offset + length
  }

  /** The owner turns its finished sum into the mean, once, before it is passed on. */
  private divide(start: number, count: number): void {
    for (let i = start; i < start + count; i++) this.buffer[i]! /= this.size
  }

  private chunkBytes(chunk: number): number {
    if (chunk < 0) return 0
    const { start, end } = this.chunks[chunk]!
    return (end - start) * this.codec.bytesPerElement
  }

  private firstOpen(done: Float64Array, side: 'sendChunk' | 'receiveChunk'): number {
    const step = this.steps.findIndex((plan, index) => done[index]! < this.chunkBytes(plan[side]))
    return step < 0 ? -1 : this.steps[step]![side]
  }

  private error(text: string): PeerError {
    return new PeerError(
      'peer.protocol',
      `${this.name}: rank ${this.rank} got bad data from rank ${this.previousRank}: ${text}.`,
    )
  }
}
