import { ChannelLink } from './channel.ts'
import { withLane } from './lanes.ts'
import type { Link } from './link.ts'
import { PortLink } from './port.ts'
import { PumpLink, pumpChannel } from './pump.ts'
import type { RelayPlace } from './relay-link.ts'

/** Transport that a page made for a link: transferred to a worker in the task that made it, or pumped by the page through `port`. */
export type MadeTransport =
  | { kind: 'channel'; channel: RTCDataChannel }
  | { kind: 'port'; port: MessagePort }
  | { kind: 'pump'; port: MessagePort }

/** A link's transport; one through the server the worker makes itself (`relayOver`). */
export type Transport = MadeTransport | { kind: 'relay'; relay: RelayPlace }

/** The form in which a channel goes to a worker: itself, or a port where the browser transfers no channels. */
export function channelTransport(channel: RTCDataChannel): MadeTransport {
  if (canTransferChannels()) return { kind: 'channel', channel }
  const { port1, port2 } = new MessageChannel()
  pumpChannel(channel, port1)
  return { kind: 'pump', port: port2 }
}

export function linkOver(transport: MadeTransport): Link {
  switch (transport.kind) {
    case 'channel':
      return new ChannelLink(transport.channel)
    case 'port':
      return new PortLink(transport.port)
    case 'pump':
      return new PumpLink(transport.port)
  }
}

/** The link that this transport makes: lane 0 replaces the one `before`, other lanes join it. */
export function withTransport(
  before: Link | undefined,
  transport: MadeTransport,
  lane: number,
): Link {
  const own = linkOver(transport)
  const link = withLane(before, own, lane)
  if (link === own) before?.close('replaced by another attempt')
  return link
}

/** Returns the objects that must be transferred. */
export function transferOf(transport: Transport): Transferable[] {
  switch (transport.kind) {
    case 'channel':
      return [transport.channel as unknown as Transferable]
    case 'relay':
      return []
    default:
      return [transport.port]
  }
}

let transfersChannels: boolean | null = null

/** Returns whether this browser transfers data channels (Safari 15, Chrome 130, Firefox 144); tried once, with a channel to nowhere. */
export function canTransferChannels(): boolean {
  if (transfersChannels !== null) return transfersChannels
  const pc = new RTCPeerConnection()
  const { port1 } = new MessageChannel()
  try {
    const channel = pc.createDataChannel('probe')
    port1.postMessage(channel, [channel as unknown as Transferable])
    transfersChannels = true
  } catch {
    transfersChannels = false // DataCloneError: the page pumps instead
  }
  port1.close()
  pc.close()
  return transfersChannels
}
