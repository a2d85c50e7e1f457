import type { Env } from '../../util/env.ts'
import { checkArgument, checkOptions } from '../../util/options.ts'
import type { LinkKind } from './link.ts'
import { LinkBase } from './link-base.ts'
import { fieldOffset } from './wire.ts'

/**
 * Effect of a fault on one message of a memory link.
 *
 * drop: it never arrives. duplicate: it arrives twice. truncate: its last bytes are missing. delay: it and all later messages
 * arrive `delayMs` later. reorder: it arrives after the next one. corrupt: one of its bits is flipped. wrong-epoch: its epoch
 * field is changed. slow: it and each later message travel `delayMs` longer. close: the link ends on both sides instead,
 * without a goodbye. one-way: nothing arrives in this direction any more, without notice. freeze: nor in the other direction.
 */
export type FaultKind =
  | 'drop'
  | 'duplicate'
  | 'truncate'
  | 'delay'
  | 'reorder'
  | 'corrupt'
  | 'wrong-epoch'
  | 'slow'
  | 'close'
  | 'one-way'
  | 'freeze'

/** A fault of one message of a memory link. */
export interface Fault {
  kind: FaultKind
  /** Called with each message before it travels; the fault happens once, on the first message for which it returns true. */
  matches(message: Uint8Array): boolean
  /** Delay of `delay` and `slow`. units: ms. */
  delayMs?: number
  /** For `corrupt`: index of the bit, modulo the message's bits. Default 0. */
  bit?: number
  /** How often it has happened. Tests assert on it: a fault that never happens proves nothing. */
  injectionCount?: number
}

/** Options of `memoryPair`. */
export interface MemoryLinkOptions {
  /** Returns how long one message travels; called for each message. Messages stay in order. Default 0. units: ms. */
  delayMs?: () => number
  maxMessageBytes?: number
  /** Rate of each direction. Default: no limit. units: bytes/ms. */
  bytesPerMs?: number
  /** Bytes in flight in one direction above which `room()` is 0. Default: no limit. */
  highWaterBytes?: number
  /** Faults on messages from the first link of the pair to the second. */
  forward?: Fault[]
  /** Faults on messages from the second link to the first. */
  backward?: Fault[]
}

/** Returns the two ends of one link. order: messages arrive in the order sent, never on the sender's stack. */
export function memoryPair(env: Env, options: MemoryLinkOptions = {}): [MemoryLink, MemoryLink] {
  const isEnv = typeof env?.now === 'function' && typeof env.after === 'function'
  checkArgument('memoryPair', 'env', env, isEnv, 'a clock, such as systemEnv')
  checkOptions('memoryPair', options, {
    delayMs: 'function',
    bytesPerMs: 'number',
    maxMessageBytes: 'number',
    highWaterBytes: 'number',
    forward: 'list',
    backward: 'list',
  })
  const shared = { isFrozen: false }
  const first = new MemoryLink(env, options, options.forward ?? [], shared)
  const second = new MemoryLink(env, options, options.backward ?? [], shared)
  first.join(second)
  second.join(first)
  return [first, second]
}

/** One end of a link within one thread, for tests and for ranks that share a thread; `memoryPair` makes two. */
export class MemoryLink extends LinkBase {
  readonly kind: LinkKind = 'memory'
  readonly maxMessageBytes: number
  private other!: MemoryLink
  private lastArrivalMs = 0
  private readonly arrivals: (() => void)[] = []
  private underWayBytes = 0
  /** When the wire has carried all that was sent. */
  private freeAtMs = 0
  /** By the faults that last. */
  private slowMs = 0
  private isCut = false
  /** Message that the next one overtakes. */
  private overtaken: Uint8Array<ArrayBuffer> | undefined

  constructor(
    private readonly env: Env,
    private readonly options: MemoryLinkOptions,
    private readonly faults: Fault[],
    private readonly shared: { isFrozen: boolean },
  ) {
    super()
    this.maxMessageBytes = options.maxMessageBytes ?? 64 * 1024
  }

  /** Connects the other end. `memoryPair` calls it. */
  join(other: MemoryLink): void {
    this.other = other
  }

  room(): number {
    if (this.ended) return 0
    return (this.options.highWaterBytes ?? Number.POSITIVE_INFINITY) - this.underWayBytes
  }

  protected transmit(message: Uint8Array<ArrayBuffer>, transfer: boolean): void {
    let bytes = transfer ? message : message.slice()
    let extraMs = 0
    for (const fault of this.faults) {
      if (fault.injectionCount || !fault.matches(bytes)) continue
      fault.injectionCount = (fault.injectionCount ?? 0) + 1
      switch (fault.kind) {
        case 'drop':
          return
        case 'duplicate':
          this.travel(bytes.slice(), extraMs)
          break
        case 'truncate':
          bytes = bytes.slice(0, bytes.length - 4)
          break
        case 'delay':
          extraMs = fault.delayMs ?? 0
          break
        case 'reorder':
          this.overtaken = bytes.slice()
          return
        case 'corrupt': {
          const bit = (fault.bit ?? 0) % (8 * bytes.length)
          bytes = bytes.slice()
          bytes[bit >> 3]! ^= 1 << (bit & 7)
          break
        }
        case 'wrong-epoch':
          bytes = bytes.slice()
          bytes[fieldOffset.epoch]! ^= 0x80
          break
        case 'slow':
          this.slowMs += fault.delayMs ?? 0
          break
        case 'one-way':
          this.isCut = true
          break
        case 'freeze':
          this.shared.isFrozen = true
          break
        case 'close':
          this.env.after(0, () => this.endBoth('the transport closed'))
          return
      }
    }
    this.travel(bytes, extraMs)
    const { overtaken } = this
    this.overtaken = undefined
    if (overtaken) this.travel(overtaken, 0)
  }

  protected shut(detail: string): void {
    // As a data channel does: what was sent before the end still arrives.
    this.schedule(0, () => this.other.finish({ why: 'closed', detail }))
  }

  private endBoth(detail: string): void {
    this.finish({ why: 'closed', detail })
    this.other.finish({ why: 'closed', detail })
  }

  private travel(bytes: Uint8Array<ArrayBuffer>, extraMs: number): void {
    this.underWayBytes += bytes.length
    const now = this.env.now()
    const { bytesPerMs = Number.POSITIVE_INFINITY } = this.options
    this.freeAtMs = Math.max(now, this.freeAtMs) + bytes.length / bytesPerMs
    this.schedule(this.freeAtMs - now + extraMs, () => {
      const wasFull = this.room() <= 0
      this.underWayBytes -= bytes.length
      this.other.deliver(bytes)
      if (wasFull && this.room() > 0) this.roomAgain()
    })
  }

  /** Runs `arrive` after everything scheduled before it in this direction. */
  private schedule(extraMs: number, arrive: () => void): void {
    const now = this.env.now()
    const arrivalMs = Math.max(
      this.lastArrivalMs,
      now + (this.options.delayMs?.() ?? 0) + this.slowMs + extraMs,
    )
    this.lastArrivalMs = arrivalMs
    // Each timer delivers whatever is first: browsers clamp nested timers, so theirs is not the order of due times.
    this.arrivals.push(arrive)
    this.env.after(arrivalMs - now, () => {
      const first = this.arrivals.shift()
      if (!this.shared.isFrozen && !this.isCut) first?.()
    })
  }
}
