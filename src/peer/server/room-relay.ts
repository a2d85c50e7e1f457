import type { Env } from '../../util/env.ts'
import type { TokenBucket } from '../room/token-bucket.ts'

/** Limits of a room's relay: what it may hold and how long it waits. */
export interface RelayLimits {
  relayEndsPerRoom: number
  relayFrameBytes: number
  relayFrameMinBytes: number
  relayFrameCostBytes: number
  relayQueueBytes: number
  relayWaitMs: number
}

export type RelayRefusal =
  | 'too-many'
  | 'bad-message'
  | 'too-large'
  | 'too-slow'
  | 'channel-taken'
  | 'other-end-gone'
  | 'wrong-state'

/** Calls that pass bytes on, made to the owner of the sockets. */
export interface RelaySockets {
  /** Queues `bytes` for a connection. `Rendezvous.passed` is called with their number when they have left this process. */
  pass(connectionId: string, bytes: Uint8Array): void
  /** Stops reading from a connection, so that its sender's network stops too; `resume` reads again. */
  pause(connectionId: string): void
  resume(connectionId: string): void
}

/** The part of the server that a room's relay needs. */
export interface RoomRelayHost {
  readonly env: Env
  readonly limits: RelayLimits
  readonly sockets: RelaySockets
  /** Both ends of this one's channel are here. */
  joined(connectionId: string): void
  /** Closes a connection, and says why. */
  refuse(connectionId: string, code: RelayRefusal, text: string): void
}

interface End {
  readonly connectionId: string
  readonly channel: string
  readonly side: 0 | 1
  other: End | null
  /** Bytes that came for it and have not left this process. */
  queuedBytes: number
  /** Why its socket is not read: the other end does not take what it sends, or its address has sent too much. */
  readonly holds: Set<'full' | 'fast'>
  /** Of the bytes from its address; null for no limit. */
  readonly rate: TokenBucket | null
  /** For the other end, or until its address may send again. */
  cancelWait: () => void
}

/**
 * The relay of one room, on the server: binary messages of a channel's one end go to its other end, unread.
 *
 * A channel is two connections that named it, of this room alone: each has proved the room's key, and rooms do not share channels. What an end
 * sends is taken until `relayQueueBytes` wait for the other end; then its socket is not read until less than half of that waits. So a
 * slow end stops its sender, and the server holds no more than that, and one read of a socket, for each end. Nor is an end read whose address has
 * sent more than its rate allows, until that has been made up for.
 */
export class RoomRelay {
  private readonly ends = new Map<string, End>()
  /** Ends that wait for their other one, by channel and side. */
  private readonly waiting = new Map<string, End>()

  constructor(private readonly host: RoomRelayHost) {}

  get size(): number {
    return this.ends.size
  }

  /** Bytes that wait for all ends. units: bytes. */
  get queuedBytes(): number {
    return [...this.ends.values()].reduce((sum, { queuedBytes }) => sum + queuedBytes, 0)
  }

  has(connectionId: string): boolean {
    return this.ends.has(connectionId)
  }

  /** Returns whether this end is not read, so that its silence means nothing. */
  isPaused(connectionId: string): boolean {
    return (this.ends.get(connectionId)?.holds.size ?? 0) > 0
  }

  /** Why this end cannot come in, if it cannot. */
  check(channel: string, side: 0 | 1): [RelayRefusal, string] | null {
    const { relayEndsPerRoom } = this.host.limits
    if (this.ends.size >= relayEndsPerRoom) {
      const text = `a room may have at most ${relayEndsPerRoom} ends of relayed links. Use topology "ring".`
      return ['too-many', text]
    }
    const isTaken = [...this.ends.values()].some(
      (end) => end.channel === channel && end.side === side,
    )
    if (!isTaken) return null
    return ['channel-taken', `end ${side} of this channel is already connected.`]
  }

  /** An end has come in; its other one may be here. `rate`: of all ends of its address. */
  add(connectionId: string, channel: string, side: 0 | 1, rate: TokenBucket | null): void {
    const end: End = {
      ...{ connectionId, channel, side, rate },
      ...{ other: null, queuedBytes: 0, holds: new Set(), cancelWait: () => undefined },
    }
    this.ends.set(connectionId, end)
    const other = this.waiting.get(nameOf(channel, 1 - side))
    if (other) {
      this.waiting.delete(nameOf(channel, other.side))
      other.cancelWait()
      other.other = end
      end.other = other
      for (const one of [other, end]) this.host.joined(one.connectionId)
      return
    }
    this.waiting.set(nameOf(channel, side), end)
    const { relayWaitMs } = this.host.limits
    end.cancelWait = this.host.env.after(relayWaitMs, () =>
      this.host.refuse(
        connectionId,
        'too-slow',
        `the other end of the relayed link did not connect within ${relayWaitMs} ms. Is its tab still open?`,
      ),
    )
  }

  /** A binary message of an end. */
  receive(connectionId: string, bytes: Uint8Array): void {
    const end = this.ends.get(connectionId)
    if (!end) return
    const { relayFrameBytes, relayFrameMinBytes, relayQueueBytes } = this.host.limits
    if (bytes.length > relayFrameBytes) {
      const text = `expected a relayed message of at most ${relayFrameBytes} bytes, got ${bytes.length}.`
      this.host.refuse(connectionId, 'too-large', text)
      return
    }
    if (bytes.length < relayFrameMinBytes) {
      const text = `expected a sealed message of at least ${relayFrameMinBytes} bytes, got ${bytes.length}.`
      this.host.refuse(connectionId, 'bad-message', text)
      return
    }
    const { other } = end
    if (!other) {
      const text = 'received a message to relay before the other end connected.'
      this.host.refuse(connectionId, 'wrong-state', text)
      return
    }
    other.queuedBytes += this.costOf(bytes.length)
    if (other.queuedBytes >= relayQueueBytes) this.hold(end, 'full')
    end.rate?.spend(bytes.length)
    this.keepRate(end)
    this.host.sockets.pass(other.connectionId, bytes)
  }

  /** Bytes for an end have left this process. */
  passed(connectionId: string, sizeBytes: number): void {
    const end = this.ends.get(connectionId)
    if (!end) return
    end.queuedBytes -= this.costOf(sizeBytes)
    const { other } = end
    if (other && end.queuedBytes <= this.host.limits.relayQueueBytes / 2)
      this.release(other, 'full')
  }

  /** Does not read an end before its address may send again, which its other ends may put off. */
  private keepRate(end: End): void {
    const waitMs = end.rate?.waitMs ?? 0
    if (waitMs === 0) {
      this.release(end, 'fast')
      return
    }
    this.hold(end, 'fast')
    end.cancelWait()
    end.cancelWait = this.host.env.after(waitMs, () => this.keepRate(end))
  }

  private hold(end: End, why: 'full' | 'fast'): void {
    if (end.holds.size === 0) this.host.sockets.pause(end.connectionId)
    end.holds.add(why)
  }

  private release({ holds, connectionId }: End, why: 'full' | 'fast'): void {
    if (holds.delete(why) && holds.size === 0) this.host.sockets.resume(connectionId)
  }

  /** Returns a message's share of the queue's limit: a server keeps more of it than its bytes. */
  private costOf(sizeBytes: number): number {
    return sizeBytes + this.host.limits.relayFrameCostBytes
  }

  /** A connection has ended: so does its channel. */
  remove(connectionId: string, text: string): void {
    const end = this.ends.get(connectionId)
    if (!end) return
    end.cancelWait()
    this.ends.delete(connectionId)
    const { other } = end
    if (!other) {
      this.waiting.delete(nameOf(end.channel, end.side))
      return
    }
    other.other = null
    // So that it hears of its end.
    if (other.holds.size > 0) this.host.sockets.resume(other.connectionId)
    this.host.refuse(other.connectionId, 'other-end-gone', `the other end is gone: ${text}`)
  }
}

const nameOf = (channel: string, side: number): string => `${side} ${channel}`
