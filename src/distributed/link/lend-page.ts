import * as Comlink from 'comlink'
import {
  channelTransport,
  type MadeTransport,
  transferOf,
} from '../../peer/link/channel-transport.ts'
import type { ConnectionRequest, PortRequest } from '../../peer/tab/link-parts.ts'
import { holdLock, lockFree } from '../../peer/tab/web-locks.ts'
import { toHex } from '../../util/env.ts'
import { type ErrorCode, messageOf, PeerError, TabringError } from '../../util/errors.ts'
import type { Place } from '../rendezvous/plan-links.ts'
import { type LinkMaker, OwnPage } from './page.ts'

/** A worker has neither RTCPeerConnection nor SharedWorker: its page makes the links, and the worker gets their ends. */

type Failure = { code: ErrorCode; text: string }

/** What the page answers. Failures are values: Comlink would lose their codes. */
class LentPage {
  private readonly page = new OwnPage(channelTransport)
  private readonly watching = new AbortController()

  constructor(private readonly onclose: () => void) {}

  place(asksBrowser: boolean): Promise<Omit<Place, 'hasRelay'>> {
    return this.page.place(asksBrowser)
  }

  async openPort(request: PortRequest, onGone: () => void): Promise<MessagePort | Failure> {
    try {
      const port = await this.page.openPort(request, onGone)
      return Comlink.transfer(port, [port])
    } catch (thrown) {
      return failureOf(thrown)
    }
  }

  async connect(
    request: ConnectionRequest,
    onTransport: (transport: MadeTransport, lane: number) => unknown,
    onSignal: (attempt: number, signals: unknown) => void,
    onDown: (code: ErrorCode, text: string) => void,
  ): Promise<Failure | null> {
    try {
      // Not reported before the worker has it: the two messages travel on separate ports.
      await this.page.connect(
        request,
        (transport, lane) => onTransport(Comlink.transfer(transport, transferOf(transport)), lane),
        onSignal,
        ({ code, message }) => onDown(code, message),
      )
      return null
    } catch (thrown) {
      return failureOf(thrown)
    }
  }

  signal(key: string, attempt: number, signals: unknown): void {
    this.page.signal(key, attempt, signals)
  }

  disconnect(key: string): void {
    this.page.disconnect(key)
  }

  async openStore(room: string): Promise<MessagePort | Failure | null> {
    try {
      const port = await this.page.openStore(room)
      return port && Comlink.transfer(port, [port])
    } catch (thrown) {
      return failureOf(thrown)
    }
  }

  /** `lock`: what the worker holds as long as it lives. */
  watch(lock: string): void {
    void lockFree(lock, this.watching.signal).then(() => this.close())
  }

  close(): void {
    this.watching.abort()
    this.page.close()
    this.onclose()
  }
}

/**
 * Returns a port that lets one worker use the backends of this page, for one group. Post it to the worker, and pass it there to
 * `initProcessGroup({ page: port })`.
 */
export function lendPage(): MessagePort {
  const { port1, port2 } = new MessageChannel()
  // In a later task: the answer to `close` goes first.
  const lent = new LentPage(() => setTimeout(() => port1.close()))
  Comlink.expose(lent, port1)
  return port2
}

/** As `overOwnPage`, by the page that was lent. */
export function overLentPage(port: MessagePort): LinkMaker {
  const remote = Comlink.wrap<LentPage>(port)
  let isClosed = false
  // A worker that ends without a word must not look alive to others for what its page holds.
  const lock = `tabring lent ${toHex(crypto.getRandomValues(new Uint8Array(16)))}`
  const held = holdLock(lock)
  held.then(() => remote.watch(lock)).catch(() => undefined)
  return {
    place: (asksBrowser) => remote.place(asksBrowser),
    async openPort(request, onGone) {
      return portOf(await remote.openPort(request, Comlink.proxy(onGone)))
    },
    async connect(request, onTransport, onSignal, onDown) {
      const failure = await remote.connect(
        request,
        Comlink.proxy(onTransport),
        Comlink.proxy(onSignal),
        Comlink.proxy((code: ErrorCode, text: string) => onDown(new PeerError(code, text))),
      )
      if (failure) throw new PeerError(failure.code, failure.text)
    },
    signal: (key, attempt, signals) => {
      remote.signal(key, attempt, signals).catch(() => undefined)
    },
    disconnect: (key) => {
      remote.disconnect(key).catch(() => undefined)
    },
    async openStore(room) {
      const answer = await remote.openStore(room)
      return answer && portOf(answer)
    },
    close() {
      if (isClosed) return
      isClosed = true
      remote.close().then(
        () => remote[Comlink.releaseProxy](),
        () => undefined,
      )
      void held.then((release) => release())
    },
  }
}

function portOf(answer: MessagePort | Failure): MessagePort {
  if (answer instanceof MessagePort) return answer
  throw new PeerError(answer.code, answer.text)
}

function failureOf(thrown: unknown): Failure {
  const code = thrown instanceof TabringError ? thrown.code : 'peer.unreachable'
  return { code, text: messageOf(thrown) }
}
