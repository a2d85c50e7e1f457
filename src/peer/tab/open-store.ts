import type { Env } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import { checkChoice, checkOptions } from '../../util/options.ts'
import { ownSocket } from '../room/own-socket.ts'
import type { SocketConstructor } from '../room/room-options.ts'
import { parseRoomUrl } from '../room/room-url.ts'
import { checkTimeout } from '../store/check-arguments.ts'
import { WebSocketStore } from './web-socket-store.ts'

/** Options of `openStore`. */
export interface OpenStoreOptions {
  /** How long `get` and `wait` wait; 0 means no limit. Default 300,000. units: ms. */
  timeoutMs?: number
  /** `either`, the default, creates the room if it does not exist. `join` fails then, and `create` fails if it exists. */
  mode?: 'either' | 'join' | 'create'
  /** Default: the platform's, which outside of browsers sends the server's own address as its Origin. */
  WebSocket?: SocketConstructor
  /** The clock. Default: the system's. */
  env?: Env
}

/**
 * Opens the store of a room of the signaling server. `url` is a link to the room (`newRoomUrl`), or the address of a page in that room.
 *
 * Everyone with the link shares the store. Opening it joins neither the room's lobby nor its runs.
 * errors: `config.invalid` for an invalid link; `signal.lost` if the server cannot be reached; `signal.refused` with the server's reason.
 */
export const openStore = (
  url: string | URL,
  options: OpenStoreOptions = {},
): Promise<WebSocketStore> => openStoreFor('openStore', url, options)

/** As `openStore`, for a function whose name errors are to begin with. */
export async function openStoreFor(
  where: string,
  url: string | URL,
  options: OpenStoreOptions = {},
): Promise<WebSocketStore> {
  const { timeoutMs, mode, WebSocket, env } = checkOptions(where, options, {
    timeoutMs: true,
    mode: true,
    WebSocket: true,
    env: true,
  })
  checkTimeout(where, timeoutMs)
  checkChoice(where, 'mode', mode, ['either', 'join', 'create'])
  const { server, link } = parseRoomUrl(where, url)
  const Socket = WebSocket ?? ownSocket()
  if (!Socket) {
    throw new PeerError(
      'config.invalid',
      `${where}: this platform has no WebSocket. Use Node 22 or newer, or start Node 20 with --experimental-websocket.`,
    )
  }
  return WebSocketStore.open({ url: server, link, mode, WebSocket: Socket, env }, timeoutMs)
}
