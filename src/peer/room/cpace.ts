import { ristretto255, ristretto255_hasher } from '@noble/curves/ed25519.js'
import { concatBytes } from '@noble/curves/utils.js'
import { sha512 } from '@noble/hashes/sha2.js'
import { randomBytes, utf8ToBytes } from '@noble/hashes/utils.js'
import { PeerError } from '../../util/errors.ts'

/**
 * CPace: two sides that know one short password agree on a key, over a channel that anyone may read and change. Who does not know the password
 * has one guess in each exchange, and learns nothing from what others say to each other.
 *
 * source: draft-irtf-cfrg-cpace, group ristretto255 with SHA-512, initiator and responder, without associated data.
 */

const { Point } = ristretto255
const groupName = 'CPaceRistretto255'
/** Input block of SHA-512. units: bytes. */
const hashBlock = 128

/** `parts` behind each other, each after its length. */
const withLengths = (...parts: readonly Uint8Array[]): Uint8Array =>
  concatBytes(...parts.flatMap((part) => [lengthOf(part), part]))

/** As LEB128, of at most 16,383 bytes. */
const lengthOf = ({ length }: Uint8Array): Uint8Array =>
  length < 128 ? Uint8Array.of(length) : Uint8Array.of((length & 127) | 128, length >> 7)

/** The point that stands for a password in one exchange: `channel` says between whom, and `session` is used once. */
export function generatorOf(password: Uint8Array, channel: Uint8Array, session: Uint8Array) {
  const name = utf8ToBytes(groupName)
  const used = withLengths(password).length + withLengths(name).length
  const padding = new Uint8Array(Math.max(0, hashBlock - 1 - used))
  const hash = sha512(withLengths(name, password, padding, channel, session))
  return ristretto255_hasher.deriveToCurve!(hash)
}

/** A scalar of 64 random bytes, so that its distribution is even. */
const drawScalar = (): bigint => Point.Fn.create(littleEndian(randomBytes(64)))

export const littleEndian = (bytes: Uint8Array): bigint =>
  bytes.reduceRight((sum, byte) => (sum << 8n) | BigInt(byte), 0n)

/** The point times `scalar`. errors: `peer.protocol` for bytes that are no point, and for the neutral one, which would give the same key to all. */
export function multiplied(scalar: bigint, bytes: Uint8Array): Uint8Array {
  try {
    const product = Point.fromBytes(bytes).multiply(scalar)
    if (!product.is0()) return product.toBytes()
  } catch {
    // As below.
  }
  throw new PeerError(
    'peer.protocol',
    'short code: the other side sent something that is no key. Try the code again.',
  )
}

/** Facts of one exchange that both sides know. */
export interface Exchange {
  readonly password: Uint8Array
  /** Between whom: the same on both sides. */
  readonly channel: Uint8Array
  /** Drawn for this exchange. */
  readonly session: Uint8Array
}

/** One side of an exchange. `scalar`: for test vectors; default drawn. */
export class CPace {
  readonly #exchange: Exchange
  readonly #scalar: bigint
  /** For the other side: 32 bytes. */
  readonly message: Uint8Array

  constructor(exchange: Exchange, scalar = drawScalar()) {
    this.#exchange = exchange
    this.#scalar = scalar
    const { password, channel, session } = exchange
    this.message = generatorOf(password, channel, session).multiply(scalar).toBytes()
  }

  /** The key of this exchange, 64 bytes; both sides have the same where their passwords are the same. errors: those of `multiplied`. */
  keyWith(other: Uint8Array, { isInitiator }: { readonly isInitiator: boolean }): Uint8Array {
    const shared = multiplied(this.#scalar, other)
    const [first, second] = isInitiator ? [this.message, other] : [other, this.message]
    return keyOf(this.#exchange.session, shared, first, second)
  }
}

/** `data`: what each side sent besides, the initiator's first. */
export function keyOf(
  session: Uint8Array,
  shared: Uint8Array,
  first: Uint8Array,
  second: Uint8Array,
  data: readonly [Uint8Array, Uint8Array] = [new Uint8Array(), new Uint8Array()],
): Uint8Array {
  const name = utf8ToBytes(`${groupName}_ISK`)
  return sha512(
    concatBytes(
      withLengths(name, session, shared),
      withLengths(first, data[0]),
      withLengths(second, data[1]),
    ),
  )
}
