import { WebSocket } from 'ws'
import type { SocketConstructor } from '../../src/peer/room/room-options.ts'

/** A WebSocket as a page of `origin` opens it. */
export function socketFrom(origin: string | undefined): SocketConstructor {
  return class extends WebSocket {
    constructor(url: string) {
      super(url, { origin, rejectUnauthorized: false })
    }
  } as unknown as SocketConstructor
}
