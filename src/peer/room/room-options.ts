import type { Env } from '../../util/env.ts'
import type { RoomLink } from './secret.ts'

/** The part of a WebSocket that is used; the browser's and `ws`'s both have it. */
export interface SocketLike {
  readonly readyState: number
  // The browser's and ws's event classes have nothing in common but what the handlers here ask of them.
  onmessage: ((event: never) => void) | null
  onclose: ((event: never) => void) | null
  onerror: ((event: never) => void) | null
  send(text: string): void
  close(code?: number, reason?: string): void
}
export type SocketConstructor = new (url: string) => SocketLike

/** A socket that carries binary messages too. */
export interface BinarySocket extends SocketLike {
  binaryType: string
  send(data: string | Uint8Array<ArrayBuffer>): void
}
export type BinarySocketConstructor = new (url: string) => BinarySocket

/** How to get into a room. */
export interface RoomOptions {
  /** `ws:` or `wss:` address; see `signalUrl`. */
  url: string
  link: RoomLink
  /** `either`: join, or make the room when nobody is in it. So one link always works. */
  mode?: 'create' | 'join' | 'either'
  /** A member's: what makes it the room's maker again when it comes back. 32 hexadecimal digits, known to this tab alone. */
  token?: string
  WebSocket: SocketConstructor
  env?: Env
}
