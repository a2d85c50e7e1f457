import type { GroupOptions } from '../../peer/collective/membership.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import type { Link } from '../../peer/link/link.ts'
import type { RoomAddress } from '../../peer/room/room-url.ts'
import { PrefixStore } from '../../peer/store/prefix-store.ts'
import type { Store } from '../../peer/store/store.ts'
import { WebSocketStore } from '../../peer/tab/web-socket-store.ts'
import { systemEnv } from '../../util/env.ts'
import { ArgumentTypeError, messageOf, PeerError, TabringError } from '../../util/errors.ts'
import { formatRanks } from '../../util/format-ranks.ts'
import { injectedName } from '../../util/injected.ts'
import { isOf, isRecord, isSignal, quoted } from '../../util/kind-of.ts'
import { log } from '../../util/log.ts'
import { checkArgument, checkChoice, checkOptions, checkTimeout } from '../../util/options.ts'
import { checkPlace, joinLinks } from '../link/join-links.ts'
import { type LinkMaker, linkMaker } from '../link/link-maker.ts'
import { makeLinks } from '../link/make-links.ts'
import { type Gathered, gatherRanks, leaveRound } from '../rendezvous/gather-ranks.ts'
import { openRendezvous, type Rendezvous } from '../rendezvous/init-method.ts'
import {
  type Backend,
  backends,
  machinesOf,
  planLinks,
  type RelayChoice,
  relayChoices,
  type Topology,
  topologies,
} from '../rendezvous/plan-links.ts'
import { spawnedPlace } from '../spawn/spawned.ts'

/** Options of `initProcessGroup` and `createProcessGroup`. */
export interface InitProcessGroupOptions {
  /**
   * How ranks are linked. `auto`, the default, uses message ports between tabs of one browser, else WebRTC. `relay` goes through the signaling
   * server, if it has a relay. The same on all ranks.
   */
  backend?: Backend
  /**
   * With `auto`: whether ranks that WebRTC cannot link may send through the signaling server, encrypted end to end, if it has a relay: `off`,
   * the default, or `fallback`. `env://` provides it. The same on all ranks.
   */
  relay?: RelayChoice
  /** Where ranks find each other: `wss://host/...#key=...`, `env://`, `broadcast:room` or `opfs:room`. Alternatives: `store`, `links`. Default `env://`. */
  initMethod?: string
  /** A store that all ranks share. It stays open. */
  store?: Store
  /** This rank. Default: in order of arrival; `env://` provides it. Either all ranks pass one or none does. */
  rank?: number
  /** Number of ranks. `env://` provides it. */
  worldSize?: number
  /** Which ranks are linked: every pair (`mesh`), or each to the next (`ring`). Default: `mesh` up to 16 ranks. The same on all ranks. */
  topology?: Topology
  /** Groups with different names can share a store or a room. Default `default`. */
  groupName?: string
  /** Configuration of WebRTC. By default the ICE servers are those that the signaling server offers. */
  rtc?: RTCConfiguration
  /** In a worker: the port that `lendPage()` returned on its page. Usable for one group. */
  page?: MessagePort
  /** A collective fails on every rank if none of its bytes, nor of those ahead of it on its links, moves for this long. Default 30,000. units: ms. */
  timeoutMs?: number
  /** How long to wait for all ranks; default `timeoutMs`, else 60,000. With `links`: how long to wait for the neighbours; default 15,000. units: ms. */
  joinTimeoutMs?: number
  /** Existing links by rank, at least to the neighbours in the ring. Needs `rank` and `worldSize`, and no store. */
  links?: Map<number, Link>
  /** With `links`: number of this membership; ranks of different epochs do not exchange data. Default 0. */
  epoch?: number
  /** Called for each collective that succeeds, with its times. */
  onspan?: GroupOptions['onspan']
  /** Cancels the joining. */
  signal?: AbortSignal
}

const defaultJoinMs = 60_000
/** A neighbour may have other links to make that take all their attempts, before it says HELLO. units: ms. */
const formingMs = 30_000

/** See `createProcessGroup`. `signal`: ends the joining. */
export async function formGroup(
  options: InitProcessGroupOptions,
  signal: AbortSignal | undefined,
  where = 'initProcessGroup',
): Promise<ProcessGroup> {
  check(where, options)
  if (options.links) {
    const { joinTimeoutMs } = options
    return joinLinks({ ...options, links: options.links, helloMs: joinTimeoutMs })
  }
  const { initMethod = 'env://', topology = 'auto', groupName = 'default', timeoutMs } = options
  const spawned = spawnedPlace()
  const isAmongSpawned = spawned && !options.store && initMethod === 'env://'
  const { backend = isAmongSpawned ? 'local' : 'auto' } = options
  const maker = linkMaker(options.page ?? (await spawned?.lend()))
  let opened: Store | undefined
  try {
    const rendezvous: Rendezvous = options.store
      ? { store: options.store, rank: undefined, worldSize: undefined }
      : isAmongSpawned
        ? { ...spawned, store: await spawned.openStore() }
        : await openRendezvous(initMethod, maker, options)
    if (!options.store) opened = rendezvous.store
    const rank = options.rank ?? rendezvous.rank
    const worldSize = options.worldSize ?? rendezvous.worldSize
    checkPlace(where, rank, worldSize)
    if (backend === 'relay' && !rendezvous.relay) throw withoutRelay(where)
    const relay = backend === 'auto' ? (options.relay ?? rendezvous.relayChoice ?? 'off') : 'off'
    const store = new PrefixStore(`group/${groupName}`, rendezvous.store)
    const gathered = await gatherRanks({
      store,
      env: systemEnv,
      rank,
      terms: { worldSize: worldSize!, backend, topology, relay },
      place: {
        ...(await maker.place(backend === 'auto' || backend === 'broadcast')),
        hasRelay: rendezvous.relay !== undefined,
      },
      joinTimeoutMs: options.joinTimeoutMs ?? timeoutMs ?? defaultJoinMs,
      onwaiting: isOpenedByHand()
        ? (own, missing) => console.info(waitingText(own, missing, worldSize!, rank === undefined))
        : undefined,
      signal,
    })
    log(1, 'group', () => `round ${gathered.round}: rank ${gathered.rank} of ${worldSize}`)
    try {
      const socketStore = rendezvous.store instanceof WebSocketStore ? rendezvous.store : undefined
      const iceServers = async () => (await socketStore?.iceServers()) ?? []
      const group = await linkRanks(
        { store, gathered, maker, iceServers, relay: rendezvous.relay, signal },
        { ...options, backend, relay },
      )
      group.backend = backend
      return group
    } finally {
      // It tidies: the group is there, or an error that says more.
      await leaveRound(store, gathered).catch((thrown) =>
        log(1, 'group', () => `round ${gathered.round} was not cleaned up: ${messageOf(thrown)}`),
      )
    }
  } catch (thrown) {
    maker.close()
    throw thrown
  } finally {
    opened?.close()
  }
}

/** Returns whether a person opened this tab. A launcher starts all ranks itself, and prints what they say. */
const isOpenedByHand = (): boolean => 'document' in globalThis && !(injectedName in globalThis)

/** `isNumbered`: ranks are numbered as they come, so that one address serves all. */
export const waitingText = (
  rank: number,
  missing: readonly number[],
  worldSize: number,
  isNumbered: boolean,
): string =>
  `tabring: rank ${rank} waits for ${formatRanks(missing)} of ${worldSize}. ${isNumbered ? 'Open this address in another tab.' : `Start ${missing.length === 1 ? 'it' : 'them'} with the same room.`}`

interface Linking {
  store: Store
  gathered: Gathered
  maker: LinkMaker
  /** Those of the signaling server. */
  iceServers: () => Promise<readonly RTCIceServer[]>
  /** The room whose server relays, where it does. */
  relay: RoomAddress | undefined
  signal: AbortSignal | undefined
}

/** The group, once every rank has all its links. */
async function linkRanks(
  { store, gathered, maker, iceServers, relay, signal }: Linking,
  options: InitProcessGroupOptions,
): Promise<ProcessGroup> {
  const { backend = 'auto', topology = 'auto', timeoutMs, onspan } = options
  const { round: epoch, rank, members } = gathered
  const planned = planLinks(members, rank, backend, topology, options.relay)
  // Not before: ranks may have waited longer for each other than credentials live.
  const asks = !options.rtc?.iceServers && planned.some(({ way }) => way === 'webrtc')
  const rtc = asks ? { ...options.rtc, iceServers: [...(await iceServers())] } : options.rtc
  const made = await makeLinks({ store, gathered, planned, maker, rtc, relay, signal })
  const { links, failed } = made
  for (const [peer, { kind }] of links)
    log(1, 'group', () => `rank ${rank}: linked to rank ${peer} by ${kind}`)
  let group: ProcessGroup | undefined
  try {
    group = await joinLinks({
      ...{ rank, worldSize: members.length, epoch, links, timeoutMs, onspan, failed },
      machines: machinesOf(members),
      helloMs: formingMs,
      onleft: () => maker.close(),
    })
    // Everyone has everyone, not this rank alone.
    await Promise.race([
      group.barrier({ label: 'initProcessGroup', deadlineMs: formingMs }),
      failed,
    ])
    return group
  } catch (thrown) {
    group?.destroy('the group was not formed')
    throw thrown
  } finally {
    await made.settle()
  }
}

/** What stands for torch's backends here. */
const torchBackends: Readonly<Record<string, string>> = {
  nccl: 'webrtc reaches the GPUs of other tabs, broadcast those of one browser; auto chooses the shortest path',
  gloo: 'auto chooses the shortest path for each pair of ranks',
  ucc: 'auto chooses the shortest path for each pair of ranks',
  mpi: 'auto chooses the shortest path, and tabring run starts the ranks',
}

function checkBackend(where: string, backend: Backend | undefined): void {
  // Also as newer torch writes it: cpu:gloo,cuda:nccl.
  const [, name = ''] = /(?:^|[:,])(nccl|gloo|ucc|mpi)\b/.exec(String(backend)) ?? []
  const isTorchs = Object.hasOwn(torchBackends, name)
  if (!isTorchs) checkChoice(where, 'backend', backend, backends)
  else
    throw new TabringError(
      'config.invalid',
      `${where}: backend must be one of ${backends.join(', ')}, got ${quoted(backend)}: ${torchBackends[name]}. Omit it, or choose one.`,
    )
}

function check(where: string, options: InitProcessGroupOptions): void {
  if (typeof options === 'string')
    throw new ArgumentTypeError(
      `${where}: options must be an object, got the text ${quoted(options)}. Write ${where}({ backend: ${quoted(options)} }).`,
    )
  checkOptions(where, options, {
    backend: 'text',
    initMethod: 'text',
    store: true,
    rank: true,
    worldSize: true,
    topology: true,
    relay: true,
    groupName: 'text',
    rtc: 'object',
    page: true,
    timeoutMs: true,
    joinTimeoutMs: true,
    links: true,
    epoch: 'number',
    onspan: 'function',
    signal: true,
  })
  const { links, page, signal, store } = options
  const isStore = (store ?? undefined) === undefined || (isRecord(store) && 'compareSet' in store)
  checkArgument(where, 'store', store, isStore, 'a store')
  const isPort = page === undefined || page === null || isOf(page, MessagePort)
  checkArgument(where, 'page', page, isPort, 'the MessagePort that lendPage() returns')
  checkArgument(where, 'signal', signal, isSignal(signal), 'an AbortSignal')
  const areLinks = links === undefined || isOf(links, Map)
  checkArgument(where, 'links', links, areLinks, 'a Map of links by rank')
  checkBackend(where, options.backend)
  checkChoice(where, 'topology', options.topology, topologies)
  checkChoice(where, 'relay', options.relay, relayChoices)
  checkTimeout(where, 'timeoutMs', options.timeoutMs)
  checkTimeout(where, 'joinTimeoutMs', options.joinTimeoutMs)
  const ways = (['links', 'store', 'initMethod'] as const).filter((name) => options[name])
  if (ways.length > 1) {
    throw new TabringError(
      'config.invalid',
      `${where}: expected only one of links, store and initMethod, got ${ways.join(' and ')}. Omit the others.`,
    )
  }
  checkRelay(where, options, ways[0])
}

/** errors: `config.invalid` where a relay is asked for and the rendezvous is not at a server, or where another backend leaves it no part. */
function checkRelay(
  where: string,
  { backend = 'auto', relay, initMethod = 'env://' }: InitProcessGroupOptions,
  way: 'links' | 'store' | 'initMethod' | undefined,
): void {
  const isServer = (way ?? 'initMethod') === 'initMethod' && /^(env|wss?|https?):/.test(initMethod)
  const got = way === 'initMethod' ? initMethod.replace(/#.*/, '') : `the option ${way}`
  if (backend === 'relay' && !isServer) {
    throw new TabringError(
      'config.invalid',
      `${where}: backend "relay" sends data through the signaling server, so it needs initMethod wss://host/signal#key=... or env://, got ${got}. Use one of these, or another backend.`,
    )
  }
  if (relay === 'fallback' && backend !== 'auto') {
    throw new TabringError(
      'config.invalid',
      `${where}: relay: "fallback" needs backend "auto", got ${quoted(backend)}. Omit one of them.`,
    )
  }
}

function withoutRelay(where: string): PeerError {
  return new PeerError(
    'signal.refused',
    `${where}: backend "relay" needs a signaling server with a relay, and this one has none. Start it with --relay (npm start, tabring run), or the Vite plugin with relay: true; or use another backend.`,
  )
}
