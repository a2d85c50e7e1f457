import * as Comlink from 'comlink'
import {
  channelTransport,
  linkOver,
  type Transport,
  transferOf,
} from '../peer/channel-transport.ts'
import type { Link } from '../peer/link.ts'
import { type ErrorCode, messageOf, PeerError, TabringError } from '../util/errors.ts'
import { type ConnectionRequest, OwnPage, type PortRequest } from './page.ts'
import type { Place } from './plan-links.ts'

/** A worker has neither RTCPeerConnection nor SharedWorker: its page makes the links, and the worker gets their ends. */

type Failure = { code: ErrorCode; text: string }

/** What the page answers. Failures are values: Comlink would lose their codes. */
class LentPage {
  private readonly page = new OwnPage()

  constructor(private readonly onclose: () => void) {}

  place(asksBrowser: boolean): Promise<Place> {
    return this.page.place(asksBrowser)
  }

  async openPort(request: PortRequest, ongone: () => void): Promise<MessagePort | Failure> {
    try {
      const port = await this.page.openPort(request, ongone)
      return Comlink.transfer(port, [port])
    } catch (thrown) {
      return failureOf(thrown)
    }
  }

  async connect(
    request: ConnectionRequest,
    onTransport: (transport: Transport) => unknown,
    onSignal: (attempt: number, signals: unknown) => void,
  ): Promise<Failure | null> {
    let taken: unknown
    try {
      await this.page.connect(
        request,
        (channel) => {
          const transport = channelTransport(channel)
          taken = onTransport(Comlink.transfer(transport, transferOf(transport)))
        },
        onSignal,
      )
      // Not told before the worker has it: the two messages travel on ports of their own.
      await taken
      return null
    } catch (thrown) {
      return failureOf(thrown)
    }
  }

  signal(key: string, attempt: number, signals: unknown): void {
    this.page.signal(key, attempt, signals)
  }

  async openStore(room: string): Promise<MessagePort | null> {
    const port = await this.page.openStore(room)
    return port && Comlink.transfer(port, [port])
  }

  close(): void {
    this.page.close()
    this.onclose()
  }
}

/**
 * A port that lends this page to one of its workers, for one group: post it there, and give it to `initProcessGroup({ page: port })`.
 * The worker then has the backends of the page.
 */
export function lendPage(): MessagePort {
  const { port1, port2 } = new MessageChannel()
  // In a later task: the answer to `close` goes first.
  const lent = new LentPage(() => setTimeout(() => port1.close()))
  Comlink.expose(lent, port1)
  return port2
}

/** How links are made here: on this page, or by the page that was lent. */
export interface LinkMaker {
  place(asksBrowser: boolean): Promise<Place>
  openPort(request: PortRequest, ongone: () => void): Promise<MessagePort>
  /** The link, when it is up. */
  connect(
    request: ConnectionRequest,
    onSignal: (attempt: number, signals: unknown) => void,
  ): Promise<Link>
  signal(key: string, attempt: number, signals: unknown): void
  openStore(room: string): Promise<MessagePort | null>
  close(): void
}

export function linkMaker(lent?: MessagePort): LinkMaker {
  return lent ? overLentPage(lent) : overOwnPage()
}

function overOwnPage(): LinkMaker {
  const page = new OwnPage()
  return {
    place: (asksBrowser) => page.place(asksBrowser),
    openPort: (request, ongone) => page.openPort(request, ongone),
    async connect(request, onSignal) {
      let link: Link | undefined
      await page.connect(
        request,
        (channel) => {
          link = linkOver({ kind: 'channel', channel })
        },
        onSignal,
      )
      return link!
    },
    signal: (key, attempt, signals) => page.signal(key, attempt, signals),
    openStore: (room) => page.openStore(room),
    close: () => page.close(),
  }
}

function overLentPage(port: MessagePort): LinkMaker {
  const remote = Comlink.wrap<LentPage>(port)
  let isClosed = false
  return {
    place: (asksBrowser) => remote.place(asksBrowser),
    async openPort(request, ongone) {
      const answer = await remote.openPort(request, Comlink.proxy(ongone))
      if (answer instanceof MessagePort) return answer
      throw new PeerError(answer.code, answer.text)
    },
    async connect(request, onSignal) {
      let link: Link | undefined
      const failure = await remote.connect(
        request,
        Comlink.proxy((transport: Transport) => {
          link = linkOver(transport)
        }),
        Comlink.proxy(onSignal),
      )
      if (failure) throw new PeerError(failure.code, failure.text)
      return link!
    },
    signal: (key, attempt, signals) => {
      remote.signal(key, attempt, signals).catch(() => undefined)
    },
    openStore: (room) => remote.openStore(room),
    close() {
      if (isClosed) return
      isClosed = true
      remote.close().then(
        () => remote[Comlink.releaseProxy](),
        () => undefined,
      )
    },
  }
}

function failureOf(thrown: unknown): Failure {
  const code = thrown instanceof TabringError ? thrown.code : 'peer.unreachable'
  return { code, text: messageOf(thrown) }
}
