import { parseRoomUrl, type RoomAddress } from '../../peer/room/room-url.ts'
import { formatFragment } from '../../peer/room/secret.ts'
import { OpfsStore } from '../../peer/store/opfs-store.ts'
import { PortStore } from '../../peer/store/port-store.ts'
import type { Store } from '../../peer/store/store.ts'
import { openStoreFor } from '../../peer/tab/open-store.ts'
import { systemEnv } from '../../util/env.ts'
import { PeerError, TabringError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import { env } from './env.ts'
import { type RelayChoice, relayChoices } from './plan-links.ts'

/** How long a store in this browser may take to answer at first. units: ms. */
const answerMs = 5_000

/** What an init method gives. */
export interface Rendezvous {
  store: Store
  rank: number | undefined
  worldSize: number | undefined
  /** The room of the rendezvous at the signaling server, if that relays links. */
  relay?: RoomAddress | undefined
  /** What the environment says of `auto`. */
  relayChoice?: RelayChoice | undefined
}

/** Opens stores of this browser: see LinkMaker. */
interface PortStores {
  openStore(room: string): Promise<MessagePort | null>
}

/**
 * Opens the store that an address names: `wss://host/...#key=...` (also ws, https, http), `env://`, `broadcast:room` or `opfs:room`.
 *
 * errors: `config.invalid` for another address, and where the platform has no such store; `signal.*` of the server.
 */
export async function openRendezvous(method: string, maker: PortStores): Promise<Rendezvous> {
  const where = 'initProcessGroup'
  if (typeof method !== 'string') throw badMethod(String(method))
  const [, scheme, room] = /^([a-z]+):(.*)$/s.exec(method) ?? []
  switch (scheme) {
    case 'ws':
    case 'wss':
    case 'http':
    case 'https':
      return { ...(await openRoom(method)), rank: undefined, worldSize: undefined }
    case 'env':
      if (room !== '//') throw badMethod(method)
      return {
        ...(await openRoom(environmentAddress())),
        rank: wholeOf('RANK'),
        worldSize: wholeOf('WORLD_SIZE'),
        relayChoice: Reflect.has(env, 'RELAY') ? relayChoiceOf(env.RELAY) : undefined,
      }
    case 'broadcast': {
      checkRoom(method, room)
      const port = await maker.openStore(room)
      if (port) return { store: await answering(port), rank: undefined, worldSize: undefined }
      throw new PeerError(
        'config.invalid',
        `${where}: ${method} needs a page in a browser with SharedWorker. In a worker, pass the option page (lendPage); otherwise use wss:// or opfs:.`,
      )
    }
    case 'opfs':
      checkRoom(method, room)
      return { store: await OpfsStore.open(room), rank: undefined, worldSize: undefined }
    case 'tcp':
      throw badMethod(method, 'A tab cannot listen: use a signaling server, wss://. ')
    case 'file':
      throw badMethod(method, 'A page cannot open such files: within one browser use opfs:room. ')
    default:
      throw badMethod(method)
  }
}

/** The store of a room, and its relay if it has one. */
async function openRoom(url: string): Promise<Pick<Rendezvous, 'store' | 'relay'>> {
  const store = await openStoreFor('initProcessGroup', url)
  return { store, relay: store.hasRelay ? parseRoomUrl('initProcessGroup', url) : undefined }
}

/** The store behind a port, if it is there: a SharedWorker of another version of this program may know none. */
async function answering(port: MessagePort): Promise<Store> {
  const store = new PortStore(port)
  let cancel!: () => void
  const late = new Promise<'late'>((resolve) => {
    cancel = systemEnv.after(answerMs, () => resolve('late'))
  })
  const first = await Promise.race([store.numKeys(), late])
  cancel()
  if (first !== 'late') return store
  store.close()
  throw new PeerError(
    'peer.timeout',
    `initProcessGroup: this browser's SharedWorker did not answer within ${answerMs} ms. Close all tabs of this site: one may run another version.`,
  )
}

function environmentAddress(): string {
  const server = Reflect.has(env, 'MASTER_URL')
    ? env.MASTER_URL
    : `${isHttps() ? 'wss' : 'ws'}://${env.MASTER_ADDR}:${env.MASTER_PORT}`
  return server.replace(/#.*/, '') + formatFragment({ key: env.ROOM_KEY })
}

/** Returns whether this page or worker came by HTTPS: browsers keep those from opening a connection that is not sealed. */
const isHttps = (): boolean =>
  (globalThis as { location?: { origin?: string } }).location?.origin?.startsWith('https:') ?? false

function wholeOf(name: 'RANK' | 'WORLD_SIZE'): number {
  const text = env[name]
  if (/^\d{1,6}$/.test(text)) return Number(text)
  throw new TabringError(
    'config.invalid',
    `initProcessGroup: expected a whole number in ${name}, got ${quoted(text)}. Correct it, or let tabring run set it.`,
  )
}

function relayChoiceOf(text: string): RelayChoice {
  const found = relayChoices.find((choice) => choice === text)
  if (found) return found
  throw new TabringError(
    'config.invalid',
    `initProcessGroup: expected ${relayChoices.join(' or ')} in RELAY, got ${quoted(text)}. Correct it, or let tabring run set it.`,
  )
}

function checkRoom(method: string, room: string): void {
  if (/^[\w.-]{1,100}$/.test(room)) return
  throw new TabringError(
    'config.invalid',
    `initProcessGroup: expected a room name of 1 to 100 letters, digits, ".", "_" and "-", got ${quoted(method)}. Choose another name.`,
  )
}

function badMethod(method: string, why = ''): TabringError {
  // Without what stands behind the #: it may be a secret.
  return new TabringError(
    'config.invalid',
    `initProcessGroup: expected an initMethod like wss://host/signal#key=..., env://, broadcast:room or opfs:room, got ${quoted(method.replace(/#.*/, ''))}. ${why}Correct it, or pass a store.`,
  )
}
