import type { Env } from '../../util/env.ts'
import { messageOf } from '../../util/errors.ts'
import { EpochLinks } from '../link/epoch-link.ts'
import { type Link, type LinkStats, sumStats } from '../link/link.ts'
import type { Signer } from '../room/life-keys.ts'
import { memberOf } from '../room/lives.ts'
import {
  decodeElasticMessage,
  type ElasticMessage,
  encodeElasticMessage,
  type PassableMessage,
  type Probe,
} from './messages.ts'
import { Passing } from './passing.ts'

/** Of all that waits for one neighbour: beyond it a link ends. */
export const maxWaitingBytes = 2 ** 22
/** Of it passed messages may have this much: beyond it they are dropped, since others pass them on too. */
export const maxUncheckedBytes = 2 ** 21
/** Any message counts this much at least: it bounds how many wait. */
const minBytes = 2 ** 11

/** Events of the links for their member. */
export interface MemberLinksListener {
  /** Of pings and their answers it hears nothing, nor of what it passes on. */
  heard(from: string, message: ElasticMessage): void
  /** Tells whether that member may measure its link to this one. */
  mayProbe(id: string): boolean
  /** Tells whether messages are passed on to and from that member: it is in the ring in which this one is. */
  mayPass(id: string): boolean
  /** The member at the other end is there. `isRank`: the server has said that it trains. */
  came(id: string, isRank: boolean): void
  /** That member has answered a ping. */
  answered(id: string): void
  /** Empty for one that has not said who it is. */
  ended(id: string): void
  /** It has sent what no build of this project sends, in words that follow its name. */
  broke(id: string, what: string): void
}

/** A member's links to the others, by id. They outlive the groups that use them, one after the other. */
export class MemberLinks {
  readonly #self: string
  readonly #env: Env
  readonly #listener: MemberLinksListener
  readonly #links = new Map<string, EpochLinks>()
  /** By id. */
  readonly #inboxes = new Map<string, Inbox>()
  /** All that are up. */
  readonly #up = new Set<EpochLinks>()
  /** Those whose other end has said hello. */
  readonly #greeted = new WeakSet<EpochLinks>()
  /** Traffic of those that have ended. */
  #past: Promise<LinkStats> = Promise.resolve(sumStats([]))
  readonly #passing: Passing
  /** By id: gives up the wait for an answer. */
  readonly #doubted = new Map<string, () => void>()

  constructor(
    { self, env, signer }: { readonly self: string; readonly env: Env; readonly signer: Signer },
    listener: MemberLinksListener,
  ) {
    this.#self = self
    this.#env = env
    this.#listener = listener
    const links = this
    this.#passing = new Passing({
      ...{ self, env, signer },
      get up() {
        return links.up
      },
      send: (to, message) => this.#sendOver(to, message),
      mayPass: (id) => listener.mayPass(id),
      heard: (from, body) => listener.heard(from, body),
      forged: (by) => listener.broke(by, 'passed on what another one has not said'),
    })
  }

  /** `id`: who is at the other end; null where it says so itself: a life of `member`. */
  add(transport: Link, id: string | null, member?: string): void {
    const link = new EpochLinks(transport, true)
    this.#up.add(link)
    if (id !== null) this.#name(link, id)
    else {
      link.onend = () => {
        this.#hasEnded(link)
        this.#listener.ended('')
      }
      link.oncontrol = (payload) => {
        const message = decode(link, payload)
        const isWho =
          member === undefined || (message?.type === 'hello' && memberOf(message.id) === member)
        if (message?.type === 'hello' && isWho && message.id !== this.#self) {
          this.#name(link, message.id)
          this.#greeted.add(link)
          this.#listener.came(message.id, true)
        } else link.close('expected a hello of the member to which this link is')
      }
    }
    // The other end may not know who this is.
    link.control(encodeElasticMessage({ type: 'hello', id: this.#self }))
  }

  #name(link: EpochLinks, id: string): void {
    const before = this.#links.get(id)
    this.#links.set(id, link)
    before?.close('replaced by another link')
    const inbox = this.#inboxes.get(id) ?? new Inbox()
    this.#inboxes.set(id, inbox)
    const end = () => {
      this.#hasEnded(link)
      const reportEnd = () => {
        if (this.#links.get(id) === link) this.#listener.ended(id)
      }
      inbox.put(0, reportEnd, Number.POSITIVE_INFINITY)
    }
    link.onend = end
    link.oncontrol = (payload) => {
      const message = decode(link, payload)
      if (message?.type === 'hello') this.#greet(link, id)
      else if (message) this.#receive(id, message, payload.length, inbox)
    }
    if (!link.isUp) end()
  }

  /** The member of a link that the server has named says that it is there, once. */
  #greet(link: EpochLinks, id: string): void {
    if (this.#greeted.has(link)) return
    this.#greeted.add(link)
    this.#endDoubt(id)
    this.#listener.came(id, false)
  }

  #hasEnded(link: EpochLinks): void {
    if (this.#up.delete(link)) this.#past = Promise.all([this.#past, link.stats()]).then(sumStats)
  }

  #receive(from: string, message: ElasticMessage, size: number, inbox: Inbox): void {
    this.#endDoubt(from)
    if (message.type === 'ping') this.#sendOver([from], { type: 'pong' })
    else if (message.type === 'probe') {
      if (this.#listener.mayProbe(from)) this.#sendOver([from], { ...message, type: 'probed' })
    } else if (message.type === 'pass') {
      const take = () => {
        if (this.#listener.mayPass(from)) return this.#passing.take(from, message)
      }
      inbox.put(size, take, maxUncheckedBytes)
    } else if (message.type === 'pong') this.#listener.answered(from)
    else {
      const isTaken = inbox.put(size, () => this.#listener.heard(from, message), maxWaitingBytes)
      if (!isTaken) this.#listener.broke(from, 'sent more than this member can take')
    }
  }

  /** The link to that member ends unless it answers within `ms`. */
  doubt(id: string, ms: number): void {
    if (!this.isUp(id) || this.#doubted.has(id)) return
    const cancel = this.#env.after(ms, () => {
      this.#doubted.delete(id)
      this.close(id, 'it does not answer, and others say that it is gone')
    })
    this.#doubted.set(id, cancel)
    this.#sendOver([id], { type: 'ping' })
  }

  #endDoubt(id: string): void {
    this.#doubted.get(id)?.()
    this.#doubted.delete(id)
  }

  endDoubts(): void {
    for (const id of [...this.#doubted.keys()]) this.#endDoubt(id)
  }

  /** Forgets links that have ended, but for those to `members` and the `max` newest others; returns whose they were. */
  forgetEnded(members: readonly string[], max = 0): string[] {
    const ended = [...this.#links].flatMap(([id, { isUp }]) =>
      isUp || members.includes(id) ? [] : [id],
    )
    const forgotten = ended.slice(0, Math.max(0, ended.length - max))
    for (const id of forgotten) {
      this.#links.delete(id)
      this.#inboxes.delete(id)
    }
    return forgotten
  }

  /** To whom there is a link, by rank: the links of an epoch. Those of the epoch before fall silent. */
  open(epoch: number, members: readonly string[]): Map<number, Link> {
    const links = new Map<number, Link>()
    for (const [rank, id] of members.entries()) {
      const link = this.#links.get(id)
      if (link) links.set(rank, link.open(epoch))
    }
    return links
  }

  /** The links of the open epoch fall silent: its group did not form, and closing it leaves them up. */
  silence(): void {
    for (const link of this.#up) link.silence('the group did not form')
  }

  isUp(id: string): boolean {
    return this.#links.get(id)?.isUp === true
  }

  /** Members with a link that is up. */
  get up(): string[] {
    return [...this.#links].filter(([, link]) => link.isUp).map(([id]) => id)
  }

  /** Members to which there are links, or were. */
  get known(): string[] {
    return [...this.#links.keys()]
  }

  /**
   * Over the links that there are; in a ring others pass it on to the rest. Who is in a roster gets it when those do: a leader that fell silent in
   * between would leave members that wait for the rest of the ring, and end their links to it.
   */
  send(to: readonly string[], message: PassableMessage): void {
    const isFar = (id: string) => id !== this.#self && !this.isUp(id)
    const far = to.filter((id) => isFar(id) && this.#listener.mayPass(id))
    const { members = [] } = far.length > 0 && message.type === 'roster' ? message.roster : {}
    const isLater = (id: string) => members.includes(id)
    const sendRest = () => this.#sendOver(to.filter(isLater), message)
    this.#sendOver(
      to.filter((id) => !isLater(id)),
      message,
    )
    if (far.length > 0) this.#passing.send(far, message, sendRest)
  }

  /** Over the links that there are. */
  #sendOver(to: readonly string[], message: ElasticMessage): void {
    const payload = encodeElasticMessage(message)
    for (const id of to) this.#links.get(id)?.control(payload)
  }

  probe(id: string, probe: Probe): void {
    this.#sendOver([id], probe)
  }

  /** Ends the link to a member; nothing from it is received any more. */
  close(id: string, why: string): void {
    this.#inboxes.get(id)?.clear()
    this.#links.get(id)?.close(why)
  }

  /** Once all is on its way that was to be passed on. */
  closeAll(why: string): void {
    this.#passing.whenSent(() => {
      for (const link of [...this.#up]) link.close(why)
    })
  }

  /** Returns the traffic of all so far, those that have ended too. */
  async stats(): Promise<LinkStats> {
    return sumStats(await Promise.all([this.#past, ...[...this.#up].map((link) => link.stats())]))
  }
}

/** A link that carries something else is closed. */
function decode(link: EpochLinks, payload: Uint8Array): ElasticMessage | undefined {
  try {
    return decodeElasticMessage(payload)
  } catch (error) {
    link.close(messageOf(error))
    return undefined
  }
}

interface Waiting {
  readonly bytes: number
  readonly take: () => void | Promise<void>
}

/**
 * Messages of a neighbour that this member has not taken yet: all in order, although it takes a while to check a passed message. Where nothing
 * waits, a message is taken at once.
 */
export class Inbox {
  #waiting: Waiting[] = []
  #bytes = 0
  #isBusy = false

  /**
   * Does `take` once all before it is done, and its promise, where it returns one. False, and it is dropped, where more than `max`
   * bytes would wait.
   */
  put(size: number, take: Waiting['take'], max: number): boolean {
    const bytes = Math.max(size, minBytes)
    if (this.#bytes + bytes > max) return false
    this.#bytes += bytes
    this.#waiting.push({ bytes, take })
    if (!this.#isBusy) this.#next()
    return true
  }

  /** Drops the messages that wait. */
  clear(): void {
    this.#waiting = []
    this.#bytes = 0
  }

  #next(): void {
    this.#isBusy = false
    for (let one = this.#waiting.shift(); one; one = this.#waiting.shift()) {
      this.#bytes -= one.bytes
      const checked = one.take()
      if (!checked) continue
      this.#isBusy = true
      void checked.finally(() => this.#next())
      return
    }
  }
}
