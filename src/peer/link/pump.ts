/**
 * For browsers that cannot transfer a data channel: the page pumps it through a MessagePort to the worker.
 *
 * `pumpChannel` runs on the page, `PumpLink` in the worker. Buffers are transferred, so the page copies nothing but what
 * `RTCDataChannel.send` copies. The page reports how many bytes have left the channel's queue (`taken`), by which
 * `PumpLink.room()` keeps that queue as short as a channel link does.
 *
 * When to delete: once every supported browser transfers RTCDataChannel (Safari 15, Chrome 130, Firefox 144 do).
 */
import { channelDefaults } from './channel.ts'
import type { LinkEnd, LinkKind } from './link.ts'
import { LinkBase } from './link-base.ts'

type ToWorker = ArrayBuffer | { open: true } | { taken: number } | { end: LinkEnd }
type ToPage = ArrayBuffer | { bye: string }

/** Carries everything between `channel` and `port` until either ends. Call it in the task that made the channel. */
export function pumpChannel(channel: RTCDataChannel, port: MessagePort): void {
  const post = (message: ToWorker, transfer: Transferable[] = []) =>
    port.postMessage(message, transfer)
  let failure = ''
  let queuedBytes = 0
  let isOver = false

  const end = (why: LinkEnd['why'], detail: string) => {
    if (isOver) return
    isOver = true
    post({ end: { why, detail } })
    port.onmessage = null
    port.close()
    channel.close()
  }
  // Bytes are `taken` when they have left the queue, but never later than the low-water event.
  const reportTaken = () => {
    const taken = queuedBytes - channel.bufferedAmount
    if (taken <= 0) return
    queuedBytes -= taken
    post({ taken })
  }

  channel.binaryType = 'arraybuffer'
  channel.bufferedAmountLowThreshold = channelDefaults.lowWaterBytes
  channel.onopen = () => post({ open: true })
  channel.onbufferedamountlow = reportTaken
  channel.onmessage = (event: MessageEvent) => {
    if (event.data instanceof ArrayBuffer) post(event.data, [event.data])
    else end('failed', `received a ${typeof event.data} message on a binary channel`)
  }
  channel.onerror = (event: Event) => {
    failure = (event as RTCErrorEvent).error?.message ?? 'channel error'
  }
  channel.onclose = () => end('closed', failure || 'the data channel closed')
  port.onmessage = (event: MessageEvent<ToPage>) => {
    const { data } = event
    if (!(data instanceof ArrayBuffer)) {
      end('local', data.bye)
      return
    }
    if (channel.readyState !== 'open') return
    try {
      channel.send(data)
    } catch (thrown) {
      end('failed', thrown instanceof Error ? `${thrown.name}: ${thrown.message}` : String(thrown))
      return
    }
    queuedBytes += data.byteLength
    if (channel.bufferedAmount <= channelDefaults.lowWaterBytes) reportTaken()
  }
  if (channel.readyState === 'open') post({ open: true })
}

/** The worker's end of a pumped channel: a link of kind `webrtc`. */
export class PumpLink extends LinkBase {
  readonly kind: LinkKind = 'webrtc'
  readonly maxMessageBytes = channelDefaults.maxMessageBytes
  override readonly transfers = true
  private isOpen = false
  private outstandingBytes = 0

  constructor(private readonly port: MessagePort) {
    super()
    port.onmessage = (event: MessageEvent<ToWorker>) => {
      const { data } = event
      if (data instanceof ArrayBuffer) {
        this.deliver(new Uint8Array(data))
      } else if ('taken' in data) {
        const wasFull = this.room() <= 0
        this.outstandingBytes -= data.taken
        if (wasFull && this.room() > 0) this.roomAgain()
      } else if ('open' in data) {
        this.isOpen = true
        this.roomAgain()
      } else {
        this.port.close()
        this.finish(data.end)
      }
    }
  }

  room(): number {
    if (this.ended || !this.isOpen) return 0
    return channelDefaults.highWaterBytes - this.outstandingBytes
  }

  protected transmit(message: Uint8Array<ArrayBuffer>, transfer: boolean): void {
    this.outstandingBytes += message.byteLength
    const isWhole = message.byteLength === message.buffer.byteLength
    const buffer = transfer && isWhole ? message.buffer : message.slice().buffer
    this.port.postMessage(buffer, [buffer])
  }

  protected shut(detail: string): void {
    this.port.postMessage({ bye: detail })
    this.port.onmessage = null
    this.port.close()
  }
}
