/**
 * A bare data channel: a sender and a receiver with the credit window that the browser needs, and nothing else.
 *
 * It shares a channel with a `ChannelLink`, whose frames begin with another byte: so both are measured on one connection, in turns.
 * The receiver looks at no byte but the first. The sender sends the same buffer over and over.
 */

/** The fastest setting that was measured with Chromium 156 on loopback. */
export const rawSettings = {
  messageBytes: 64 * 1024,
  windowBytes: 512 * 1024,
  creditEveryBytes: 128 * 1024,
  highWaterBytes: 256 * 1024,
} as const

const dataMark = 0xd1
const creditMark = 0xc2

export class RawLane {
  readonly #channel: RTCDataChannel
  readonly #message = new Uint8Array(rawSettings.messageBytes).fill(dataMark)
  readonly #credit = new Uint8Array(8).fill(creditMark)
  readonly #creditView = new DataView(this.#credit.buffer)
  #unsent = 0
  #inFlight = 0
  #received = 0
  #unreturned = 0
  /** That all calls of `receive` wait for together. */
  #expected = 0
  #awaited: { total: number; resolve: () => void } | undefined

  /** Takes over what is raw of the channel's messages and leaves the rest to the handler that is there. */
  constructor(channel: RTCDataChannel) {
    this.#channel = channel
    const other = channel.onmessage
    channel.onmessage = (event: MessageEvent) => {
      const bytes = new Uint8Array(event.data as ArrayBuffer)
      if (bytes[0] === dataMark) this.#receive(bytes.length)
      else if (bytes[0] === creditMark) this.#credited(bytes)
      else other?.call(channel, event)
    }
    channel.addEventListener('bufferedamountlow', () => this.#pump())
  }

  /** Sends `sizeBytes`; they are on their way when the other side has them. */
  send(sizeBytes: number): void {
    this.#unsent += sizeBytes
    this.#pump()
  }

  /** Resolves when `sizeBytes` more have come than this has waited for before. */
  receive(sizeBytes: number): Promise<void> {
    this.#expected += sizeBytes
    return new Promise((resolve) => {
      this.#awaited = { total: this.#expected, resolve }
      this.#settle()
    })
  }

  #pump(): void {
    const { messageBytes, windowBytes, highWaterBytes } = rawSettings
    while (this.#unsent > 0 && this.#channel.bufferedAmount < highWaterBytes) {
      const length = Math.min(messageBytes, this.#unsent)
      if (this.#inFlight + length > windowBytes) return
      this.#channel.send(
        length === messageBytes ? this.#message : this.#message.subarray(0, length),
      )
      this.#unsent -= length
      this.#inFlight += length
    }
  }

  #receive(length: number): void {
    this.#received += length
    this.#unreturned += length
    if (this.#unreturned >= rawSettings.creditEveryBytes) this.#returnCredit()
    this.#settle()
  }

  #returnCredit(): void {
    this.#creditView.setUint32(4, this.#unreturned, true)
    this.#unreturned = 0
    this.#channel.send(this.#credit)
  }

  #credited(bytes: Uint8Array): void {
    this.#inFlight -= new DataView(bytes.buffer, bytes.byteOffset).getUint32(4, true)
    this.#pump()
  }

  #settle(): void {
    const awaited = this.#awaited
    if (!awaited || this.#received < awaited.total) return
    this.#awaited = undefined
    // What is left below the step goes back too, so that the next transfer starts with the whole window.
    if (this.#unreturned > 0) this.#returnCredit()
    awaited.resolve()
  }
}
