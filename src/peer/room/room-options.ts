import type { Env } from '../../util/env.ts'
import type { RoomLink } from './secret.ts'

/** The part of a WebSocket that Tabring uses; the browser's and that of `ws` both have it. */
export interface SocketLike {
  readonly readyState: number
  // The browser's and ws's event classes have nothing in common but what the handlers here ask of them.
  onmessage: ((event: never) => void) | null
  onclose: ((event: never) => void) | null
  onerror: ((event: never) => void) | null
  send(text: string): void
  close(code?: number, reason?: string): void
}
/** A WebSocket class. */
export type SocketConstructor = new (url: string) => SocketLike

/** A socket that carries binary messages too. */
export interface BinarySocket extends SocketLike {
  binaryType: string
  send(data: string | Uint8Array<ArrayBuffer>): void
}
export type BinarySocketConstructor = new (url: string) => BinarySocket

/** How to enter a room. */
export interface RoomOptions {
  /** Address of the signaling server, `ws:` or `wss:`. */
  url: string
  /** The room and its key. */
  link: RoomLink
  /** `either`: joins the room, or creates it if it is empty, so that one link always works. */
  mode?: 'create' | 'join' | 'either'
  /**
   * Makes a returning host the host again, and lets a returning member in without a question. 32 hexadecimal digits, known only to this tab; the
   * same for all its ranks. Default: a member's own, drawn for this connection.
   */
  hostToken?: string
  /** True if this member is a rank of a tab of which another one may be the host. Default false. */
  isFurther?: boolean
  /** For a server that makes rooms only for people who have its key. */
  roomKey?: string
  WebSocket: SocketConstructor
  env?: Env
}
