import { ChannelLink } from './channel.ts'
import type { Link } from './link.ts'
import { PortLink } from './port.ts'
import { PumpLink, pumpChannel } from './pump.ts'
import { RelayLink, type RelayLinkOptions } from './relay/relay-link.ts'
import type { BinarySocketConstructor } from './room-options.ts'

/** A link's transport, transferred to a worker in the task that made it, or pumped by the page through `port`; or what a worker makes itself. */
export type Transport =
  | { kind: 'channel'; channel: RTCDataChannel }
  | { kind: 'port'; port: MessagePort }
  | { kind: 'pump'; port: MessagePort }
  | { kind: 'relay'; relay: Pick<RelayLinkOptions, 'address' | 'channel' | 'side' | 'peerName'> }

/** The form in which a channel goes to a worker: itself, or a port where the browser transfers no channels. */
export function channelTransport(channel: RTCDataChannel): Transport {
  if (canTransferChannels()) return { kind: 'channel', channel }
  const { port1, port2 } = new MessageChannel()
  pumpChannel(channel, port1)
  return { kind: 'pump', port: port2 }
}

export function linkOver(transport: Transport): Link {
  switch (transport.kind) {
    case 'channel':
      return new ChannelLink(transport.channel)
    case 'port':
      return new PortLink(transport.port)
    case 'pump':
      return new PumpLink(transport.port)
    case 'relay':
      return new RelayLink({
        ...transport.relay,
        WebSocket: globalThis.WebSocket as BinarySocketConstructor,
      })
  }
}

/** What must be transferred. */
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

/** Resolves when a link that its own side makes is up; the others are when their page says so. errors: see `RelayLink.opened`. */
export async function untilUp(link: Link): Promise<void> {
  if (link instanceof RelayLink) await link.opened
}

let transfersChannels: boolean | null = null

/** Whether this browser transfers data channels (Safari 15, Chrome 130, Firefox 144); tried once, with a channel to nowhere. */
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
