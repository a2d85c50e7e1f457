import { createHmac } from 'node:crypto'
import { once } from 'node:events'
import { WebSocket } from 'ws'
import type { SignalServer } from '../../node/signal-server.ts'
import { protocolVersion } from '../../src/peer/room/messages.ts'
import type { RoomAddress } from '../../src/peer/room/room-url.ts'
import { proofText, RoomSecret } from '../../src/peer/room/secret.ts'

/** What a server does with the binary messages of a relay's end, by their number from 0: passes on what is returned. */
export type Tamper = (number: number, bytes: Buffer) => readonly Buffer[]

/** Stands in the server, where it handles messages. Returns all that it handles from now on; `tampers` are by side, for links that come from now on. */
export function tapServer({ rendezvous }: SignalServer, tampers: readonly Tamper[] = []) {
  const handled: Buffer[] = []
  const ends = new Map<string, { side: number; count: number }>()
  const { receive, receiveBytes } = rendezvous
  rendezvous.receive = (id, raw) => {
    handled.push(Buffer.from(raw))
    const message = JSON.parse(raw)
    if (message.type === 'relay') ends.set(id, { side: message.side, count: 0 })
    receive.call(rendezvous, id, raw)
  }
  rendezvous.receiveBytes = (id, bytes) => {
    handled.push(Buffer.from(bytes))
    const end = ends.get(id)
    const tamper = end && tampers[end.side]
    const passed = tamper ? tamper(end.count++, Buffer.from(bytes)) : [bytes]
    for (const one of passed) receiveBytes.call(rendezvous, id, one)
  }
  return {
    handled,
    untap: () => {
      Object.assign(rendezvous, { receive, receiveBytes })
    },
  }
}

/** One end of a relayed channel by hand, which keeps to no rule: its socket, once the server has taken it, and what ends it. */
export async function rawEnd(
  { server, link }: RoomAddress,
  origin: string,
  asked: { channel: string; side: 0 | 1; room?: string },
) {
  const socket = new WebSocket(server, { origin })
  const texts: { type: string; code?: string; text?: string; nonce?: string }[] = []
  const closed = once(socket, 'close').then(([code, reason]) => `${code}: ${reason}`)
  const relayed = new Promise<void>((resolve) => {
    socket.on('message', (data, isBinary) => {
      if (isBinary) return
      const message = JSON.parse(String(data))
      texts.push(message)
      if (message.type === 'relayed') resolve()
      if (message.type === 'ping') socket.send('{"type":"pong"}')
    })
  })
  await once(socket, 'message')
  const { channel, side } = asked
  const { room: ownRoom, authKey } = await RoomSecret.derive(link)
  const { room = ownRoom } = asked
  const proof = createHmac('sha256', Buffer.from(authKey, 'hex'))
    .update(proofText(room, texts[0].nonce!))
    .digest('hex')
  socket.send(
    JSON.stringify({ type: 'relay', version: protocolVersion, room, proof, channel, side }),
  )
  return { socket, texts, closed, relayed }
}
