import { parseRoomUrl, type RoomAddress } from '../../peer/room/room-url.ts'
import { formatFragment, isKey } from '../../peer/room/secret.ts'
import { OpfsStore } from '../../peer/store/opfs-store.ts'
import { PortStore } from '../../peer/store/port-store.ts'
import type { Store } from '../../peer/store/store.ts'
import { openStoreFor } from '../../peer/tab/open-store.ts'
import { systemEnv } from '../../util/env.ts'
import { PeerError, TabringError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import { env, type VariableName } from './env.ts'
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
 * `given`: what the caller passes in place of the environment's.
 * errors: `config.invalid` for another address, and where the platform has no such store; `signal.*` of the server.
 */
export async function openRendezvous(
  method: string,
  maker: PortStores,
  given: { readonly rank?: number; readonly worldSize?: number },
): Promise<Rendezvous> {
  const where = 'initProcessGroup'
  if (typeof method !== 'string') throw badMethod(String(method))
  const [, scheme, room] = /^([a-z]+):(.*)$/s.exec(method) ?? []
  switch (scheme) {
    case 'ws':
    case 'wss':
    case 'http':
    case 'https':
      return { ...(await openRoom(method)), rank: undefined, worldSize: undefined }
    case 'env': {
      if (room !== '//') throw badMethod(method)
      // Before anything is opened: a wrong one must not look like a server that is away.
      const address = environmentAddress()
      const place = {
        rank: wholeOf('RANK'),
        worldSize: wholeOf('WORLD_SIZE', 1),
        relayChoice: Reflect.has(env, 'RELAY') ? relayChoiceOf(env.RELAY) : undefined,
      }
      const size = given.worldSize ?? place.worldSize
      if (given.rank === undefined && place.rank >= size)
        throw badVariable(`a whole number from 0 to ${size - 1}`, 'RANK', quoted(env.RANK))
      return { ...(await openRoom(address)), ...place }
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
  const server = Reflect.has(env, 'MASTER_URL') ? masterUrl() : masterAddress()
  const key = env.ROOM_KEY
  if (!isKey(key))
    // A secret, of which no part may be shown.
    throw badVariable('43 letters, digits, "-" and "_"', 'ROOM_KEY', `${key.length} characters`)
  return server + formatFragment({ key })
}

function masterUrl(): string {
  const url = env.MASTER_URL.replace(/#.*/, '')
  if (/^(?:ws|http)s?:/.test(url) && URL.canParse(url)) return url
  throw badVariable('an address such as wss://host/signal', 'MASTER_URL', quoted(url))
}

function masterAddress(): string {
  const { MASTER_ADDR: host, MASTER_PORT: port } = env
  const name = /^[\da-f.]*:[\da-f.]*:[\da-f:.]*$/i.test(host) ? `[${host}]` : host
  const scheme = isHttps() ? 'wss' : 'ws'
  if (!/^(?:[^\s/?#@:\\[\]]+|\[[\da-f:.]+\])$/i.test(name) || !URL.canParse(`${scheme}://${name}`))
    throw badVariable(
      'a host name or an IP address, without a scheme and a port,',
      'MASTER_ADDR',
      quoted(host),
    )
  if (!/^\d{1,5}$/.test(port) || Number(port) < 1 || Number(port) > 65_535)
    throw badVariable('a whole number from 1 to 65535', 'MASTER_PORT', quoted(port))
  return `${scheme}://${name}:${port}`
}

/** Returns whether this page or worker came by HTTPS: browsers keep those from opening a connection that is not sealed. */
const isHttps = (): boolean =>
  (globalThis as { location?: { origin?: string } }).location?.origin?.startsWith('https:') ?? false

function wholeOf(name: 'RANK' | 'WORLD_SIZE', min = 0): number {
  const text = env[name]
  if (/^\d{1,6}$/.test(text) && Number(text) >= min) return Number(text)
  throw badVariable(`a whole number, at least ${min},`, name, quoted(text))
}

const badVariable = (expected: string, name: VariableName, got: string) =>
  new TabringError(
    'config.invalid',
    `initProcessGroup: expected ${expected} in ${name}, got ${got}. Correct it, or let tabring run set it.`,
  )

function relayChoiceOf(text: string): RelayChoice {
  const found = relayChoices.find((choice) => choice === text)
  if (found) return found
  throw badVariable(relayChoices.join(' or '), 'RELAY', quoted(text))
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
