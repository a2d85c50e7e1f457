import { clipped } from '../../util/clipped.ts'
import { PeerError } from '../../util/errors.ts'
import { signalPath } from './messages.ts'
import { formatFragment, newRoomLink, parseFragment, type RoomLink } from './secret.ts'

/** A room, and the server that has it. */
export interface RoomAddress {
  /** `ws:` or `wss:`, for a WebSocket. */
  server: string
  link: RoomLink
}

/**
 * Returns a link to a new room of a signaling server: `wss://host/signal#key=...`. `server` may be a page's address.
 *
 * Anyone with the link may enter the room. The part after # never reaches the server.
 * errors: `config.invalid` for an invalid address.
 */
export function newRoomUrl(server: string | URL): string {
  return socketAddress('newRoomUrl', 'server', server).href + formatFragment(newRoomLink())
}

/**
 * Reads a room's link: what `newRoomUrl` gives, or the address of a page that is in the room.
 *
 * errors: `config.invalid` for what is no such link.
 */
export function parseRoomUrl(where: string, url: string | URL): RoomAddress {
  const address = socketAddress(where, 'url', url)
  const link = parseFragment(new URL(url).hash)
  if (!link) {
    throw new PeerError(
      'config.invalid',
      `${where}: ${clipped(address.href)} has no #key=. Create a link with newRoomUrl(), or copy the whole link.`,
    )
  }
  return { server: address.href, link }
}

const socketProtocols: Record<string, string> = {
  'ws:': 'ws:',
  'wss:': 'wss:',
  'http:': 'ws:',
  'https:': 'wss:',
}

function socketAddress(where: string, name: string, url: string | URL): URL {
  const expected = `${name} must be an address that begins with ws:, wss:, http: or https:`
  let address: URL
  try {
    address = new URL(url)
  } catch (cause) {
    // Without the address: a secret may be in it.
    const text = `${where}: ${expected}, got something that is not a URL. Copy the whole link.`
    throw new PeerError('config.invalid', text, { cause })
  }
  const { protocol, host, pathname } = address
  const socketProtocol = socketProtocols[protocol]
  if (!socketProtocol) {
    const text = `${where}: ${expected}, got ${clipped(protocol)}. Copy the room's link.`
    throw new PeerError('config.invalid', text)
  }
  // A page is served beside the signaling server; a socket's own path leads to it, if it has one.
  const path = protocol === socketProtocol && pathname !== '/' ? pathname : signalPath
  return new URL(`${socketProtocol}//${host}${path}`)
}
