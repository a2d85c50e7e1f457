import type { Env } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import type { JsonValue } from '../../util/json-value.ts'
import type { Transport } from '../link/channel-transport.ts'
import type { RelayPlace } from '../link/relay-link.ts'
import type { LinkParts } from './link-parts.ts'
import { LinkVote, voteIn } from './link-vote.ts'

/** Within the page, to another tab of the browser, to another browser, or through the server. */
export type LinkWay = 'local' | 'port' | 'webrtc' | 'relay'

/** A link to make, as both ends know it. */
export interface LinkPlan {
  readonly way: LinkWay
  /** This side makes the offers; exactly one of the two does. */
  readonly isInitiator: boolean
  /** Where WebRTC brings no connection about, on both sides, the relay is taken. */
  readonly canRelay?: boolean
}

/** The key of the link between two ranks. `linking`: a number that no earlier forming of links had. `members`: by rank. */
export const linkKey = (
  linking: number,
  members: readonly { readonly id: string }[],
  ...ranks: [number, number]
): string => [linking, ...ranks.sort((a, b) => a - b).map((rank) => members[rank].id)].join(' ')

export interface FormingLinkOptions {
  readonly plan: LinkPlan
  /** The same at both ends, and no other link's. */
  readonly key: string
  /** For error texts: `rank 2 (Laptop)`. */
  readonly peerName: string
  readonly parts: LinkParts
  readonly rtc?: RTCConfiguration
  /** The room whose server relays. */
  readonly relay?: Pick<RelayPlace, 'address' | 'token'>
  /** Brings something to the other end's `receive`. */
  readonly send: (attempt: number, data: JsonValue) => void
  /**
   * Takes a transport, in the task that made it, and may return a promise that is awaited before the link is up. Lane 0 comes again when a
   * connection takes another attempt, or when the relay replaces it: the newest counts. The others join it.
   */
  readonly onTransport: (transport: Transport, lane: number) => unknown
  /** The link was up, and has ended. */
  readonly onDown?: (error: PeerError) => void
  /** The tab at the other end of a port has closed, for sure. */
  readonly onGone?: () => void
  readonly env: Env
}

/** One end of a link while it forms, and what is left to do with it afterwards. */
export class FormingLink {
  /** The way that it has gone, once it is up. errors: `peer.unreachable`. */
  readonly formed: Promise<LinkWay>
  readonly #options: FormingLinkOptions
  readonly #vote: LinkVote
  /** As planned, until the relay is taken instead. */
  way: LinkWay
  #isUp = false
  #isClosed = false
  #lost: PeerError | undefined

  constructor(options: FormingLinkOptions) {
    this.#options = options
    this.way = options.plan.way
    this.#vote = new LinkVote(options.env)
    this.formed = this.#form()
    this.formed.catch(() => undefined)
  }

  /** Takes what the other end has sent. */
  receive(attempt: number, data: unknown): void {
    const { parts, key } = this.#options
    const isUp = voteIn(data)
    if (isUp === undefined) parts.signal(key, attempt, data)
    else this.#vote.receive(isUp)
  }

  /** Forms no further, and reports nothing. What it was made of ends with its parts. */
  close(): void {
    this.#isClosed = true
  }

  async #form(): Promise<LinkWay> {
    const { way, canRelay } = this.#options.plan
    if (way === 'webrtc' && canRelay) await this.#overEither()
    else if (way === 'webrtc') await this.#overWebRtc()
    else if (way === 'relay') await this.#overRelay()
    else await this.#overPort(way)
    this.#isUp = true
    if (this.#lost) throw this.#lost
    return this.way
  }

  /** A connection that ends before it counts may be one that the other side has given up. */
  #down(error: PeerError): void {
    if (this.#isClosed) return
    if (this.#isUp) this.#options.onDown?.(error)
    else this.#lost = error
  }

  #overWebRtc(): Promise<void> {
    const { parts, plan, key, peerName, rtc, send, onTransport } = this.#options
    return parts.connect(
      { key, isInitiator: plan.isInitiator, peerName, rtc },
      onTransport,
      (attempt, signals) => send(attempt, signals as JsonValue),
      (error) => this.#down(error),
    )
  }

  /** By WebRTC if both sides say that they have it, else through the server. */
  async #overEither(): Promise<void> {
    const { parts, key, peerName, send } = this.#options
    const connecting = this.#overWebRtc()
    if (await this.#vote.areUp(connecting, (isUp) => send(1, { isUp }), peerName)) return
    this.#lost = undefined
    parts.disconnect(key)
    if (this.#isClosed) return
    this.way = 'relay'
    await this.#overRelay()
  }

  async #overPort(way: 'local' | 'port'): Promise<void> {
    const { parts, key, peerName, onTransport, onGone } = this.#options
    const port = await parts.openPort({ way, key, side: this.#side, peerName }, () => {
      if (!this.#isClosed) onGone?.()
      this.#down(new PeerError('peer.lost', `link to ${peerName}: ended: its tab closed.`))
    })
    if (!this.#isClosed) await onTransport({ kind: 'port', port }, 0)
  }

  /** The taker opens it, as a worker can: it has WebSockets. */
  async #overRelay(): Promise<void> {
    const { relay, key, peerName, onTransport } = this.#options
    await onTransport(
      { kind: 'relay', relay: { ...relay!, channel: key, side: this.#side, peerName } },
      0,
    )
  }

  get #side(): 0 | 1 {
    return this.#options.plan.isInitiator ? 0 : 1
  }
}
