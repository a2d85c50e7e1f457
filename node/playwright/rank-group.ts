import type { Page } from 'playwright'
import { type Joined, joinedName } from '../../src/distributed/launcher/joined.ts'
import type { RankVariables } from '../../src/distributed/rendezvous/env.ts'
import type { RelayChoice } from '../../src/distributed/rendezvous/plan-links.ts'
import { newRoomUrl, parseRoomUrl } from '../../src/peer/room/room-url.ts'
import { messageOf, PeerError } from '../../src/util/errors.ts'
import { type InjectedEnvironment, injectedName } from '../../src/util/injected.ts'
import { preparePage } from '../chromium-tabs.ts'
import { roomOf } from '../room-of.ts'
import { printed, type StreamName } from '../tabs.ts'

/** Facts that all ranks of a group have. */
export interface RankPlace {
  worldSize: number
  address: URL
  args: readonly string[]
  relay: RelayChoice
}

export interface RankGroupOptions extends RankPlace {
  onSay: (stream: StreamName, line: string) => void
  /** Closes the pages; a caller that waits for one gets the reason. */
  end: (reason: string) => Promise<void>
}

/** Ranks that were opened together: their room, who of them has joined, and the first that failed. */
export class RankGroup {
  /** The first error of a rank. */
  failure: PeerError | undefined
  readonly #joined = new Set<number>()
  #isStopped = false
  #isWaiting = false
  #allJoined!: () => void
  readonly #joining = new Promise<void>((resolve) => {
    this.#allJoined = resolve
  })
  #reject!: (error: PeerError) => void
  readonly #failing = new Promise<never>((_, reject) => {
    this.#reject = reject
  })
  readonly #room: ReturnType<typeof parseRoomUrl>

  constructor(private readonly options: RankGroupOptions) {
    this.#room = parseRoomUrl('ranks.open', newRoomUrl(options.address))
    // Those who wait for it hear of it; there may be nobody.
    this.#failing.catch(() => undefined)
  }

  /** Opens the pages, and resolves once all are loaded or, by `waitUntil`, joined. errors: that of the first rank that fails. */
  async open(newPage: (rank: number) => Promise<Page>, waitUntil: 'joined' | 'loaded') {
    const ranks = Array.from({ length: this.options.worldSize }, (_, rank) => rank)
    const pages = await Promise.all(ranks.map((rank) => this.#prepare(rank, newPage)))
    const opened = Promise.all(pages.map((page, rank) => this.#load(page, rank)))
    await Promise.race([opened, this.#failing])
    if (waitUntil === 'joined') {
      this.#isWaiting = true
      await Promise.race([this.#joining, this.#failing])
      this.#isWaiting = false
    }
    return pages
  }

  /** Hears no more: what ranks do when others are closed is not their fault. */
  stop(): void {
    this.#isStopped = true
  }

  /** The error of ranks that were waited for in vain, if there are any. */
  missing(): PeerError | undefined {
    const { worldSize } = this.options
    const missing = Array.from({ length: worldSize }, (_, rank) => rank).filter(
      (rank) => !this.#joined.has(rank),
    )
    if (!this.#isWaiting || missing.length === 0) return undefined
    return new PeerError(
      'peer.timeout',
      `ranks.open: ${missing.length === 1 ? 'rank' : 'ranks'} ${missing.join(', ')} of ${worldSize} did not join before the test timed out. Call initProcessGroup() when the page is loaded, or open with { waitUntil: 'loaded' }.`,
    )
  }

  async #prepare(rank: number, newPage: (rank: number) => Promise<Page>): Promise<Page> {
    const page = await newPage(rank)
    await preparePage(page, {
      constants: { [injectedName]: environmentOf(rank, this.#room, this.options) },
      functions: { [joinedName]: (json: string) => this.#take(JSON.parse(json)) },
      forWorkers: [joinedName],
      onError: (error) => this.#fail(rank, error.stack || messageOf(error)),
      onCrash: (text) => this.#fail(rank, text),
      onConsole: (...call) => {
        const [stream, text] = printed(...call) ?? []
        if (stream) this.options.onSay(stream, text!.replace(/^/gm, `[${rank}]: `))
      },
    })
    return page
  }

  async #load(page: Page, rank: number): Promise<void> {
    const { href } = this.options.address
    const response = await page.goto(href)
    if (response && !response.ok()) {
      this.#fail(rank, `could not load the page ${href}, got status ${response.status()}.`)
    }
  }

  #take({ rank }: Joined): void {
    this.#joined.add(rank)
    if (this.#joined.size === this.options.worldSize) this.#allJoined()
  }

  #fail(rank: number, text: string): void {
    if (this.#isStopped) return
    this.#isStopped = true
    this.failure = new PeerError('peer.lost', `rank ${rank} failed first:\n${text}`)
    this.#reject(this.failure)
    void this.options.end(this.failure.message)
  }
}

/** What a rank's page has as `env` and `args`. */
export function environmentOf(
  rank: number,
  { server, link }: ReturnType<typeof parseRoomUrl>,
  { worldSize, address, args, relay }: RankPlace,
): InjectedEnvironment {
  const variables: RankVariables & Record<string, string> = {
    // What these tests are for, on a software adapter too.
    TABRING_DEVICE: 'webgpu',
    RANK: String(rank),
    LOCAL_RANK: String(rank),
    WORLD_SIZE: String(worldSize),
    LOCAL_WORLD_SIZE: String(worldSize),
    GROUP_RANK: '0',
    NODE_RANK: '0',
    MASTER_ADDR: address.hostname,
    MASTER_PORT: address.port || (address.protocol === 'https:' ? '443' : '80'),
    MASTER_URL: server,
    ROOM_ID: roomOf(Buffer.from(link.key, 'base64url')),
    ROOM_KEY: link.key,
    RELAY: relay,
    RUN_ID: 'playwright',
    RESTART_COUNT: '0',
    MAX_RESTARTS: '0',
  }
  return { variables, args }
}
