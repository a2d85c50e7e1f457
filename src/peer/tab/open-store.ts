import type { Env } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import { checkChoice, checkOptions } from '../../util/options.ts'
import type { SocketConstructor } from '../room/room-options.ts'
import { parseRoomUrl } from '../room/room-url.ts'
import { checkTimeout } from '../store/check-arguments.ts'
import { WebSocketStore } from './web-socket-store.ts'

export interface OpenStoreOptions {
  /** How long `get` and `wait` wait; 0 is for ever. Default 300,000. */
  timeoutMs?: number
  /** `either`, the default, makes the room when it is not there; `join` and `create` insist. */
  mode?: 'either' | 'join' | 'create'
  /** Default the platform's. Outside of browsers, one that sends an Origin that the server allows. */
  WebSocket?: SocketConstructor
  /** The clock; default the real one. */
  env?: Env
}

/**
 * Opens the store of a room of the signaling server. `url` is a link to the room (`newRoomUrl`), or the address of a page that is in it;
 * whoever has it shares the store. Who opens it is in no lobby and no run of that room.
 *
 * errors: `config.invalid` for what is no such link; `signal.lost` when there is no server; `signal.refused` with the server's reason.
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
  const Socket = WebSocket ?? (globalThis.WebSocket as SocketConstructor | undefined)
  if (!Socket) {
    throw new PeerError(
      'config.invalid',
      `${where}: expected a platform with WebSockets, got one without. Give the option WebSocket, the class of the package ws say.`,
    )
  }
  return WebSocketStore.open({ url: server, link, mode, WebSocket: Socket, env }, timeoutMs)
}
