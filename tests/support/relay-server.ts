import type { SignalServerOptions } from '../../node/signal-server.ts'
import type { Link } from '../../src/peer/link/link.ts'
import { RelayLink, type RelayLinkOptions } from '../../src/peer/link/relay-link.ts'
import type { BinarySocketConstructor } from '../../src/peer/room/room-options.ts'
import { newRoomUrl, parseRoomUrl, type RoomAddress } from '../../src/peer/room/room-url.ts'
import { socketFrom } from './signal-socket.ts'
import { StoreServer } from './store-server.ts'

/** A signaling server with a relay, and a room on it that stays. */
export interface RelayServer {
  server: StoreServer
  address: RoomAddress
  roomUrl: string
  WebSocket: BinarySocketConstructor
  /** Both ends of a link, up. */
  open(more?: Partial<RelayLinkOptions>): Promise<{ near: RelayLink; far: RelayLink }>
  /** One end, of which nothing is awaited. */
  end(channel: string, side: 0 | 1, more?: Partial<RelayLinkOptions>): RelayLink
  close(): Promise<void>
}

export async function startRelay(options: SignalServerOptions = {}): Promise<RelayServer> {
  const server = await StoreServer.start({ relay: true, ...options })
  const roomUrl = newRoomUrl(server.address)
  await server.open(roomUrl)
  const address = parseRoomUrl('the spec', roomUrl)
  const WebSocket = socketFrom(server.origin) as unknown as BinarySocketConstructor
  const made: Link[] = []
  let count = 0
  const end: RelayServer['end'] = (channel, side, more = {}) => {
    const peerName = `rank ${1 - side} (the other)`
    const link = new RelayLink({ address, channel, side, peerName, WebSocket, ...more })
    made.push(link)
    return link
  }
  return {
    ...{ server, address, roomUrl, WebSocket, end },
    async open(more) {
      const channel = `link ${count++}`
      const [near, far] = [end(channel, 0, more), end(channel, 1, more)]
      await Promise.all([near.opened, far.opened])
      return { near, far }
    },
    async close() {
      for (const link of made) link.close('the spec is over')
      await server.close()
    },
  }
}
