import type { SocketConstructor, SocketLike } from '../../src/peer/room/room-options.ts'
import { newRoomLink, proofText } from '../../src/peer/room/secret.ts'
import { Rendezvous } from '../../src/peer/server/rendezvous.ts'
import { SignalClient, type SignalEvents, type SignalOptions } from '../../src/peer/tab/signal.ts'
import { VirtualEnv } from '../../src/util/virtual-env.ts'
import { infoOf } from './member-info.ts'
import { hmac, keyProofOf } from './rendezvous-world.ts'

/** Clients and the server's state machine in one process, without sockets, on a virtual clock. */
export class SignalWorld {
  readonly env = new VirtualEnv(11)
  readonly sockets = new Map<string, FakeSocket>()
  /** Runs over what the server sends; undefined loses it. */
  tamper: (text: string) => string | undefined = (text) => text
  /** Null while there is none. */
  server: Rendezvous | null

  /** `roomKey`: that of the server. */
  constructor(private readonly roomKey?: string) {
    this.server = this.#newServer()
  }

  #newServer(): Rendezvous {
    const { roomKey } = this
    return new Rendezvous(this.env, {
      send: (id, message) => {
        const text = this.tamper(JSON.stringify(message))
        if (text !== undefined) this.env.after(1, () => this.sockets.get(id)?.take(text))
      },
      close: (id, text) => {
        if (this.tamper('') === undefined) return // nothing gets through
        this.env.after(1, () => this.sockets.get(id)?.end(1008, text))
      },
      verify: (key, room, nonce, proof) => hmac(key, proofText(room, nonce)) === proof,
      ...(roomKey !== undefined && {
        isRoomKey: (room, nonce, proof) => keyProofOf(roomKey, room, nonce) === proof,
      }),
    })
  }

  /** The server's process ends, and with it all connections. */
  kill(): void {
    this.server = null
    for (const socket of this.sockets.values()) socket.end(1006, '')
  }

  /** Another process, which knows nothing. */
  restart(): void {
    this.server = this.#newServer()
  }

  /** Waits for what needs WebCrypto, which works off the virtual clock: `stepMs` of it for each real millisecond. */
  async settled<T>(promise: Promise<T>, stepMs = 1): Promise<T> {
    let isSettled = false
    const settle = () => {
      isSettled = true
    }
    promise.then(settle, settle)
    while (!isSettled) await this.#step(stepMs)
    return promise
  }

  /** Waits until it is so. Returns how long that took, at most `limitMs`. units: ms, virtual. */
  async until(isSo: () => boolean, limitMs = 60_000): Promise<number> {
    const startMs = this.env.now()
    while (!isSo() && this.env.now() < startMs + limitMs) await this.#step(10)
    return this.env.now() - startMs
  }

  async #step(ms: number): Promise<void> {
    await this.env.advance(ms)
    await new Promise((resolve) => setTimeout(resolve, 1))
  }

  /** `opened` gets the id of each socket. */
  socketClass(opened: (id: string) => void = () => undefined): SocketConstructor {
    const world = this
    return class extends FakeSocket {
      constructor() {
        super(world)
        opened(this.id)
      }
    }
  }

  client(link = newRoomLink(), name = 'tab', options: Partial<SignalOptions> = {}) {
    const client = new SignalClient({
      url: 'ws://test/signal',
      link,
      info: infoOf(name),
      env: this.env,
      WebSocket: this.socketClass((id) => socketIds.push(id)),
      ...options,
    })
    const socketIds: string[] = []
    const events: { what: keyof SignalEvents; value: unknown }[] = []
    for (const what of [
      'lobby',
      'assign',
      'start',
      'abort',
      'finished',
      'gone',
      'moved',
      'refused',
      'away',
      'back',
      'lost',
    ] as const) {
      client.on(what, (value) => void events.push({ what, value }))
    }
    const has = (what: keyof SignalEvents) => events.filter((one) => one.what === what)
    /** Its connection ends, as both sides notice. */
    const cut = () => {
      const id = socketIds.at(-1)!
      this.server?.lost(id, 'its connection ended')
      this.sockets.get(id)!.end(1006, '')
    }
    return { client, has, cut, socketIds }
  }
}

let count = 0
class FakeSocket implements SocketLike {
  readyState = 0
  onmessage: ((event: { data: string }) => void) | null = null
  onclose: ((event: { code: number; reason: string }) => void) | null = null
  onerror: SocketLike['onerror'] = null
  readonly id = `c${count++}`
  readonly #world: SignalWorld
  /** To which it goes. */
  #server: Rendezvous | null = null
  constructor(world: SignalWorld) {
    this.#world = world
    world.sockets.set(this.id, this)
    world.env.after(1, () => {
      if (this.readyState === 3) return
      this.#server = world.server
      if (!this.#server) {
        this.end(1006, '')
        return
      }
      this.readyState = 1
      this.#server.open(this.id, this.id)
    })
  }
  send(text: string): void {
    this.#world.env.after(1, () => this.#server?.receive(this.id, text))
  }
  take(text: string): void {
    if (this.readyState === 1) this.onmessage?.({ data: text })
  }
  close(): void {
    this.#world.env.after(1, () => this.#server?.lost(this.id, 'closed'))
    this.end(1000, '')
  }
  end(code: number, reason: string): void {
    if (this.readyState === 3) return
    this.readyState = 3
    this.#world.env.after(0, () => this.onclose?.({ code, reason }))
  }
}
