import type { IncomingMessage, Server } from 'node:http'
import type { Duplex } from 'node:stream'

/**
 * Ends every request for another protocol that is not for one of `paths`: Node leaves such sockets open, out of reach of the server's own limits
 * and of `closeAllConnections`. For servers that nobody else listens to.
 */
export function refuseOtherUpgrades(server: Server, paths: readonly string[]): void {
  server.on('upgrade', ({ url = '' }: IncomingMessage, socket: Duplex) => {
    if (paths.includes(url.split('?')[0])) return
    socket.on('error', () => undefined) // it may be gone already
    socket.end('HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n', () =>
      socket.destroy(),
    )
  })
}
