import type { IncomingMessage, Server } from 'node:http'
import type { Duplex } from 'node:stream'
import { type RawData, WebSocket, WebSocketServer } from 'ws'
import { signalPath } from '../../src/peer/room/messages.ts'
import { messageOf } from '../../src/util/errors.ts'
import { closeReason } from '../close-reason.ts'
import { ownHosts } from '../hosts.ts'
import { hostInUrl } from './coordination/join.ts'
import { connectPinned, type Pin } from './pin.ts'

export interface ProxyOptions {
  host: string
  port: number
  /** The certificate that the signaling server there must have. */
  pin: Pin
}

const closeTimeoutMs = 2_000
/** A side that does not read is cut off. units: bytes. */
const maxQueuedBytes = 8 * 1024 * 1024

/**
 * Brings the signaling of this machine's tabs to the launcher of rank 0: each WebSocket at `signalPath` of `server` gets one there, under the pinned
 * certificate.
 *
 * So tabs speak to their own launcher alone, and no browser needs a flag to trust a self-signed certificate. As at the signaling server itself,
 * only pages of the server's own origin are taken.
 */
export function attachSignalProxy(
  server: Server,
  { host, port, pin }: ProxyOptions,
): { close(): Promise<void> } {
  const isOwnHost = ownHosts()
  const wss = new WebSocketServer({ noServer: true, perMessageDeflate: false })
  // The server takes pages of its origin; a name that it is sure to know is its own, whichever led here.
  const there = `127.0.0.1:${port}`

  const join = (tab: WebSocket) => {
    const far = new WebSocket(`wss://${hostInUrl(host)}:${port}${signalPath}`, {
      perMessageDeflate: false,
      origin: `https://${there}`,
      headers: { Host: there },
      createConnection: ((_: unknown, done: (error: Error | null, socket?: unknown) => void) =>
        connectPinned({ host, port, pin }, done)) as never,
    })
    const waiting: [RawData, boolean][] = []
    let why = ''
    const pass = (to: WebSocket, data: RawData, isBinary: boolean) => {
      if (to.readyState !== WebSocket.OPEN) return
      if (to.bufferedAmount > maxQueuedBytes) to.terminate()
      else to.send(data, { binary: isBinary })
    }
    tab.on('message', (data, isBinary) => {
      if (far.readyState === WebSocket.CONNECTING) waiting.push([data, isBinary])
      else pass(far, data, isBinary)
    })
    far.on('message', (data, isBinary) => pass(tab, data, isBinary))
    far.on('open', () => {
      for (const [data, isBinary] of waiting.splice(0)) pass(far, data, isBinary)
    })
    far.on('error', (error) => {
      why = messageOf(error)
    })
    tab.on('error', () => undefined) // a close always follows
    far.on('close', (code, reason) => end(tab, code, String(reason) || why))
    tab.on('close', (code, reason) => end(far, code, String(reason)))
  }

  const onUpgrade = (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    if (request.url?.split('?')[0] !== signalPath) return
    const { origin: from, host: name } = request.headers
    if (!isOwnHost(name) || from !== `http://${name}`) socket.destroy()
    else wss.handleUpgrade(request, socket, head, join)
  }
  server.on('upgrade', onUpgrade)

  return {
    close: async () => {
      server.off('upgrade', onUpgrade)
      const open = [...wss.clients]
      const ended = open.map((tab) => new Promise((resolve) => tab.once('close', resolve)))
      for (const tab of open) end(tab, 1001, 'the launcher is ending')
      await Promise.all(ended)
      wss.close()
    },
  }
}

/** Closes with the other side's code where it is one that may be sent. */
function end(socket: WebSocket, code: number, reason: string): void {
  const isSendable =
    (code >= 1000 && code <= 1014 && ![1004, 1005, 1006].includes(code)) || code >= 3000
  if (socket.readyState === WebSocket.CONNECTING) socket.terminate()
  else socket.close(isSendable ? code : 1011, closeReason(reason))
  setTimeout(() => socket.terminate(), closeTimeoutMs).unref()
}
