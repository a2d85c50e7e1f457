import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { WebSocket } from 'ws'
import {
  attachSignaling,
  type SignalServer,
  type SignalServerOptions,
} from '../../node/signal-server.ts'
import type { SocketConstructor, SocketLike } from '../../src/peer/room/room-options.ts'
import { type OpenStoreOptions, openStore } from '../../src/peer/tab/open-store.ts'
import type { WebSocketStore } from '../../src/peer/tab/web-socket-store.ts'
import { socketFrom } from './signal-socket.ts'

/** A signaling server on a port of this machine, and the stores that were opened on it. */
export class StoreServer {
  readonly #stores: WebSocketStore[] = []

  private constructor(
    readonly signaling: SignalServer,
    /** For `newRoomUrl`. */
    readonly address: string,
    readonly origin: string,
    private readonly stop: () => void,
  ) {}

  static async start(options: SignalServerOptions = {}): Promise<StoreServer> {
    const server = createServer()
    const signaling = attachSignaling(server, options)
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const host = `127.0.0.1:${(server.address() as AddressInfo).port}`
    return new StoreServer(signaling, `ws://${host}`, `http://${host}`, () => server.close())
  }

  async open(url: string, options: OpenStoreOptions = {}): Promise<WebSocketStore> {
    const store = await openStore(url, { WebSocket: socketFrom(this.origin), ...options })
    this.#stores.push(store)
    return store
  }

  /** Closes all stores; the server stays. */
  closeStores(): void {
    for (const store of this.#stores.splice(0)) store.close()
  }

  async close(): Promise<void> {
    this.closeStores()
    await this.signaling.close()
    this.stop()
  }
}

/** What passes through a socket. */
export interface Tap {
  readonly sent: string[]
  readonly received: string[]
  /** Runs over what the server sends; undefined loses it. */
  tamper?: (text: string) => string | undefined
}

/** A socket of a page of `origin` that somebody listens to, and who may change what comes. */
export function tappedSocket(origin: string, tap: Tap): SocketConstructor {
  return class implements SocketLike {
    onmessage: SocketLike['onmessage'] = null
    onclose: SocketLike['onclose'] = null
    onerror: SocketLike['onerror'] = null
    readonly #socket: WebSocket
    constructor(url: string) {
      this.#socket = new WebSocket(url, { origin })
      this.#socket.onmessage = ({ data }) => {
        tap.received.push(String(data))
        const text = tap.tamper ? tap.tamper(String(data)) : String(data)
        if (text !== undefined) this.onmessage?.({ data: text } as never)
      }
      this.#socket.onclose = (event) => this.onclose?.(event as never)
      this.#socket.onerror = () => undefined
    }
    get readyState(): number {
      return this.#socket.readyState
    }
    send(text: string): void {
      tap.sent.push(text)
      this.#socket.send(text)
    }
    close(code?: number, reason?: string): void {
      this.#socket.close(code, reason)
    }
  }
}
