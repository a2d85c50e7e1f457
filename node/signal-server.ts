import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import { type RawData, WebSocket, WebSocketServer } from 'ws'
import { limits as defaultLimits, signalPath } from '../src/peer/room/messages.ts'
import type { Refusal } from '../src/peer/room/refusals.ts'
import { roomKeyText } from '../src/peer/room/room-key.ts'
import { proofText } from '../src/peer/room/secret.ts'
import { type Limits, Rendezvous, type RoomEvent } from '../src/peer/server/rendezvous.ts'
import type { RelaySockets } from '../src/peer/server/room-relay.ts'
import { systemEnv } from '../src/util/env.ts'
import { clientAddress } from './client-address.ts'
import { closeReason } from './close-reason.ts'
import { ownHosts } from './hosts.ts'
import { type IceOptions, iceSource } from './ice/ice-source.ts'
import { roomOfAuthKey } from './room-of.ts'
import { WaitingBytes } from './waiting-bytes.ts'

/** What signaling needs of an HTTP server: node:http, node:https and Vite's servers all have it. */
export interface UpgradeServer {
  on(
    event: 'upgrade',
    listener: (request: IncomingMessage, socket: Duplex, head: Buffer) => void,
  ): unknown
  off(
    event: 'upgrade',
    listener: (request: IncomingMessage, socket: Duplex, head: Buffer) => void,
  ): unknown
  once(event: 'close', listener: () => void): unknown
}

export interface SignalServerOptions {
  /** Origins taken besides the server's own, exactly as browsers write them: `https://example.org:8443`. */
  allowedOrigins?: readonly string[]
  /** Names of this machine besides those that it knows itself; see `ownHosts`. */
  hosts?: readonly string[]
  /** Open sockets of one IP address, or one /64 of IPv6. Every rank of `--nproc-per-node` comes from one address. */
  maxConnectionsPerIp?: number
  maxConnections?: number
  /** Whether a proxy in front of this server says who connects; see `clientAddress`. Default false. */
  trustsProxy?: boolean
  /** What may wait to be sent on all sockets together: above that, the one on which most waits is closed. units: bytes. Default 256 MiB. */
  maxWaitingBytes?: number
  limits?: Partial<Limits>
  /** STUN and TURN servers that tabs receive; default none. */
  ice?: IceOptions
  /** Whether tabs may send their data through this server, sealed end to end, where WebRTC does not get through. Default false. */
  relay?: boolean
  /** Whether this room may be made; default: any, by whoever reaches the port. */
  mayCreate?: (room: string) => boolean
  /** Rooms are made only for people who have this key; anyone with a link joins. Default: for anyone. */
  roomKey?: string
  /** Whether the host of a room lets each newcomer in. Default false: who has the link is in. */
  asks?: boolean
  onEvent?: (event: RoomEvent) => void
  /** One line for each socket that is refused; silent by default. */
  log?: (line: string) => void
}

/** Counts of now; those of bytes and refusals since the server began. */
export interface SignalStatus {
  rooms: number
  members: number
  guests: number
  sockets: number
  relayedBytes: number
  refused: number
}

export interface SignalServer {
  readonly rendezvous: Rendezvous
  readonly status: SignalStatus
  /** Tells every tab, ends every socket and stops listening for upgrades; the HTTP server stays open. */
  close(): Promise<void>
}

/** Whether `given` is the HMAC-SHA-256 of `text`, in hex; in a time that says nothing of it. */
function isHmac(given: string, key: string | Buffer, text: string): boolean {
  const expected = createHmac('sha256', key).update(text).digest()
  const bytes = Buffer.from(given, 'hex')
  return bytes.length === expected.length && timingSafeEqual(bytes, expected)
}

/** A reader that lets this much pile up is cut off. units: bytes. */
const maxQueuedBytes = 4 * 1024 * 1024
/** Of one message, as it comes: each piece costs far more memory than its bytes. A network cuts a message of 128 KiB into about 100. */
const pieceLimits = { maxFragments: 256, maxBufferedChunks: 2_048 }
/** How long a socket may take over the closing handshake. */
const closeTimeoutMs = 2_000
/** The same for one that has still to read what was relayed to it. */
const drainTimeoutMs = 15_000

/**
 * Puts the signaling server on an HTTP(S) server's own port, at `signalPath`; other upgrades (Vite's HMR) pass untouched.
 *
 * A socket that may not connect is accepted, gets the reason in an `error` message, and is closed: browsers hide the body of a refused
 * upgrade. Origin: must be the server's own (scheme and a Host header that is ours) or in `allowedOrigins`; WebSockets
 * are not bound by CORS, so without this check any page could use a server on its visitor's machine.
 */
export function attachSignaling(
  server: UpgradeServer,
  options: SignalServerOptions = {},
): SignalServer {
  const {
    maxConnections = 2_000,
    maxWaitingBytes = 256 * 1024 * 1024,
    trustsProxy,
    roomKey,
  } = options
  // A relayed link is two sockets: 16 ranks of one address that are all linked to all have 240 besides their own.
  const maxConnectionsPerIp = options.maxConnectionsPerIp ?? (options.relay ? 768 : 256)
  const allowedOrigins = new Set(options.allowedOrigins ?? [])
  const isOwnHost = ownHosts(options.allowedOrigins, options.hosts)
  const { messageBytes, relayFrameBytes } = { ...defaultLimits, ...options.limits }
  const log = options.log ?? (() => undefined)
  const iceServers = options.ice && iceSource('signaling', options.ice)
  const sockets = new Map<string, WebSocket>()
  const waiting = new WaitingBytes()
  const socketsOfIp = new Map<string, number>()
  let isClosed = false
  let isCutting = false
  let refusedCount = 0

  const onEvent = (event: RoomEvent) => {
    if (event.event === 'refused') refusedCount++
    options.onEvent?.(event)
  }

  const wss = new WebSocketServer({
    noServer: true,
    perMessageDeflate: false,
    // Up to twice the limit is read, so that the state machine can say in words what is too large.
    maxPayload: Math.max(2 * messageBytes, options.relay ? relayFrameBytes : 0),
    ...pieceLimits,
  })

  const end = (socket: WebSocket, text: string) => {
    socket.close(1008, closeReason(text))
    // What was relayed to a slow one comes first.
    const timeoutMs = socket.bufferedAmount > 0 ? drainTimeoutMs : closeTimeoutMs
    setTimeout(() => socket.terminate(), timeoutMs).unref()
  }

  const write = (
    id: string,
    socket: WebSocket,
    bytes: Uint8Array,
    binary: boolean,
    sent?: () => void,
  ) => {
    waiting.add(id, bytes.length)
    socket.send(bytes, { binary }, () => {
      waiting.sent(id, bytes.length)
      sent?.()
    })
    if (waiting.total > maxWaitingBytes && !isCutting) cut(waiting.max!)
  }

  /** Ends a connection for the bytes that wait on it. One that is ending already has had its time to read why. */
  const cut = (id: string) => {
    const socket = sockets.get(id)!
    if (socket.readyState === WebSocket.OPEN) {
      const text = `${waiting.of(id)} bytes wait for this tab, the most of ${waiting.total} on this server, which holds at most ${maxWaitingBytes}. Connect again from a faster network.`
      log(`signaling: ${id} closed: ${text}`)
      isCutting = true
      end(socket, text)
      rendezvous.lost(id, text)
      isCutting = false
    } else {
      socket.terminate()
      waiting.forget(id)
    }
  }

  const relay: RelaySockets = {
    pass(id, bytes) {
      const socket = sockets.get(id)
      if (socket?.readyState !== WebSocket.OPEN) return
      write(id, socket, bytes, true, () => rendezvous.passed(id, bytes.length))
    },
    pause: (id) => sockets.get(id)?.pause(),
    resume: (id) => sockets.get(id)?.resume(),
  }

  const rendezvous = new Rendezvous(
    systemEnv,
    {
      send(id, message) {
        const socket = sockets.get(id)
        if (socket?.readyState !== WebSocket.OPEN) return
        if (socket.bufferedAmount > maxQueuedBytes) {
          log(
            `signaling: ${id} does not read its messages; disconnected at ${socket.bufferedAmount} queued bytes`,
          )
          socket.terminate()
          return
        }
        write(id, socket, Buffer.from(JSON.stringify(message)), false)
      },
      close(id, text) {
        const socket = sockets.get(id)
        if (socket) end(socket, text)
      },
      verify(authKey, room, nonce, proof) {
        return isHmac(proof, Buffer.from(authKey, 'hex'), proofText(room, nonce))
      },
      iceServers: (id) => iceServers?.(id, Date.now()) ?? [],
      ...(roomKey !== undefined && {
        isRoomKey: (room, nonce, proof) => isHmac(proof, roomKey, roomKeyText(room, nonce)),
      }),
      mayCreate: (room, authKey) =>
        roomOfAuthKey(authKey) === room && (options.mayCreate?.(room) ?? true),
      ...(options.relay && { relay }),
      asks: options.asks ?? false,
      event: onEvent,
    },
    options.limits,
  )

  const admission = (request: IncomingMessage, ip: string): [Refusal, string] | null => {
    const { origin, host } = request.headers
    const isTls = 'encrypted' in request.socket
    const own = `${isTls ? 'https' : 'http'}://${host}`
    const isOwn = origin === own && isOwnHost(host)
    if (origin === undefined || !(isOwn || allowedOrigins.has(origin))) {
      const expected = isOwnHost(host) ? own : "this machine's own name or address"
      return [
        'foreign-origin',
        `expected a page of ${expected}, got one of ${origin ?? 'no origin'}.`,
      ]
    }
    if (sockets.size >= maxConnections) {
      return ['too-many', `the server has ${sockets.size} connections and accepts no more.`]
    }
    if ((socketsOfIp.get(ip) ?? 0) >= maxConnectionsPerIp) {
      return ['too-many', `expected at most ${maxConnectionsPerIp} connections from ${ip}.`]
    }
    return null
  }

  const accept = (socket: WebSocket, request: IncomingMessage) => {
    const ip = clientAddress(request, trustsProxy)
    socket.on('error', (error) => log(`signaling: ${ip}: ${error.message}`))
    const refused = admission(request, ip)
    if (refused) {
      const [code, text] = refused
      log(`signaling: ${ip} refused: ${text}`)
      onEvent({ event: 'refused', address: ip, why: code })
      socket.send(JSON.stringify({ type: 'error', code, text, about: null, isFatal: true }))
      end(socket, text)
      return
    }
    const id = randomBytes(8).toString('hex')
    sockets.set(id, socket)
    socketsOfIp.set(ip, (socketsOfIp.get(ip) ?? 0) + 1)
    socket.on('message', (data: RawData, isBinary: boolean) => {
      if (isBinary) rendezvous.receiveBytes(id, data as Buffer)
      else rendezvous.receive(id, data.toString())
    })
    socket.on('close', (code, reason) => {
      sockets.delete(id)
      waiting.forget(id)
      const left = socketsOfIp.get(ip)! - 1
      if (left === 0) socketsOfIp.delete(ip)
      else socketsOfIp.set(ip, left)
      rendezvous.lost(
        id,
        `its signaling connection ended (${code}${reason.length ? `: ${reason}` : ''})`,
      )
    })
    rendezvous.open(id, ip)
  }

  const onUpgrade = (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    if (isClosed || request.url?.split('?')[0] !== signalPath) return
    wss.handleUpgrade(request, socket, head, accept)
  }
  server.on('upgrade', onUpgrade)

  const close = async () => {
    if (isClosed) return
    isClosed = true
    server.off('upgrade', onUpgrade)
    const open = [...wss.clients]
    const ended = open.map((socket) => new Promise((resolve) => socket.once('close', resolve)))
    rendezvous.shutDown()
    for (const socket of open) end(socket, 'the signaling server was stopped')
    await Promise.all(ended)
    wss.close()
  }
  server.once('close', () => void close())
  return {
    rendezvous,
    get status() {
      return { ...rendezvous.status, sockets: sockets.size, refused: refusedCount }
    },
    close,
  }
}
