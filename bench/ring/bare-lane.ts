/**
 * Single messages over a link's own channel or port, one for each call, with nothing else: no credit, no frame, no queue.
 *
 * It shares the pipe with the link, whose frames begin with another byte: so both are measured on one connection, in turns.
 * Floors are made of these; what a pipe carries at most is `RawLane`'s.
 */
const mark = 0xe3

export class BareLane {
  readonly #send: (message: Uint8Array<ArrayBuffer>) => void
  #message = new Uint8Array(0)
  #received = 0
  #expected = 0
  #resolve: (() => void) | undefined

  /** Takes over what is bare of the pipe's messages and leaves the rest to the handler that is there. */
  constructor(pipe: RTCDataChannel | MessagePort) {
    const isPort = pipe instanceof MessagePort
    this.#send = isPort
      ? (message) => {
          // As a port's link does it: a new buffer, which is transferred.
          const { buffer } = message.slice()
          pipe.postMessage(buffer, [buffer])
        }
      : (message) => pipe.send(message)
    const other = pipe.onmessage as ((event: MessageEvent) => void) | null
    pipe.onmessage = (event: MessageEvent) => {
      const isBare = event.data instanceof ArrayBuffer && new Uint8Array(event.data)[0] === mark
      if (!isBare) {
        other?.call(pipe, event)
        return
      }
      this.#received += 1
      this.#settle()
    }
  }

  send(sizeBytes: number): void {
    if (this.#message.length !== sizeBytes) this.#message = new Uint8Array(sizeBytes).fill(mark)
    this.#send(this.#message)
  }

  /** Resolves when one more has come than this has waited for before. */
  receive(): Promise<void> {
    this.#expected += 1
    return new Promise((resolve) => {
      this.#resolve = resolve
      this.#settle()
    })
  }

  #settle(): void {
    if (this.#received < this.#expected) return
    this.#resolve?.()
    this.#resolve = undefined
  }
}
