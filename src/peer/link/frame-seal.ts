import { toHex } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import { derivation, type RoomLink } from '../room/secret.ts'

/**
 * How the two ends of a relayed link seal what goes through the server.
 *
 *   secret -HKDF-SHA-256, salt: room-> key of one direction of one link  AES-256-GCM; neither end sends it
 *     info: "tabring relay 1", the sending side, both sides' 32 random bytes (hex), the channel
 *   frame = nonce (12 bytes) | AES-GCM(key, nonce, message)
 *   nonce = kind (4 bytes) | number (8 bytes), big-endian; frames of a direction count from 0
 *
 * Both sides' random bytes make the keys new for every link, so that no nonce comes twice under one key and nothing of an earlier link opens.
 * A direction has its own key, so that no frame can be sent back to its sender. The number shows what is missing or came twice; the tag covers it.
 *
 * The server sees lengths and times, and can end the link. It can neither read nor make a frame, nor leave one out unnoticed.
 */

/** Random bytes with which each side begins. */
export const relayHelloBytes = 32
/** Bytes of a frame besides its message. */
export const relaySealBytes = 12 + 16

export const frameKinds = { ready: 0, data: 1, taken: 2, goodbye: 3 } as const
export type FrameKind = keyof typeof frameKinds

export interface OpenedFrame {
  kind: FrameKind
  message: Uint8Array<ArrayBuffer>
}

export interface SealOptions {
  link: RoomLink
  channel: string
  /** This side's number, and both sides' random bytes by it. */
  side: 0 | 1
  hellos: readonly [Uint8Array, Uint8Array]
}

/** One end's two keys: to seal what it sends, in the order of the calls, and to open what it gets, in the order of coming. */
export class FrameSeal {
  private sent = 0
  private received = 0

  private constructor(
    private readonly sealKey: CryptoKey,
    private readonly openKey: CryptoKey,
  ) {}

  /** errors: those of `derivation`. */
  static async derive({ link, channel, side, hellos }: SealOptions): Promise<FrameSeal> {
    const { bits } = await derivation(link)
    const keyOf = async (sender: number, use: 'encrypt' | 'decrypt') => {
      const [first, second] = hellos.map(toHex)
      const key = await bits(`tabring relay 1 ${sender} ${first} ${second} ${channel}`)
      return crypto.subtle.importKey('raw', key, 'AES-GCM', false, [use])
    }
    return new FrameSeal(await keyOf(side, 'encrypt'), await keyOf(1 - side, 'decrypt'))
  }

  /** The next frame. The message is copied before this returns its promise. */
  async seal(kind: FrameKind, message: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
    const nonce = nonceOf(kind, this.sent++)
    const sealed = await crypto.subtle.encrypt(
      { name: 'AES-GCM', iv: nonce },
      this.sealKey,
      message,
    )
    const frame = new Uint8Array(nonce.length + sealed.byteLength)
    frame.set(nonce)
    frame.set(new Uint8Array(sealed), nonce.length)
    return frame
  }

  /** Opens what the other end sealed as the next frame. errors: PeerError `peer.protocol` for anything else, naming the frame. */
  async open(frame: Uint8Array<ArrayBuffer>): Promise<OpenedFrame> {
    const number = this.received++
    const expected = `expected sealed frame ${number}`
    if (frame.length < relaySealBytes)
      throw broken(`${expected}, got ${frame.length} bytes, too few for a frame`)
    const view = new DataView(frame.buffer, frame.byteOffset)
    const got = view.getUint32(4) * 2 ** 32 + view.getUint32(8)
    if (got > number)
      throw broken(`${expected}, got frame ${got}: the frames in between are lost or delayed`)
    if (got < number) throw broken(`${expected}, got frame ${got} again`)
    const kind = kinds[view.getUint32(0)]
    if (!kind) throw broken(`${expected}, got a frame of an unknown kind`)
    const iv = frame.slice(0, 12)
    let opened: ArrayBuffer
    try {
      opened = await crypto.subtle.decrypt(
        { name: 'AES-GCM', iv },
        this.openKey,
        frame.subarray(12),
      )
    } catch (cause) {
      const why = `${expected}, got one that does not decrypt: it was altered, or the other end has another key`
      throw broken(why, cause)
    }
    return { kind, message: new Uint8Array(opened) }
  }
}

const kinds = Object.keys(frameKinds) as FrameKind[]

function nonceOf(kind: FrameKind, number: number): Uint8Array<ArrayBuffer> {
  const nonce = new Uint8Array(12)
  const view = new DataView(nonce.buffer)
  view.setUint32(0, frameKinds[kind])
  view.setUint32(4, Math.floor(number / 2 ** 32))
  view.setUint32(8, number >>> 0)
  return nonce
}

function broken(why: string, cause?: unknown): PeerError {
  return new PeerError(
    'peer.protocol',
    `relay: ${why}. The signaling server, or a proxy in front of it, may be tampering.`,
    { cause },
  )
}
