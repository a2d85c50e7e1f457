import { hmac } from '@noble/hashes/hmac.js'
import { sha512 } from '@noble/hashes/sha2.js'
import { concatBytes, randomBytes, utf8ToBytes } from '@noble/hashes/utils.js'
import { PeerError } from '../../util/errors.ts'
import { sameBytes } from '../../util/same-bytes.ts'
import { fromBase64Url, toBase64Url } from './base64url.ts'
import { codeAlphabet, passwordChars, type ShortCode } from './code-messages.ts'
import { CPace } from './cpace.ts'

/**
 * The key of a room, given to who knows a short code. The code is a name by which the server knows the tab that gives it, and a password that the
 * server never sees: newcomer and giver agree by it on a key (cpace.ts), and the room's key travels sealed with that.
 *
 *   newcomer                             giver
 *    session, point                ->
 *                                  <-     point
 *    HMAC of its point         ->                   it knows the password: a wrong one ends here, and counts as a guess
 *                                  <-     the room's key, sealed
 *
 * An attacker in the place of a giver or of a newcomer, such as the server, has one guess each time. The giver counts those of newcomers; those of a
 * server that answers newcomers in its place nobody counts.
 */

const sessionBytes = 16
const pointBytes = 32
const tagBytes = 64

/** A password of which each is as likely as any other. */
export function newPassword(): string {
  const { length } = codeAlphabet
  const fair = 256 - (256 % length)
  let password = ''
  while (password.length < passwordChars) {
    const [byte] = randomBytes(1)
    if (byte < fair) password += codeAlphabet[byte % length]
  }
  return password
}

const channelOf = ({ name }: ShortCode) => utf8ToBytes(`tabring code 1 ${name}`)

const tagOf = (key: Uint8Array, point: Uint8Array) =>
  hmac(sha512, sha512(concatBytes(utf8ToBytes('CPaceMac'), key)), point)

const boxKeyOf = (key: Uint8Array) => {
  const bytes = sha512(concatBytes(utf8ToBytes('tabring code box 1'), key)).slice(0, 32)
  return crypto.subtle.importKey('raw', bytes, 'AES-GCM', false, ['encrypt', 'decrypt'])
}

/** Of a key that seals one message. */
const algorithm = { name: 'AES-GCM', iv: new Uint8Array(12) }

/** `message` in parts of these lengths. errors: `peer.protocol` where it has another length. */
function partsOf(message: string, ...lengths: readonly number[]): Uint8Array[] {
  const bytes = fromBase64Url(message)
  if (bytes.length !== lengths.reduce((sum, length) => sum + length))
    throw new PeerError(
      'peer.protocol',
      `short code: expected ${lengths.join(' + ')} bytes, got ${bytes.length}. Reload both pages.`,
    )
  let end = 0
  return lengths.map((length) => {
    end += length
    return bytes.subarray(end - length, end)
  })
}

/** The side of the exchange that asks for a room's key. */
export class CodeNewcomer {
  readonly #pace: CPace
  readonly #session = randomBytes(sessionBytes)
  #key: Uint8Array | undefined

  constructor(code: ShortCode) {
    const password = utf8ToBytes(code.password)
    this.#pace = new CPace({ password, channel: channelOf(code), session: this.#session })
  }

  /** The first message. */
  ask(): string {
    return toBase64Url(concatBytes(this.#session, this.#pace.message))
  }

  /** The second message. errors: `peer.protocol` for an answer that is none. */
  prove(answer: string): string {
    const [point] = partsOf(answer, pointBytes)
    this.#key = this.#pace.keyWith(point, { isInitiator: true })
    return toBase64Url(tagOf(this.#key, this.#pace.message))
  }

  /** The room's key. errors: `peer.protocol` for an answer of somebody who does not know the password. */
  async open(answer: string): Promise<string> {
    try {
      const box = fromBase64Url(answer)
      const sealed = await crypto.subtle.decrypt(algorithm, await boxKeyOf(this.#key!), box)
      return toBase64Url(new Uint8Array(sealed))
    } catch (cause) {
      throw new PeerError(
        'peer.protocol',
        'short code: the answer does not come from the tab that shows the code. The signaling server may be tampering: ask for the link instead.',
        { cause },
      )
    }
  }
}

/** The side that gives it: one exchange with one newcomer. */
export class CodeGiver {
  readonly #code: ShortCode
  #key: Uint8Array | undefined
  #expected: Uint8Array | undefined

  constructor(code: ShortCode) {
    this.#code = code
  }

  /** The answer to the first message. errors: `peer.protocol` for what is none. */
  answer(ask: string): string {
    const [session, point] = partsOf(ask, sessionBytes, pointBytes)
    const password = utf8ToBytes(this.#code.password)
    const pace = new CPace({ password, channel: channelOf(this.#code), session })
    this.#key = pace.keyWith(point, { isInitiator: false })
    this.#expected = tagOf(this.#key, point)
    return toBase64Url(pace.message)
  }

  /** `roomKey` for who proves that it knows the password, sealed; null for a wrong one. errors: as `answer`. */
  async give(proof: string, roomKey: string): Promise<string | null> {
    const [tag] = partsOf(proof, tagBytes)
    const key = this.#key
    // One try: a second proof in the same exchange would be another guess.
    this.#key = undefined
    if (!key || !sameBytes(tag, this.#expected!)) return null
    const bytes = fromBase64Url(roomKey)
    const sealed = await crypto.subtle.encrypt(algorithm, await boxKeyOf(key), bytes)
    return toBase64Url(new Uint8Array(sealed))
  }
}
