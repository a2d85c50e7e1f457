import { type Env, toHex } from '../../util/env.ts'
import type { MessageOf } from '../room/client-messages.ts'
import { type CodeServerMessage, codeAlphabet, nameChars } from '../room/code-messages.ts'
import type { Refusal } from '../room/refusals.ts'
import { AddressBuckets } from './address-buckets.ts'
import type { Limits } from './limits.ts'

export interface ShortCodesOptions {
  readonly env: Env
  readonly limits: Limits
  send(connectionId: string, message: CodeServerMessage): void
  /** Sends a connection a refusal and closes it. */
  refuse(connectionId: string, code: Refusal, text: string, about: 'giveCode' | 'useCode'): void
}

interface Giver {
  readonly name: string
  readonly connectionId: string
  readonly address: string
  readonly room: string
  readonly token: string
}

interface User {
  readonly connectionId: string
  readonly address: string
  readonly giver: Giver
  /** Of the two that an exchange takes. */
  messages: number
}

/** Passes what tabs that give a room's key by a short code, and newcomers that use one, say to each other. It holds no key and no password. */
export class ShortCodes {
  readonly #options: ShortCodesOptions
  readonly #wrong: AddressBuckets
  /** By the name of their code. */
  readonly #givers = new Map<string, Giver>()
  /** By the id of their exchange. */
  readonly #users = new Map<string, User>()

  constructor(options: ShortCodesOptions) {
    this.#options = options
    const { addressesKept, wrongCodesPerSec, wrongCodeBurst } = options.limits
    this.#wrong = new AddressBuckets(options.env, addressesKept, wrongCodesPerSec, wrongCodeBurst)
  }

  /** Returns whether a name was given to a connection that has proved a room's key. */
  give(connectionId: string, address: string, message: MessageOf<'giveCode'>): boolean {
    const { limits, send, refuse } = this.#options
    const { room, token, name: wanted } = message
    const before = this.#givers.get(wanted ?? '')
    // Its network changed, say, and the end of its first connection has not come through.
    if (before?.token === token)
      refuse(before.connectionId, 'other-end-gone', 'this tab is back.', 'giveCode')
    const isOwn = (one: Giver) => one.address === address
    if ([...this.#givers.values()].filter(isOwn).length >= limits.codesPerAddress) {
      const text = `${address} shows ${limits.codesPerAddress} short codes, as many as this server allows. Close one of them.`
      refuse(connectionId, 'too-many', text, 'giveCode')
      return false
    }
    const name = wanted !== undefined && !this.#givers.has(wanted) ? wanted : this.#freeName()
    this.#givers.set(name, { name, connectionId, address, room, token })
    send(connectionId, { type: 'code', name })
    return true
  }

  /** As short as leaves nine of ten names free, so that a name that somebody makes up is seldom one. */
  #freeName(): string {
    const { length } = codeAlphabet
    let chars = nameChars.min
    while (chars < nameChars.max && this.#givers.size * 10 > length ** chars) chars++
    for (;;) {
      // 248 of 256 are a multiple of 31; names are no secret, so the rest may repeat the first.
      const bytes = this.#options.env.random(chars)
      const name = Array.from(bytes, (byte) => codeAlphabet[byte % length]).join('')
      if (!this.#givers.has(name)) return name
    }
  }

  /** Takes a message of a newcomer; returns whether its exchange continues. */
  use(connectionId: string, address: string, { name, box }: MessageOf<'useCode'>): boolean {
    const { env, limits, send, refuse } = this.#options
    const wrong = this.#wrong.of(address)
    const [id, user] = this.#exchangeOf(connectionId) ?? [toHex(env.random(8)), undefined]
    if (!user && wrong.waitMs > 0) {
      const seconds = Math.ceil(wrong.waitMs / 1000)
      const text = `too many wrong short codes came from ${address}. Try again in ${seconds} s, or ask for the link.`
      refuse(connectionId, 'too-many', text, 'useCode')
      return false
    }
    const giver = this.#givers.get(name)
    if (!giver || (user && (user.giver !== giver || user.messages > 1))) {
      wrong.take()
      refuse(connectionId, 'wrong-code', wrongCode, 'useCode')
      return false
    }
    const { guestsPerCode, guestsPerAddress } = limits
    const others = [...this.#users.values()].filter((one) => one.giver === giver)
    const near = others.filter((one) => one.address === address)
    if (!user && (others.length >= guestsPerCode || near.length >= guestsPerAddress)) {
      const text = `${others.length} others use this code now. Try again in some seconds.`
      refuse(connectionId, 'too-many', text, 'useCode')
      return false
    }
    this.#users.set(id, { connectionId, address, giver, messages: (user?.messages ?? 0) + 1 })
    send(giver.connectionId, { type: 'codeUsed', guest: id, box })
    return true
  }

  /** Takes an answer of the tab that gives the code; what crossed the end of the exchange is dropped. */
  answer(connectionId: string, { guest, box }: MessageOf<'codeAnswer'>): void {
    const { send, refuse } = this.#options
    const user = this.#users.get(guest)
    if (user?.giver.connectionId !== connectionId) return
    if (box !== null) {
      send(user.connectionId, { type: 'codeAnswer', box })
      return
    }
    this.#wrong.of(user.address).take()
    refuse(user.connectionId, 'wrong-code', wrongCode, 'useCode')
  }

  /** A connection has ended. */
  forget(connectionId: string): void {
    const exchange = this.#exchangeOf(connectionId)
    if (exchange) {
      const [id, { address, messages }] = exchange
      this.#users.delete(id)
      // Else it would cost nothing to hold the places of a code.
      if (messages < 2) this.#wrong.of(address).take()
    }
    for (const giver of this.#givers.values())
      if (giver.connectionId === connectionId) this.#end(giver)
  }

  /** A room has ended, and with it the codes that gave its key. */
  roomEnded(room: string): void {
    const text = 'the room of this code has ended.'
    for (const giver of [...this.#givers.values()])
      if (giver.room === room)
        this.#options.refuse(giver.connectionId, 'unknown-room', text, 'giveCode')
  }

  #end(giver: Giver): void {
    this.#givers.delete(giver.name)
    for (const user of [...this.#users.values()])
      if (user.giver === giver)
        this.#options.refuse(user.connectionId, 'wrong-code', wrongCode, 'useCode')
  }

  #exchangeOf(connectionId: string): [string, User] | undefined {
    return [...this.#users].find(([, user]) => user.connectionId === connectionId)
  }
}

const wrongCode =
  'nobody shows this code now. Compare each character, or ask for the link: a code ends when its tab is closed.'
