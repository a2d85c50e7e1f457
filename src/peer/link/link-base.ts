import { invariant } from '../../util/errors.ts'
import type { Link, LinkEnd, LinkKind, LinkStats } from './link.ts'

/** Messages that may wait for an owner that does not listen yet: before both sides have said hello there are a few small ones. */
const maxWaiting = 500

/**
 * Base of every link: counts, ends exactly once, and keeps what arrives before its owner has set a handler.
 *
 * A transport calls `deliver`, `roomAgain` and `finish`; it implements `room`, `transmit` and `shut`.
 */
export abstract class LinkBase implements Link {
  abstract readonly kind: LinkKind
  abstract readonly maxMessageBytes: number
  /** True when `send` gives its buffer away; the session then composes each frame in a fresh one. */
  readonly transfers: boolean = false

  onroom: () => void = ignore
  private handleMessage: ((message: Uint8Array<ArrayBuffer>) => void) | undefined
  private handleEnd: ((end: LinkEnd) => void) | undefined
  private waiting: Uint8Array<ArrayBuffer>[] = []
  protected ended: LinkEnd | undefined
  private readonly counts: LinkStats = {
    bytesSent: 0,
    bytesReceived: 0,
    messagesSent: 0,
    messagesReceived: 0,
  }

  abstract room(): number
  protected abstract transmit(message: Uint8Array<ArrayBuffer>, transfer: boolean): void
  /** Ends the transport below; called once, by `close`. */
  protected abstract shut(detail: string): void

  set onmessage(handler: (message: Uint8Array<ArrayBuffer>) => void) {
    this.handleMessage = handler
    if (this.waiting.length > 0) queueMicrotask(() => this.flush())
  }

  get onmessage(): (message: Uint8Array<ArrayBuffer>) => void {
    return this.handleMessage ?? ignore
  }

  set onend(handler: (end: LinkEnd) => void) {
    this.handleEnd = handler
    const end = this.ended
    if (end) {
      queueMicrotask(() => {
        this.flush()
        this.takeEndHandler()?.(end)
      })
    }
  }

  get onend(): (end: LinkEnd) => void {
    return this.handleEnd ?? ignore
  }

  send(message: Uint8Array<ArrayBuffer>, transfer = false): void {
    if (this.ended) return
    invariant(
      message.length <= this.maxMessageBytes,
      () => `link: messages have up to ${this.maxMessageBytes} bytes, got ${message.length}`,
    )
    this.counts.bytesSent += message.length
    this.counts.messagesSent += 1
    this.transmit(message, transfer)
  }

  close(detail: string): void {
    if (this.ended) return
    this.shut(detail)
    this.finish({ why: 'local', detail })
  }

  async stats(): Promise<LinkStats> {
    return { ...this.counts }
  }

  protected deliver(message: Uint8Array<ArrayBuffer>): void {
    if (this.ended) return
    this.counts.bytesReceived += message.length
    this.counts.messagesReceived += 1
    if (this.handleMessage && this.waiting.length === 0) this.handleMessage(message)
    else if (this.waiting.push(message) > maxWaiting && !this.handleMessage)
      this.close('it came too early')
  }

  protected roomAgain(): void {
    if (!this.ended) this.onroom()
  }

  protected finish(end: LinkEnd): void {
    if (this.ended) return
    this.flush()
    this.ended = end
    this.takeEndHandler()?.(end)
  }

  private flush(): void {
    while (this.handleMessage && this.waiting.length > 0) this.handleMessage(this.waiting.shift()!)
  }

  private takeEndHandler(): ((end: LinkEnd) => void) | undefined {
    const handler = this.handleEnd
    this.handleEnd = undefined
    return handler
  }
}

function ignore(): undefined {
  return undefined
}
