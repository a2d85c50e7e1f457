import { createServer } from 'node:https'
import { signalPath } from '../../src/peer/room/messages.ts'
import { ownCertificate, ownNames } from '../certificate.ts'
import type { IceOptions } from '../ice/ice-source.ts'
import { listen } from '../listen.ts'
import { refuseOtherUpgrades } from '../refuse-upgrades.ts'
import { attachSignaling } from '../signal-server.ts'
import type { RunKeys } from './coordination/keys.ts'
import type { Leader } from './coordination/leader.ts'
import { launchersPath } from './coordination/messages.ts'
import { openDoor } from './coordination/server.ts'
import { type Pin, pinOf } from './pin.ts'

export interface Master {
  port: number
  pin: Pin
  /** Ends every connection and frees the port. */
  close(): Promise<void>
}

export interface MasterOptions {
  /** The name under which other machines know this one. */
  host: string
  port: number
  /** The last port that is tried, from `port` up. */
  lastPort: number
  keys: RunKeys
  /** Each start of the run has its own room; the signaling server takes no other. */
  maxRooms: number
  leader: Leader
  /** For the tabs of all machines. */
  ice: IceOptions | undefined
  /** True if tabs may send their data through the signaling server. */
  relay: boolean
}

/**
 * Opens what the launcher of rank 0 has for all machines, on one HTTPS port: the signaling server, and the door for the other launchers.
 *
 * errors: PortTaken; `config.invalid`; `file.unwritable` when there is no place for the certificate.
 */
export async function openMaster(options: MasterOptions): Promise<Master> {
  const { host, keys, maxRooms, leader, ice, relay } = options
  const certificate = await ownCertificate({ names: ownNames([host]) })
  const server = createServer({ cert: certificate.cert, key: certificate.key }, (_, response) => {
    response.writeHead(404, { 'Content-Type': 'text/plain; charset=utf-8' })
    response.end('this is a Tabring launcher, not a web page\n')
  })
  const port = await listen(server, { wanted: options.port, last: options.lastPort })
  const pin = pinOf(certificate.cert)
  const signaling = attachSignaling(server, {
    hosts: [host],
    relay,
    mayCreate: keys.roomCheck(maxRooms),
    ...(ice && { ice }),
  })
  const door = openDoor(server, { leader, keys, pin })
  refuseOtherUpgrades(server, [signalPath, launchersPath])
  return {
    port,
    pin,
    close: async () => {
      const closed = new Promise<void>((resolve) => server.close(() => resolve()))
      await Promise.all([door.close(), signaling.close()])
      server.closeAllConnections()
      await closed
    },
  }
}
