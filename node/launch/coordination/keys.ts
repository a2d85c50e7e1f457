import { createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto'
import type { RoomLink } from '../../../src/peer/room/secret.ts'
import { TabringError } from '../../../src/util/errors.ts'
import { roomOf } from '../../room-of.ts'
import type { Pin } from '../pin.ts'

/**
 * What is derived from the secret that all launchers of a run share:
 *
 *   key -HKDF-SHA-256, salt: the run's id-> proofs  "tabring launchers 1"   32 bytes: HMACs with which launchers know each other
 *                                        -> a room  "tabring room 1 <n>"    16 + 32 bytes: id and secret for the n-th start
 *
 * Both sides of a proof name the certificate that they see: who passes a connection on under a certificate of his own proves nothing.
 */

/** Below this a key could be found by trying. */
const minKeyChars = 16

/** Returns a fresh key. */
export const newKey = (): string => randomBytes(24).toString('base64url')

/** The key, when it is one. errors: `config.invalid`; the key itself is not in it. */
export function checkKey(where: string, key: string): string {
  if (key.length >= minKeyChars && /^[\x21-\x7e]+$/.test(key)) return key
  throw new TabringError(
    'config.invalid',
    `${where}: expected a key of at least ${minKeyChars} characters without spaces, got ${key.length}. Use the one that the first launcher printed, or create one with openssl rand -hex 24.`,
  )
}

export type Side = 'launcher' | 'leader'

/** The keys of one run. */
export class RunKeys {
  readonly #key: string
  readonly #proofs: Buffer

  constructor(
    key: string,
    /** Runs of other ids have other keys. */
    readonly runId: string,
  ) {
    this.#key = key
    this.#proofs = this.#derive('tabring launchers 1', 32)
  }

  #derive(info: string, bytes: number): Buffer {
    return Buffer.from(hkdfSync('sha256', this.#key, this.runId, info, bytes))
  }

  /** Proves that `side` holds the key and sees the certificate `pin`; in hex. */
  prove(side: Side, nonces: readonly [launcher: string, leader: string], pin: Pin): string {
    return createHmac('sha256', this.#proofs)
      .update(JSON.stringify([side, ...nonces, pin]))
      .digest('hex')
  }

  /** Returns whether `proof` is what `prove` would give. */
  isProof(
    proof: string,
    side: Side,
    nonces: readonly [launcher: string, leader: string],
    pin: Pin,
  ): boolean {
    const expected = Buffer.from(this.prove(side, nonces, pin), 'hex')
    const given = Buffer.from(proof, 'hex')
    return given.length === expected.length && timingSafeEqual(given, expected)
  }

  /** Says of a room whether it is one of the run's `maxRooms` rooms. */
  roomCheck(maxRooms: number): (room: string) => boolean {
    const rooms = new Set(Array.from({ length: maxRooms }, (_, attempt) => this.room(attempt).room))
    return (room) => rooms.has(room)
  }

  /** The signaling room of one start of the run: other starts and other runs meet in other rooms. */
  room(attempt: number): Required<RoomLink> {
    const secret = this.#derive(`tabring room 1 ${attempt}`, 32)
    return { room: roomOf(secret), key: secret.toString('base64url') }
  }
}
