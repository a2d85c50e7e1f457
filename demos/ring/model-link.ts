import type { LinkKind } from '../../src/peer/link/link.ts'
import { LinkBase } from '../../src/peer/link/link-base.ts'
import type { VirtualEnv } from '../../src/util/virtual-env.ts'

/** One way between two ranks. */
export interface WayModel {
  readonly latencyMs: number
  readonly bytesPerMs: number
  /** Share of messages that are lost, from 0 to 1. */
  readonly loss: number
}

/** What a rank sends through, one message after the other, whatever link it goes to. */
interface Uplink {
  freeAtMs: number
}

/** One time that a message was put on its way. */
export interface Attempt {
  /** Its first byte goes, and its last one. */
  readonly leavesMs: number
  readonly leftMs: number
  readonly isLost: boolean
}

/** A message on its way from one rank to another. */
export interface Travel {
  readonly from: number
  readonly to: number
  readonly bytes: Uint8Array<ArrayBuffer>
  readonly sentMs: number
  readonly attempts: readonly Attempt[]
  /** Infinity until then. */
  arrivedMs: number
}

/** Events of messages; `onarrived` after the receiver has processed one. */
export interface TravelEvents {
  onsent(travel: Travel): void
  onarrived(travel: Travel): void
}

export interface ModelLinkOptions {
  readonly env: VirtualEnv
  readonly from: number
  readonly to: number
  readonly uplink: Uplink
  /** Asked for each message. */
  readonly way: () => WayModel
  readonly events: TravelEvents
}

/** The wait before a lost message is sent again, which doubles with each loss: SCTP's first timeout in Chromium's data channels. */
const firstRetryMs = 500

/**
 * One end of a link as a data channel is one, on a virtual clock: ordered and reliable, with a latency and a rate. A lost message is sent again after a timeout,
 * and all behind it wait for it.
 */
class ModelLink extends LinkBase {
  readonly kind: LinkKind = 'memory'
  readonly maxMessageBytes = 64 * 1024
  private other!: ModelLink
  private lastArrivalMs = 0
  private readonly underWay: Travel[] = []

  constructor(private readonly options: ModelLinkOptions) {
    super()
  }

  join(other: ModelLink): void {
    this.other = other
  }

  room(): number {
    return this.ended ? 0 : Number.POSITIVE_INFINITY
  }

  protected transmit(message: Uint8Array<ArrayBuffer>, transfer: boolean): void {
    const { env, from, to, uplink, way, events } = this.options
    const { latencyMs, bytesPerMs, loss } = way()
    const bytes = transfer ? message : message.slice()
    const takesMs = bytes.length / bytesPerMs
    const sentMs = env.now()
    const attempts: Attempt[] = []
    let leavesMs = Math.max(sentMs, uplink.freeAtMs)
    uplink.freeAtMs = leavesMs + takesMs
    for (let retryMs = firstRetryMs; ; retryMs *= 2) {
      const leftMs = leavesMs + takesMs
      const isLost = env.chance() < loss
      attempts.push({ leavesMs, leftMs, isLost })
      if (!isLost) break
      leavesMs = leftMs + retryMs
    }
    const arrivalMs = Math.max(this.lastArrivalMs, attempts.at(-1)!.leftMs + latencyMs)
    this.lastArrivalMs = arrivalMs
    const travel = { from, to, bytes, sentMs, attempts, arrivedMs: Number.POSITIVE_INFINITY }
    events.onsent(travel)
    this.underWay.push(travel)
    // Each timer delivers whatever is first: what is left of a delay after rounding is not to change the order.
    env.after(arrivalMs - sentMs, () => {
      const first = this.underWay.shift()!
      first.arrivedMs = env.now()
      this.other.deliver(first.bytes)
      events.onarrived(first)
    })
  }

  protected shut(detail: string): void {
    this.options.env.after(0, () => this.other.finish({ why: 'closed', detail }))
  }
}

/** The two ends of a link. */
export function joinedPair(
  there: ModelLinkOptions,
  back: ModelLinkOptions,
): [ModelLink, ModelLink] {
  const pair: [ModelLink, ModelLink] = [new ModelLink(there), new ModelLink(back)]
  pair[0].join(pair[1])
  pair[1].join(pair[0])
  return pair
}
