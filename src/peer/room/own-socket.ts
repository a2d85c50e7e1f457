import type { BinarySocket, BinarySocketConstructor } from './room-options.ts'

/** Outside of browsers a WebSocket takes headers: in Node, and that of the package `ws`. */
type SocketWithHeaders = new (
  url: string,
  options: { readonly headers: Readonly<Record<string, string>> },
) => BinarySocket

/** Returns this platform's WebSocket; undefined where it has none. */
export function ownSocket(): BinarySocketConstructor | undefined {
  const { WebSocket } = globalThis
  if (!WebSocket || 'location' in globalThis) return WebSocket as BinarySocketConstructor
  return class extends (WebSocket as unknown as SocketWithHeaders) {
    constructor(url: string) {
      // Servers accept only sockets whose `Origin` is theirs, and a process has no page that sets it.
      super(url, { headers: { Origin: new URL(url).origin.replace(/^ws/, 'http') } })
    }
  }
}
