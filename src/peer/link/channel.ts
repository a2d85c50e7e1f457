import { checkOptions } from '../../util/options.ts'
import type { LinkKind, LinkStats } from './link.ts'
import { LinkBase } from './link-base.ts'

/** Options of `ChannelLink`. */
export interface ChannelLinkOptions {
  /** Largest message, bytes. Default 64 KiB, which every engine takes; a channel does not expose `sctp.maxMessageSize`. */
  maxMessageBytes?: number
  /** `bufferedAmount` at which `room()` is 0. units: bytes. */
  highWaterBytes?: number
  /** `bufferedAmount` at which `onroom` is called again. units: bytes. */
  lowWaterBytes?: number
}

/** The fastest of those measured with Chromium 156 on loopback. */
export const channelDefaults = {
  maxMessageBytes: 64 * 1024,
  highWaterBytes: 256 * 1024,
  lowWaterBytes: 64 * 1024,
} as const satisfies Required<ChannelLinkOptions>

/**
 * Wraps an RTCDataChannel as a link, on a page or in the worker it was transferred to.
 *
 * Create it in the task that created or received the channel: a message can arrive before the `open` event, and a message
 * without a listener is lost. `room()` is 0 until the channel opens, and `onroom` is called then.
 */
export class ChannelLink extends LinkBase {
  readonly kind: LinkKind = 'webrtc'
  readonly maxMessageBytes: number
  private readonly highWaterBytes: number
  private failure = ''

  constructor(
    private readonly channel: RTCDataChannel,
    options: ChannelLinkOptions = {},
  ) {
    super()
    checkOptions('ChannelLink', options, {
      maxMessageBytes: true,
      highWaterBytes: true,
      lowWaterBytes: true,
    })
    const settings = { ...channelDefaults, ...options }
    this.maxMessageBytes = settings.maxMessageBytes
    this.highWaterBytes = settings.highWaterBytes
    channel.binaryType = 'arraybuffer'
    channel.bufferedAmountLowThreshold = settings.lowWaterBytes
    channel.onmessage = (event: MessageEvent) => {
      if (event.data instanceof ArrayBuffer) this.deliver(new Uint8Array(event.data))
      else this.fail(`received a ${typeof event.data} message on a binary channel`)
    }
    channel.onopen = () => this.roomAgain()
    channel.onbufferedamountlow = () => this.roomAgain()
    channel.onerror = (event: Event) => {
      const error = (event as RTCErrorEvent).error as RTCError | undefined
      this.failure = error ? `${error.errorDetail ?? 'error'}: ${error.message}` : 'channel error'
    }
    const closed = () =>
      this.finish({ why: 'closed', detail: this.failure || 'the data channel closed' })
    channel.onclose = closed
    if (channel.readyState === 'closed') closed()
  }

  room(): number {
    if (this.ended || this.channel.readyState !== 'open') return 0
    return this.highWaterBytes - this.channel.bufferedAmount
  }

  protected transmit(message: Uint8Array<ArrayBuffer>): void {
    // `closing` comes before the close event; until that arrives, what is sent goes nowhere.
    if (this.channel.readyState === 'closing' || this.channel.readyState === 'closed') return
    try {
      this.channel.send(message)
    } catch (thrown) {
      // InvalidStateError before `open`, OperationError on 16 MiB of queue: both mean that `room()` was not asked.
      this.fail(thrown instanceof Error ? `${thrown.name}: ${thrown.message}` : String(thrown))
    }
  }

  protected shut(): void {
    this.detach()
    this.channel.close()
  }

  override async stats(): Promise<LinkStats> {
    const counts = await super.stats()
    // Bytes still in the send queue have not been carried yet.
    return { ...counts, bytesSent: counts.bytesSent - this.channel.bufferedAmount }
  }

  private fail(detail: string): void {
    this.detach()
    this.channel.close()
    this.finish({ why: 'failed', detail })
  }

  private detach(): void {
    this.channel.onmessage = null
    this.channel.onopen = null
    this.channel.onbufferedamountlow = null
    this.channel.onerror = null
    this.channel.onclose = null
  }
}
