import { NewestMap } from '../../util/newest-map.ts'
import { fromBase64Url, toBase64Url } from './base64url.ts'
import { keyHashOf } from './lives.ts'

/**
 * Keys by which a member signs what others pass on for it. The name of a life ends with a hash of its public key (lives.ts), so who knows the name can
 * check the key that comes with a message, and needs no directory. 96 bits of the hash are enough: a liar would have to find another key with the hash
 * of an honest member's.
 */
export interface LifeKeys {
  /** The public key, as it goes along with signatures. units: base64url of 65 bytes, an uncompressed point. */
  readonly key: string
  /** In the name of each life that has it. units: base64url of 12 bytes. */
  readonly hash: string
  /** Cannot be read, but may be handed to a worker. */
  readonly secret: CryptoKey
}

/** Signature of a message that others pass on. */
export interface Signature {
  readonly key: string
  readonly signature: string
}

/** Signs for one life, and checks what others have signed. */
export interface Signer {
  sign(text: string): Promise<Signature>
  /** Returns whether that life has signed this text. */
  verify(life: string, text: string, signed: Signature): Promise<boolean>
}

const curve = { name: 'ECDSA', namedCurve: 'P-256' }
const algorithm = { name: 'ECDSA', hash: 'SHA-256' }
const hashBytes = 12
/** Public keys of others that are kept ready. */
export const maxKeys = 256

const utf8 = new TextEncoder()

const hashOf = async (key: Uint8Array<ArrayBuffer>): Promise<string> =>
  toBase64Url(new Uint8Array(await crypto.subtle.digest('SHA-256', key), 0, hashBytes))

export async function newLifeKeys(): Promise<LifeKeys> {
  const { publicKey, privateKey } = await crypto.subtle.generateKey(curve, false, [
    'sign',
    'verify',
  ])
  const key = new Uint8Array(await crypto.subtle.exportKey('raw', publicKey))
  return { key: toBase64Url(key), hash: await hashOf(key), secret: privateKey }
}

/** Signs with ECDSA over P-256. A signature counts in one run alone, by its `key`: names of lives may come again in another one. */
export class LifeSigner implements Signer {
  readonly #keys: LifeKeys
  readonly #run: string
  /** By name of a life and key: null where they do not belong together. */
  readonly #known = new NewestMap<string, Promise<CryptoKey | null>>(maxKeys)

  constructor(keys: LifeKeys, run: string) {
    this.#keys = keys
    this.#run = run
  }

  async sign(text: string): Promise<Signature> {
    const { key, secret } = this.#keys
    const bytes = new Uint8Array(await crypto.subtle.sign(algorithm, secret, this.#bytesOf(text)))
    return { key, signature: toBase64Url(bytes) }
  }

  async verify(life: string, text: string, { key, signature }: Signature): Promise<boolean> {
    const publicKey = await this.#keyOf(life, key)
    if (!publicKey) return false
    try {
      const bytes = fromBase64Url(signature)
      return await crypto.subtle.verify(algorithm, publicKey, bytes, this.#bytesOf(text))
    } catch {
      // No base64.
      return false
    }
  }

  #bytesOf(text: string): Uint8Array<ArrayBuffer> {
    return utf8.encode(`tabring pass 1 ${this.#run} ${text}`)
  }

  #keyOf(life: string, key: string): Promise<CryptoKey | null> {
    const name = `${life} ${key}`
    const known = this.#known.get(name) ?? publicKeyOf(life, key)
    this.#known.set(name, known)
    return known
  }
}

/** Null for an invalid key, or one that is not that life's. */
async function publicKeyOf(life: string, key: string): Promise<CryptoKey | null> {
  try {
    const bytes = fromBase64Url(key)
    if ((await hashOf(bytes)) !== keyHashOf(life)) return null
    return await crypto.subtle.importKey('raw', bytes, curve, false, ['verify'])
  } catch {
    return null
  }
}
