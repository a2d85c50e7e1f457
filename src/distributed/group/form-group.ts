import type { GroupOptions } from '../../peer/collective/membership.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import type { Link } from '../../peer/link/link.ts'
import type { RoomAddress } from '../../peer/room/room-url.ts'
import { PrefixStore } from '../../peer/store/prefix-store.ts'
import type { Store } from '../../peer/store/store.ts'
import { WebSocketStore } from '../../peer/tab/web-socket-store.ts'
import { systemEnv } from '../../util/env.ts'
import { ArgumentTypeError, messageOf, PeerError, TabringError } from '../../util/errors.ts'
import { tell } from '../../util/log.ts'
import { checkChoice, checkOptions, checkTimeout } from '../../util/options.ts'
import { checkPlace, joinLinks } from '../link/join-links.ts'
import { type LinkMaker, linkMaker } from '../link/link-maker.ts'
import { makeLinks } from '../link/make-links.ts'
import { type Gathered, gatherRanks, leaveRound } from '../rendezvous/gather-ranks.ts'
import { type Meeting, meet } from '../rendezvous/init-method.ts'
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

export interface InitProcessGroupOptions {
  /**
   * How ranks are linked; `auto`, the default, takes ports where tabs share a browser, else WebRTC. `relay` goes through the signaling server, if it
   * relays. The same on all ranks.
   */
  backend?: Backend
  /**
   * With `auto`: whether ranks that WebRTC does not link may send through the signaling server, sealed end to end, if it relays: `off`, the default,
   * or `fallback`. `env://` gives it. The same on all ranks.
   */
  relay?: RelayChoice
  /** Where ranks meet: `wss://host/...#room=...&key=...`, `env://`, `broadcast:room`, `opfs:room`. Or give `store`, or `links`. */
  initMethod?: string
  /** A store that all ranks share; it stays open. */
  store?: Store
  /** Default: the order of coming; `env://` gives it. All ranks give one, or none does. */
  rank?: number
  /** `env://` gives it. */
  worldSize?: number
  /** Who is linked to whom: all to all up to 16 ranks (`mesh`), else each to the next (`ring`). The same on all ranks. */
  topology?: Topology
  /** Groups of other names share a store or a room without meeting. Default `default`. */
  groupName?: string
  /** ICE servers and policy for WebRTC; ICE servers by default those that the signaling server tells of. */
  rtc?: RTCConfiguration
  /** In a worker: what `lendPage()` made on its page. Good for one group. */
  page?: MessagePort
  /** A collective of which no byte moves for this long, nor of those that may go before it on its links, fails on every rank; default 30 s. */
  timeoutMs?: number
  /** How long all ranks may take to come; default `timeoutMs`, else 60 s. With `links`, how long the neighbours may; default 15 s. */
  joinTimeoutMs?: number
  /** Links that were made already, by rank: to the ring's neighbours at least. Then rank and worldSize are needed, and no store. */
  links?: Map<number, Link>
  /** With `links`: one membership of the group; ranks of different epochs do not talk. Default 0. */
  epoch?: number
  onspan?: GroupOptions['onspan']
  /** Ends the joining. */
  signal?: AbortSignal
}

const defaultJoinMs = 60_000
/** A neighbour may have links of its own to make that take all their attempts, before it says HELLO. units: ms. */
const formingMs = 30_000

/** See `formProcessGroup`. `signal`: ends the joining. */
export async function formGroup(
  options: InitProcessGroupOptions,
  signal: AbortSignal | undefined,
): Promise<ProcessGroup> {
  const where = 'initProcessGroup'
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
    const meeting: Meeting = options.store
      ? { store: options.store, rank: undefined, worldSize: undefined }
      : isAmongSpawned
        ? { ...spawned, store: await spawned.openStore() }
        : await meet(initMethod, maker)
    if (!options.store) opened = meeting.store
    const rank = options.rank ?? meeting.rank
    const worldSize = options.worldSize ?? meeting.worldSize
    checkPlace(where, rank, worldSize)
    if (backend === 'relay' && !meeting.relay) throw withoutRelay(where)
    const relay = backend === 'auto' ? (options.relay ?? meeting.relayChoice ?? 'off') : 'off'
    const store = new PrefixStore(`group/${groupName}`, meeting.store)
    const gathered = await gatherRanks({
      store,
      env: systemEnv,
      rank,
      terms: { worldSize: worldSize!, backend, topology, relay },
      place: {
        ...(await maker.place(backend === 'auto' || backend === 'broadcast')),
        hasRelay: meeting.relay !== undefined,
      },
      joinTimeoutMs: options.joinTimeoutMs ?? timeoutMs ?? defaultJoinMs,
      signal,
    })
    tell(1, 'group', () => `round ${gathered.round}: rank ${gathered.rank} of ${worldSize}`)
    try {
      const told = meeting.store instanceof WebSocketStore ? meeting.store : undefined
      const iceServers = async () => (await told?.iceServers()) ?? []
      const group = await linkRanks(
        { store, gathered, maker, iceServers, relay: meeting.relay, signal },
        { ...options, backend, relay },
      )
      group.backend = backend
      return group
    } finally {
      // It tidies: the group is there, or an error that says more.
      await leaveRound(store, gathered).catch((thrown) =>
        tell(1, 'group', () => `round ${gathered.round} was left untidy: ${messageOf(thrown)}`),
      )
    }
  } catch (thrown) {
    maker.close()
    throw thrown
  } finally {
    opened?.close()
  }
}

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
    tell(1, 'group', () => `rank ${rank}: linked to rank ${peer} by ${kind}`)
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
  nccl: 'GPUs of other tabs are reached by webrtc, or broadcast within one browser; auto takes the shortest way',
  gloo: "auto takes the shortest way that each pair of ranks has, as gloo's devices",
  ucc: 'auto takes the shortest way that each pair of ranks has',
  mpi: 'auto takes the shortest way, and tabring run starts the ranks',
}

function checkBackend(where: string, backend: Backend | undefined): void {
  // Also as newer torch writes it: cpu:gloo,cuda:nccl.
  const [, name = ''] = /(?:^|[:,])(nccl|gloo|ucc|mpi)\b/.exec(String(backend)) ?? []
  const isTorchs = Object.hasOwn(torchBackends, name)
  if (!isTorchs) checkChoice(where, 'backend', backend, backends)
  else
    throw new TabringError(
      'config.invalid',
      `${where}: expected a backend among ${backends.join(', ')}, got "${backend}": ${torchBackends[name]}. Leave it out, or choose one.`,
    )
}

function check(where: string, options: InitProcessGroupOptions): void {
  if (typeof options === 'string')
    throw new ArgumentTypeError(
      `${where}: expected an object with options, got the text ${JSON.stringify(options)}. Write ${where}({ backend: ${JSON.stringify(options)} }).`,
    )
  checkOptions(where, options, {
    backend: true,
    initMethod: true,
    store: true,
    rank: true,
    worldSize: true,
    topology: true,
    relay: true,
    groupName: true,
    rtc: true,
    page: true,
    timeoutMs: true,
    joinTimeoutMs: true,
    links: true,
    epoch: true,
    onspan: true,
    signal: true,
  })
  checkBackend(where, options.backend)
  checkChoice(where, 'topology', options.topology, topologies)
  checkChoice(where, 'relay', options.relay, relayChoices)
  checkTimeout(where, 'timeoutMs', options.timeoutMs)
  checkTimeout(where, 'joinTimeoutMs', options.joinTimeoutMs)
  const ways = (['links', 'store', 'initMethod'] as const).filter((name) => options[name])
  if (ways.length > 1) {
    throw new TabringError(
      'config.invalid',
      `${where}: expected one of links, store and initMethod, got ${ways.join(' and ')}. Leave the others out.`,
    )
  }
  checkRelay(where, options, ways[0])
}

/** errors: `config.invalid` where a relay is asked for and ranks do not meet at a server, or where another backend leaves it no part. */
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
      `${where}: expected the initMethod wss://host/signal#room=...&key=... or env:// for the backend "relay", whose data goes through that signaling server, got ${got}. Meet there, or take another backend.`,
    )
  }
  if (relay === 'fallback' && backend !== 'auto') {
    throw new TabringError(
      'config.invalid',
      `${where}: expected the backend "auto" for relay: "fallback", got "${backend}". Leave one of them out.`,
    )
  }
}

function withoutRelay(where: string): PeerError {
  return new PeerError(
    'signal.refused',
    `${where}: expected a signaling server with a relay for the backend "relay", got one without. Start it with --relay (npm start, tabring run), or the Vite plugin with relay: true; or take another backend.`,
  )
}
