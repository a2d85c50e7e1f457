import { randomBytes } from 'node:crypto'
import type { IncomingMessage, Server } from 'node:http'
import type { Duplex } from 'node:stream'
import { type RawData, WebSocket, WebSocketServer } from 'ws'
import { type Parsed, parseMessage } from '../../../src/peer/room/messages.ts'
import type { Pin } from '../pin.ts'
import type { RunKeys } from './keys.ts'
import type { LauncherHandle, Leader } from './leader.ts'
import {
  coordinationVersion,
  type FromMember,
  fromMemberSchema,
  type Hello,
  launchersPath,
  type Order,
  type ToMember,
} from './messages.ts'

/** Largest message, a failure with its stack. units: bytes. */
const messageBytes = 128 * 1024
/** From connecting to a valid hello. */
const helloMs = 10_000
const pingMs = 5_000
const closeTimeoutMs = 2_000
/** A stranger's sockets must not pile up. */
const maxSockets = 2_000

export interface DoorOptions {
  leader: Leader
  keys: RunKeys
  /** Of the server's own certificate. */
  pin: Pin
}

/**
 * Lets the launchers of other machines in, at `launchersPath` of the leader's HTTPS server: those that prove the run's key, over the certificate
 * that the server has.
 *
 * Browsers are kept out: they send an origin, launchers send none. `close` tells nobody anything: the leader has.
 */
export function openDoor(
  server: Server,
  { leader, keys, pin }: DoorOptions,
): { close(): Promise<void> } {
  const wss = new WebSocketServer({
    noServer: true,
    perMessageDeflate: false,
    maxPayload: messageBytes,
  })

  const welcome = (
    socket: WebSocket,
    { version: _, proof, nonce, runId, member, launchers }: Hello,
    challenge: string,
  ): { handle: LauncherHandle } | { refusal: string; isStranger: boolean } => {
    const nonces = [nonce, challenge] as const
    if (!keys.isProof(proof, 'launcher', nonces, pin)) {
      const refusal =
        runId === keys.runId
          ? 'the key does not match. Use the key and the fingerprint that the first launcher printed'
          : 'the run or its key does not match. Compare --rdzv-id and the key'
      return { refusal, isStranger: true }
    }
    const send = (message: ToMember) => {
      if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message))
    }
    // The last launcher's coming starts the run within `join`: the welcome goes before that order.
    const early: Order[] = []
    let isWelcome = false
    const answer = leader.join(member, launchers, (order) => {
      if (isWelcome) send(order)
      else early.push(order)
    })
    if ('refusal' in answer) return { ...answer, isStranger: false }
    send({ type: 'welcome', proof: keys.prove('leader', nonces, pin) })
    isWelcome = true
    for (const order of early) send(order)
    return answer
  }

  const accept = (socket: WebSocket) => {
    const challenge = randomBytes(32).toString('hex')
    let handle: LauncherHandle | null = null
    let isHeard = true
    const refuse = (text: string, isStranger = false) => {
      socket.send(JSON.stringify({ type: 'refused', text, isStranger } satisfies ToMember))
      end(socket)
    }
    const late = setTimeout(() => refuse(`no hello arrived within ${helloMs / 1000} s`), helloMs)
    const beat = setInterval(() => {
      if (!isHeard) socket.terminate()
      isHeard = false
      socket.ping()
    }, pingMs)
    socket.on('pong', () => {
      isHeard = true
    })
    socket.on('error', () => undefined) // a close always follows
    socket.on('message', (data: RawData) => {
      isHeard = true
      const parsed: Parsed<FromMember> = parseMessage(fromMemberSchema, String(data))
      if (!parsed.ok) {
        refuse(
          `it does not understand the message (${parsed.text}). Use the same version everywhere`,
        )
      } else if (parsed.message.type !== 'hello') handle?.receive(parsed.message)
      else if (!handle) {
        clearTimeout(late)
        const answer = welcome(socket, parsed.message, challenge)
        if ('refusal' in answer) refuse(answer.refusal, answer.isStranger)
        else handle = answer.handle
      }
    })
    socket.on('close', (code, reason) => {
      clearTimeout(late)
      clearInterval(beat)
      handle?.lost(String(reason) || `connection closed, ${code}`)
    })
    const hello: ToMember = { type: 'challenge', version: coordinationVersion, nonce: challenge }
    socket.send(JSON.stringify(hello))
  }

  const onUpgrade = (request: IncomingMessage, socket: Duplex, head: Buffer) => {
    if (request.url !== launchersPath) return
    if (request.headers.origin !== undefined || wss.clients.size >= maxSockets) socket.destroy()
    else wss.handleUpgrade(request, socket, head, accept)
  }
  server.on('upgrade', onUpgrade)

  return {
    close: async () => {
      server.off('upgrade', onUpgrade)
      await Promise.all([...wss.clients].map(end))
      wss.close()
    },
  }
}

/** Closes a socket behind what was sent; resolves when it is closed. */
function end(socket: WebSocket): Promise<void> {
  if (socket.readyState === WebSocket.CLOSED) return Promise.resolve()
  return new Promise((resolve) => {
    const timer = setTimeout(() => socket.terminate(), closeTimeoutMs)
    socket.once('close', () => {
      clearTimeout(timer)
      resolve()
    })
    socket.close(1000)
  })
}
