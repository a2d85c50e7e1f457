import { ChannelLink } from '../../src/peer/link/channel.ts'
import type { Link } from '../../src/peer/link/link.ts'
import { PortLink } from '../../src/peer/link/port.ts'
import { PumpLink } from '../../src/peer/link/pump.ts'
import { Session } from '../../src/peer/session/session.ts'
import { systemEnv } from '../../src/util/env.ts'

/**
 * The far end of a link, in a worker. `echo` sends every message back; `sink` is rank 1 of a session that stands still
 * for `blockMs` at the first data and then consumes everything.
 */
export type FarEnd = { role: 'echo' } | { role: 'sink'; blockMs: number }
export type FarTransport =
  | { channel: RTCDataChannel }
  | { port: MessagePort }
  | { pump: MessagePort }

self.onmessage = ({ data }: MessageEvent<FarEnd & FarTransport>) => {
  const link =
    'channel' in data
      ? new ChannelLink(data.channel)
      : 'port' in data
        ? new PortLink(data.port)
        : new PumpLink(data.pump)
  if (data.role === 'echo') echo(link)
  else sink(link, data.blockMs)
}

function echo(link: Link): void {
  // A message can come before the channel is open here; the answer waits for room.
  const waiting: Uint8Array<ArrayBuffer>[] = []
  const answer = () => {
    while (waiting.length > 0 && link.room() > 0) link.send(waiting.shift()!)
  }
  link.onmessage = (message) => {
    waiting.push(message)
    answer()
  }
  link.onroom = answer
  link.onend = (end) => self.postMessage({ end })
}

function sink(link: Link, blockMs: number): void {
  const session = new Session({ link, env: systemEnv, epoch: 1, rank: 1, peerRank: 0, size: 2 })
  let receivedBytes = 0
  let hasBlocked = false
  session.onframe = (header, message) => {
    if (!hasBlocked) {
      hasBlocked = true
      const untilMs = performance.now() + blockMs
      while (performance.now() < untilMs);
    }
    receivedBytes += header.length
    session.consumed(message.length)
  }
  session.onerror = (error) => self.postMessage({ error: error.message })
  session.onend = (end) => self.postMessage({ end, receivedBytes })
}
