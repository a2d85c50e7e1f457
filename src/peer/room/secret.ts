import { toHex } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import { fromBase64Url, toBase64Url } from './base64url.ts'

/**
 * The room's secret and what is derived from it. It stands in the URL's fragment, which browsers never send, and stays in
 * the tabs: the server sees `authKey` (one way from the secret) and boxes that it can drop but neither read nor replace, so
 * it cannot put its own DTLS fingerprints into a session description.
 *
 *   secret -HKDF-SHA-256, no salt----> authKey  "tabring auth 2"  32 bytes, registered with the server by the maker
 *   room = the first 16 bytes of SHA-256(authKey) as hex: the name by which the server knows the room
 *   secret -HKDF-SHA-256, salt: room-> boxKey   "tabring box 1"   AES-256-GCM key, never leaves the tabs
 *                                   -> the store's two keys: store/sealed-value.ts
 *   proof = HMAC-SHA-256(authKey, proofText(room, nonce))
 *   box   = base64url(iv (12 bytes) | AES-GCM(boxKey, iv, JSON, associated data: addressText(address)))
 *
 * So a tab that has the key alone finds the room. The server makes a room only under the authKey that its name comes from: who knows the name of a
 * room, and not its key, cannot make it.
 *
 * source: HKDF is RFC 5869; the key stays behind the # of the link, as in Firefox Send.
 */

/** The key of a room of the signaling server; the room's name follows from it. */
export interface RoomLink {
  /** 32 bytes as base64url: the secret. */
  key: string
  /** The name that the link gives, 16 bytes as hex: it must be that of the key. */
  room?: string
}

/**
 * Where a box belongs: between ranks of an epoch, or between runs between members by their ids, without attempts. A box opened under any other
 * address is refused.
 */
export type BoxAddress =
  | { epoch: number; from: number; to: number; attempt: number }
  | { from: string; to: string }

const isInEpoch = (address: BoxAddress) => 'epoch' in address

const utf8 = new TextEncoder()

/** Returns a new room with a fresh secret. */
export function newRoomLink(
  random: (length: number) => Uint8Array = (length) =>
    crypto.getRandomValues(new Uint8Array(length)),
): RoomLink {
  return { key: toBase64Url(random(32)) }
}

/** The URL fragment that carries `link`, from its `#` on. */
export function formatFragment(link: RoomLink): string {
  const { room, key } = link
  return room === undefined ? `#key=${key}` : `#room=${room}&key=${key}`
}

/** Returns whether a text is a secret: 32 bytes as base64url. */
export const isKey = (text: string): boolean => /^[\w-]{43}$/.test(text)

/** Reads a URL fragment, with or without its `#`, `#key=` with or without `room=`; null when it has neither. errors: `config.invalid` as PeerError when it is cut or garbled. */
export function parseFragment(fragment: string): RoomLink | null {
  const fields = new URLSearchParams(fragment.replace(/^#/, ''))
  const room = fields.get('room')
  const key = fields.get('key')
  if (room === null && key === null) return null
  if ((room !== null && !/^[0-9a-f]{32}$/.test(room)) || !key || !isKey(key)) {
    throw new PeerError(
      'config.invalid',
      'room link: it must hold #key= with 43 characters, and room= with 32 hex digits if it has one. Copy the whole link again.',
    )
  }
  return room === null ? { key } : { room, key }
}

/**
 * The room's name, its authKey, and what gives the 32 bytes that are derived from the link's secret for one use, by the use's name.
 *
 * errors: PeerError `signal.refused` where WebCrypto is missing (an insecure page), `config.invalid` for a link whose room is not that of its key.
 */
export async function derivation(
  link: RoomLink,
): Promise<{ room: string; auth: ArrayBuffer; bits: (info: string) => Promise<ArrayBuffer> }> {
  if (!globalThis.crypto?.subtle) {
    throw new PeerError(
      'signal.refused',
      'room link: this page is not secure (https or localhost). Open the https address.',
    )
  }
  const secret = fromBase64Url(link.key)
  const base = await crypto.subtle.importKey('raw', secret, 'HKDF', false, ['deriveBits'])
  const derive = (salt: string, info: string) =>
    crypto.subtle.deriveBits(
      { name: 'HKDF', hash: 'SHA-256', salt: utf8.encode(salt), info: utf8.encode(info) },
      base,
      256,
    )
  const auth = await derive('', 'tabring auth 2')
  const room = toHex(new Uint8Array(await crypto.subtle.digest('SHA-256', auth), 0, 16))
  if (link.room !== undefined && link.room !== room) {
    throw new PeerError(
      'config.invalid',
      'room link: its room= is not the room of its key=. The link was changed, or is of an older version. Copy the whole link again.',
    )
  }
  return { room, auth, bits: (info) => derive(room, info) }
}

/** The text whose HMAC proves the secret; the server checks the same. */
export function proofText(room: string, nonce: string): string {
  return `tabring join 1 ${room} ${nonce}`
}

/** The keys of one room, ready for use. */
export class RoomSecret {
  private constructor(
    readonly room: string,
    /** 32 bytes as hex: what the maker registers. */
    readonly authKey: string,
    private readonly boxKey: CryptoKey,
    private readonly proofKey: CryptoKey,
  ) {}

  /** errors: those of `derivation`. */
  static async derive(link: RoomLink): Promise<RoomSecret> {
    const { room, auth, bits } = await derivation(link)
    const box = await bits('tabring box 1')
    const [boxKey, proofKey] = await Promise.all([
      crypto.subtle.importKey('raw', box, 'AES-GCM', false, ['encrypt', 'decrypt']),
      crypto.subtle.importKey('raw', auth, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']),
    ])
    return new RoomSecret(room, toHex(new Uint8Array(auth)), boxKey, proofKey)
  }

  /** The answer to the server's `nonce`, in hex. */
  async prove(nonce: string): Promise<string> {
    const text = utf8.encode(proofText(this.room, nonce))
    return toHex(new Uint8Array(await crypto.subtle.sign('HMAC', this.proofKey, text)))
  }

  /** `value` as JSON, sealed for one address. units: base64url characters, 4/3 of (JSON bytes + 28). */
  async seal(address: BoxAddress, value: unknown): Promise<string> {
    const iv = crypto.getRandomValues(new Uint8Array(12))
    const sealed = await crypto.subtle.encrypt(
      this.algorithm(address, iv),
      this.boxKey,
      utf8.encode(JSON.stringify(value)),
    )
    const box = new Uint8Array(iv.length + sealed.byteLength)
    box.set(iv)
    box.set(new Uint8Array(sealed), iv.length)
    return toBase64Url(box)
  }

  /** Opens what was sealed for exactly this address. errors: PeerError `peer.protocol` for anything else. */
  async open(address: BoxAddress, box: string): Promise<unknown> {
    try {
      const bytes = fromBase64Url(box)
      const plain = await crypto.subtle.decrypt(
        this.algorithm(address, bytes.slice(0, 12)),
        this.boxKey,
        bytes.slice(12),
      )
      return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(plain))
    } catch (cause) {
      const { from, to } = address
      const [where, who] = isInEpoch(address)
        ? [`epoch ${address.epoch}`, `from rank ${from} to rank ${to}, attempt ${address.attempt},`]
        : ['lobby', `from member ${from} to member ${to}`]
      throw new PeerError(
        'peer.protocol',
        `signal (${where}): the sealed message ${who} does not decrypt. The signaling server or another room member may be tampering.`,
        { cause },
      )
    }
  }

  private algorithm(address: BoxAddress, iv: Uint8Array<ArrayBuffer>): AesGcmParams {
    const { from, to } = address
    // Ids have 16 digits, so neither form of an address can be read as the other.
    const ends = isInEpoch(address)
      ? `${address.epoch} ${from} ${to} ${address.attempt}`
      : `lobby ${from} ${to}`
    const additionalData = utf8.encode(`${this.room} ${ends}`)
    return { name: 'AES-GCM', iv, additionalData }
  }
}
