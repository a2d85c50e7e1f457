import { WebSocket } from 'ws'

/** Parameters and results of WebDriver BiDi. */
// biome-ignore lint/suspicious/noExplicitAny: the protocol's JSON, which the browser and not the type checker vouches for
export type Words = Readonly<Record<string, any>>

type Listener = (parameters: Words) => void

/**
 * A connection to a browser by WebDriver BiDi, the protocol of https://www.w3.org/TR/webdriver-bidi/: commands with answers, and events.
 *
 * Commands that are under way when the connection ends reject.
 */
export class Bidi {
  /** Resolves when the connection has ended, by whomever. */
  readonly closed: Promise<void>
  readonly #socket: WebSocket
  readonly #answers = new Map<
    number,
    { take: (words: Words) => void; fail: (why: Error) => void }
  >()
  readonly #listeners = new Map<string, Set<Listener>>()
  #last = 0

  private constructor(socket: WebSocket) {
    this.#socket = socket
    socket.on('message', (data) => this.#take(JSON.parse(String(data))))
    // What follows is the end.
    socket.on('error', () => undefined)
    this.closed = new Promise((resolve) => {
      socket.once('close', () => {
        for (const { fail } of this.#answers.values()) fail(new Error('the browser has gone'))
        this.#answers.clear()
        resolve()
      })
    })
  }

  /** Opens a session at the address that the browser printed. errors: the socket's. */
  static async connect(address: string): Promise<Bidi> {
    const socket = new WebSocket(`${address}/session`, { maxPayload: 0, perMessageDeflate: false })
    await new Promise((resolve, reject) => {
      socket.once('open', resolve)
      socket.once('error', reject)
    })
    const bidi = new Bidi(socket)
    await bidi.send('session.new', { capabilities: {} })
    return bidi
  }

  /** Returns a command's result. errors: the browser's words. */
  send(method: string, params: Words = {}): Promise<Words> {
    const id = ++this.#last
    return new Promise((take, fail) => {
      if (this.#socket.readyState !== WebSocket.OPEN) {
        fail(new Error('the browser has gone'))
        return
      }
      this.#answers.set(id, { take, fail })
      this.#socket.send(JSON.stringify({ id, method, params }))
    })
  }

  /** Calls `listener` with each event of that name. */
  on(event: string, listener: Listener): void {
    const listeners = this.#listeners.get(event) ?? new Set()
    this.#listeners.set(event, listeners.add(listener))
  }

  close(): void {
    this.#socket.terminate()
  }

  #take({ id, type, result, method, params, message }: Words): void {
    if (type === 'event') {
      for (const listener of this.#listeners.get(method) ?? []) listener(params)
      return
    }
    const answer = this.#answers.get(id)
    this.#answers.delete(id)
    if (type === 'error') answer?.fail(new Error(message))
    else answer?.take(result)
  }
}
