import * as v from 'valibot'
import { systemEnv, toHex } from '../../util/env.ts'
import { messageOf, PeerError, toError } from '../../util/errors.ts'
import { NewestMap } from '../../util/newest-map.ts'
import type { ClientMessage } from '../room/client-messages.ts'
import {
  type CodeServerMessage,
  codeServerSchema,
  guestsPerCode,
  type ShortCode,
} from '../room/code-messages.ts'
import {
  limits,
  parseMessage,
  protocolVersion,
  type RoomServerMessage,
  serverMessageSchema,
} from '../room/messages.ts'
import { type Refusal, SignalError } from '../room/refusals.ts'
import type { RoomOptions, SocketLike } from '../room/room-options.ts'
import { RoomSecret } from '../room/secret.ts'
import { CodeGiver, CodeNewcomer, newPassword } from '../room/short-code.ts'

type Options = Pick<RoomOptions, 'url' | 'WebSocket' | 'env'>
type Message = CodeServerMessage | RoomServerMessage

const schema = v.variant('type', [codeServerSchema, serverMessageSchema])

/** A connection to the signaling server that enters no room. `take`: one message after the other. `ended`: once, with the server's reason. */
function connect(
  { url, WebSocket, env = systemEnv }: Options,
  take: (message: Message) => unknown,
  ended: (error: PeerError) => void,
): { send(message: ClientMessage): void; close(): void } {
  const socket: SocketLike = new WebSocket(url)
  let isOver = false
  let inbox = Promise.resolve()
  let cancelWatchdog: () => void = () => undefined
  const end = (error: PeerError) => {
    if (isOver) return
    close()
    ended(error)
  }
  const close = () => {
    isOver = true
    cancelWatchdog()
    socket.close()
  }
  const send = (message: ClientMessage) => {
    if (socket.readyState === 1 && !isOver) socket.send(JSON.stringify(message))
  }
  const watch = () => {
    cancelWatchdog()
    cancelWatchdog = env.after(limits.goneMs, () => end(lost(url)))
  }
  const receive = async (data: unknown) => {
    if (isOver) return
    watch()
    const parsed = parseMessage(schema, String(data))
    if (!parsed.ok)
      throw new PeerError('signal.lost', `signaling: ${parsed.text}. Reload the page.`)
    const { message } = parsed
    if (message.type === 'ping') send({ type: 'pong' })
    else if (message.type === 'error')
      end(new SignalError(message.code, message.text, '', message.about ?? ''))
    else await take(message)
  }
  socket.onmessage = ({ data }: { data: unknown }) => {
    inbox = inbox.then(() => receive(data)).catch((thrown) => end(toPeerError(thrown)))
  }
  // What came before it is read first: it may say why.
  socket.onclose = () => void inbox.then(() => end(lost(url)))
  socket.onerror = () => {
    if (socket.readyState === 0) end(lost(url))
  }
  watch()
  return { send, close }
}

const toPeerError = (thrown: unknown): PeerError => {
  const error = toError(thrown)
  return error instanceof PeerError ? error : new PeerError('peer.protocol', messageOf(error))
}

const lost = (url: string) =>
  new PeerError('signal.lost', `short code: no connection to ${url}. Is the server running?`)

/**
 * The key of the room of whose code this is.
 *
 * errors: SignalError `wrong-code` where nobody shows that code, `too-many` after too many wrong ones; `signal.lost` without a server;
 * `peer.protocol` where the answer is not that of who shows the code.
 */
export function keyOfCode(options: Options, code: ShortCode): Promise<string> {
  return new Promise((resolve, reject) => {
    const newcomer = new CodeNewcomer(code)
    let answers = 0
    const say = (box: string) =>
      connection.send({ type: 'useCode', version: protocolVersion, name: code.name, box })
    const connection = connect(
      options,
      async (message) => {
        if (message.type === 'challenge') say(newcomer.ask())
        else if (message.type !== 'codeAnswer') return
        else if (++answers === 1) say(newcomer.prove(message.box))
        else {
          const key = await newcomer.open(message.box)
          connection.close()
          resolve(key)
        }
      },
      reject,
    )
  })
}

/** An error as people read it: without the names that programs know it by. */
export const wordsOf = (error: unknown): string => {
  const text = messageOf(error).replace(/^signaling: [\w-]+: /, '')
  return text[0].toUpperCase() + text.slice(1)
}

/** A code that a tab shows. */
export type ShownCode =
  | { readonly is: 'waiting' }
  | { readonly is: 'open'; readonly code: ShortCode }
  /** No newcomer can use it any more. */
  | { readonly is: 'closed'; readonly why: string }

/** Wrong passwords after which a code closes: 20 guesses of a million. */
const maxWrong = 20
/** Between two tries to reach the server: this long at first, then twice as long each time. units: ms. */
const retryMs = { first: 2_000, max: 60_000 }
/** Refusals of `giveCode` that do not pass. */
const final: readonly Refusal[] = ['bad-proof', 'wrong-version', 'too-many']

export interface GivenCodeOptions extends Options {
  readonly link: RoomOptions['link']
  /** False once this tab is in another room: the code then closes. Default: it stays. */
  readonly isCurrent?: () => boolean
}

/**
 * A short code of a room, which gives the room's key to who knows it, until `close`. Where the connection ends it comes back with the same code, if
 * nobody else has its name by then.
 */
export class GivenCode {
  readonly #options: GivenCodeOptions
  readonly #shown: (code: ShownCode) => void
  readonly #password = newPassword()
  readonly #token: string
  #name: string | undefined
  #tries = 0
  #wrong = 0
  #connection: ReturnType<typeof connect> | undefined
  #cancelRetry: () => void = () => undefined
  #isOver = false

  /** `shown`: called with each change. */
  constructor(options: GivenCodeOptions, shown: (code: ShownCode) => void) {
    this.#options = options
    this.#shown = shown
    this.#token = toHex((options.env ?? systemEnv).random(16))
    RoomSecret.derive(options.link).then(
      (secret) => this.#open(secret),
      (thrown) => this.#closeFor(messageOf(thrown)),
    )
  }

  close(): void {
    this.#isOver = true
    this.#cancelRetry()
    this.#connection?.close()
  }

  /** The room that it is for is not this tab's any more. */
  #isElsewhere(): boolean {
    if (this.#options.isCurrent?.() ?? true) return false
    this.#closeFor('This tab is in another room now. Show another code.')
    return true
  }

  #closeFor(why: string): void {
    this.close()
    this.#shown({ is: 'closed', why })
  }

  #open(secret: RoomSecret): void {
    if (this.#isOver || this.#isElsewhere()) return
    this.#shown({ is: 'waiting' })
    const exchanges = new NewestMap<string, CodeGiver>(2 * guestsPerCode)
    const connection = connect(
      this.#options,
      async (message) => {
        if (message.type === 'challenge') {
          const proof = await secret.prove(message.nonce)
          const { room } = secret
          const [token, name] = [this.#token, this.#name]
          const entry = { version: protocolVersion, room, proof, token, name } as const
          connection.send({ type: 'giveCode', ...entry })
        } else if (message.type === 'code') {
          this.#name = message.name
          this.#tries = 0
          this.#shown({ is: 'open', code: { name: message.name, password: this.#password } })
        } else if (message.type === 'codeUsed' && !this.#isElsewhere()) {
          const { guest } = message
          const box = await this.#answer(exchanges, guest, message.box).catch(() => null)
          connection.send({ type: 'codeAnswer', guest, box })
          if (this.#wrong >= maxWrong)
            this.#closeFor(
              `${this.#wrong} wrong codes were tried, so this one is closed. Show another one.`,
            )
        }
      },
      (error) => {
        const { refusal, about } = error as Partial<SignalError>
        const isFinal = about === 'giveCode' && refusal !== undefined && final.includes(refusal)
        if (isFinal || refusal === 'wrong-version') return this.#closeFor(wordsOf(error))
        this.#shown({ is: 'waiting' })
        const { env = systemEnv } = this.#options
        const afterMs = Math.min(retryMs.first * 2 ** this.#tries++, retryMs.max)
        this.#cancelRetry = env.after(afterMs, () => this.#open(secret))
      },
    )
    this.#connection = connection
  }

  /** The next box of an exchange; null for a wrong password. */
  async #answer(
    exchanges: Map<string, CodeGiver>,
    guest: string,
    box: string,
  ): Promise<string | null> {
    const begun = exchanges.get(guest)
    if (!begun) {
      const giver = new CodeGiver({ name: this.#name ?? '', password: this.#password })
      exchanges.set(guest, giver)
      return giver.answer(box)
    }
    exchanges.delete(guest)
    const given = await begun.give(box, this.#options.link.key)
    if (given === null) this.#wrong++
    return given
  }
}
