import { PeerError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import { fromBase64Url, toBase64Url } from '../room/base64url.ts'
import { derivation, type RoomLink } from '../room/secret.ts'
import type { SealedValue } from '../room/store-messages.ts'

/**
 * How a room's tabs seal the values that they leave on the server.
 *
 *   secret -HKDF-SHA-256, salt: room-> storeKey  "tabring store 1"      AES-256-GCM key
 *                                   -> tagKey    "tabring store tag 1"  HMAC-SHA-256 key; neither leaves the tabs
 *   box = base64url(iv (12 random bytes) | AES-GCM(storeKey, iv, value, associated data: room, key))
 *   tag = base64url(HMAC-SHA-256(tagKey, length of key (4 bytes) | key | value))
 *
 * Boxes of equal values differ, so the server compares tags when it is asked for compareSet. A tag shows it which values of one key are equal,
 * and no more: under another key the same value has another tag.
 *
 * The server can drop a value and give an older one of the same key; it can neither read one nor make one, nor move it to
 * another key or room. Keys, lengths and counters (values made by `add`) it sees, and could change the counters.
 */
export class ValueSeal {
  private constructor(
    private readonly room: string,
    private readonly storeKey: CryptoKey,
    private readonly tagKey: CryptoKey,
  ) {}

  /** errors: those of `derivation`. */
  static async derive(link: RoomLink): Promise<ValueSeal> {
    const { room, bits } = await derivation(link)
    const [box, tag] = await Promise.all([bits('tabring store 1'), bits('tabring store tag 1')])
    const [storeKey, tagKey] = await Promise.all([
      crypto.subtle.importKey('raw', box, 'AES-GCM', false, ['encrypt', 'decrypt']),
      crypto.subtle.importKey('raw', tag, { name: 'HMAC', hash: 'SHA-256' }, false, ['sign']),
    ])
    return new ValueSeal(room, storeKey, tagKey)
  }

  async seal(key: string, value: Uint8Array<ArrayBuffer>): Promise<SealedValue> {
    const iv = crypto.getRandomValues(new Uint8Array(12))
    const [sealed, tag] = await Promise.all([
      crypto.subtle.encrypt(this.algorithm(key, iv), this.storeKey, value),
      this.tag(key, value),
    ])
    const box = new Uint8Array(iv.length + sealed.byteLength)
    box.set(iv)
    box.set(new Uint8Array(sealed), iv.length)
    return { box: toBase64Url(box), tag }
  }

  /** Opens what was sealed under exactly this key. errors: PeerError `peer.protocol` for anything else. */
  async open(key: string, box: string): Promise<Uint8Array<ArrayBuffer>> {
    try {
      const bytes = fromBase64Url(box)
      const algorithm = this.algorithm(key, bytes.slice(0, 12))
      return new Uint8Array(
        await crypto.subtle.decrypt(algorithm, this.storeKey, bytes.subarray(12)),
      )
    } catch (cause) {
      throw new PeerError(
        'peer.protocol',
        `store key ${quoted(key)}: its value does not decrypt with the room's key. The signaling server may be tampering.`,
        { cause },
      )
    }
  }

  /** Equal for equal values of one key, and for no others. */
  async tag(key: string, value: Uint8Array): Promise<string> {
    const name = utf8.encode(key)
    const text = new Uint8Array(4 + name.length + value.length)
    new DataView(text.buffer).setUint32(0, name.length)
    text.set(name, 4)
    text.set(value, 4 + name.length)
    return toBase64Url(new Uint8Array(await crypto.subtle.sign('HMAC', this.tagKey, text)))
  }

  private algorithm(key: string, iv: Uint8Array<ArrayBuffer>): AesGcmParams {
    return { name: 'AES-GCM', iv, additionalData: utf8.encode(`${this.room} ${key}`) }
  }
}

const utf8 = new TextEncoder()
