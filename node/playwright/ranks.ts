import type { Browser, BrowserContext, Page } from 'playwright'
import { type RelayChoice, relayChoices } from '../../src/distributed/rendezvous/plan-links.ts'
import { TabringError } from '../../src/util/errors.ts'
import { quoted } from '../../src/util/kind-of.ts'
import {
  checkChoice,
  checkFlag,
  checkNumber,
  checkOptions,
  isCount,
} from '../../src/util/options.ts'
import { ownContext } from '../chromium-tabs.ts'
import type { StreamName } from '../tabs.ts'
import { RankGroup } from './rank-group.ts'

/** Options of `ranks.open`. */
export interface OpenRanksOptions {
  /** When `open` resolves: once all ranks have joined with `initProcessGroup`, the default, or once their pages are loaded. */
  waitUntil?: 'joined' | 'loaded'
  /** True if all ranks share one browser context, with its storage, channels and workers. Default false: separate contexts, like separate machines. */
  shareContext?: boolean
  /** Value of `args` in the pages. */
  args?: readonly string[]
  /**
   * Value of RELAY in the pages, as `tabring run --relay` sets it. With `fallback`, ranks that WebRTC cannot link send through the signaling
   * server, which must have a relay. Default `off`.
   */
  relay?: RelayChoice
}

/** Opens pages as the ranks of a group. */
export interface Ranks {
  /**
   * Opens `worldSize` new ranks at `url` and returns their pages, in rank order. Relative addresses are resolved against `baseURL`.
   *
   * Each page has the environment of a rank (`env.RANK`, `env.WORLD_SIZE`) and a room of the signaling server on the page's own address, so
   * `initProcessGroup()` finds the other ranks. Console output is printed with the rank in front. An uncaught error or a crash in one page closes
   * all pages and fails the test, naming the rank.
   * errors: that of the first rank that fails; `config.invalid` for an invalid address.
   */
  open(worldSize: number, url?: string, options?: OpenRanksOptions): Promise<Page[]>
}

export interface RanksWorld {
  readonly browser: Browser
  readonly baseURL: string | undefined
  /** A line that a rank's console got, with the rank in front. */
  readonly onSay: (stream: StreamName, line: string) => void
}

const where = 'ranks.open'

/** The ranks of one test: groups of them, which end together. */
export class OpenRanks implements Ranks {
  readonly #groups: RankGroup[] = []
  readonly #contexts: BrowserContext[] = []

  constructor(private readonly world: RanksWorld) {}

  async open(worldSize: number, url = '/', options: OpenRanksOptions = {}): Promise<Page[]> {
    checkNumber(where, 'worldSize', worldSize, isCount, 'a whole number of at least 1')
    checkOptions(where, options, { waitUntil: true, shareContext: true, args: true, relay: true })
    checkChoice(where, 'waitUntil', options.waitUntil, ['joined', 'loaded'])
    checkFlag(where, 'shareContext', options.shareContext)
    checkChoice(where, 'relay', options.relay, relayChoices)
    const { waitUntil = 'joined', shareContext = false, args = [], relay = 'off' } = options
    const address = this.#address(url)
    const group = new RankGroup({
      worldSize,
      address,
      args,
      relay,
      onSay: this.world.onSay,
      end: (reason) => this.#closeContexts(reason),
    })
    this.#groups.push(group)
    const contexts = await this.#newContexts(shareContext ? 1 : worldSize)
    return group.open((rank) => contexts[rank % contexts.length].newPage(), waitUntil)
  }

  /** Closes all pages. What the ranks did wrong that `isKnown` does not know by its text is thrown. */
  async close(isTimedOut: boolean, isKnown: (text: string) => boolean): Promise<void> {
    for (const group of this.#groups) group.stop()
    await this.#closeContexts('the test has ended')
    const errors = this.#groups.map((group) => group.failure ?? (isTimedOut && group.missing()))
    for (const error of errors) if (error && !isKnown(error.message)) throw error
  }

  async #newContexts(count: number): Promise<BrowserContext[]> {
    const contexts = await Promise.all(
      Array.from({ length: count }, () => ownContext(this.world.browser)),
    )
    this.#contexts.push(...contexts)
    return contexts
  }

  async #closeContexts(reason: string): Promise<void> {
    // One may be gone already with a browser that has crashed.
    await Promise.allSettled(this.#contexts.splice(0).map((context) => context.close({ reason })))
  }

  #address(url: string): URL {
    const { baseURL } = this.world
    if (URL.canParse(url, baseURL)) return new URL(url, baseURL)
    throw new TabringError(
      'config.invalid',
      `${where}: expected an address, got ${quoted(url)}${baseURL ? '' : ' and no baseURL'}. Write http://localhost:4173/, or set use.baseURL in playwright.config.ts.`,
    )
  }
}
