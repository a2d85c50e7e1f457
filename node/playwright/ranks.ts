import type { Browser, BrowserContext, Page } from 'playwright'
import { type RelayChoice, relayChoices } from '../../src/distributed/rendezvous/plan-links.ts'
import { TabringError } from '../../src/util/errors.ts'
import {
  checkChoice,
  checkFlag,
  checkNumber,
  checkOptions,
  isCount,
} from '../../src/util/options.ts'
import { iceWithoutRoutePermissions } from '../chromium.ts'
import { RankGroup } from './rank-group.ts'

export interface OpenRanksOptions {
  /** When the pages are given: once all ranks have joined by `initProcessGroup`, the default, or once their pages are loaded. */
  until?: 'joined' | 'loaded'
  /** Tabs of one browser context, with storage, channels and workers in common. Default false: each in its own, as on a machine of its own. */
  sharesContext?: boolean
  /** What `args` is in the pages. */
  args?: readonly string[]
  /**
   * What RELAY is in the pages, as `tabring run --relay` sets it: with `fallback` ranks that WebRTC does not link go through the signaling
   * server, which must relay. Default `off`.
   */
  relay?: RelayChoice
}

/** Opens pages that are ranks of one group. */
export interface Ranks {
  /**
   * Returns the pages of `worldSize` new ranks at `url`, in the order of ranks; relative addresses are to `baseURL`.
   *
   * Each page has a rank's environment (`env.RANK`, `env.WORLD_SIZE`), with a room of the signaling server that stands beside the page, so that
   * `initProcessGroup()` finds the others. What it writes to the console comes out with its rank in front. An error that nobody catches in one,
   * or a crash, closes all and fails the test by rank.
   * errors: that of the first rank that fails; `config.invalid` for an address that is none.
   */
  open(worldSize: number, url?: string, options?: OpenRanksOptions): Promise<Page[]>
}

export interface RanksWorld {
  readonly browser: Browser
  readonly baseURL: string | undefined
  /** A line that a rank's console got, with the rank in front. */
  readonly onSay: (stream: 'stdout' | 'stderr', line: string) => void
}

const where = 'ranks.open'

/** The ranks of one test: groups of them, which end together. */
export class OpenRanks implements Ranks {
  readonly #groups: RankGroup[] = []
  readonly #contexts: BrowserContext[] = []

  constructor(private readonly world: RanksWorld) {}

  async open(worldSize: number, url = '/', options: OpenRanksOptions = {}): Promise<Page[]> {
    checkNumber(where, 'worldSize', worldSize, isCount, 'a whole number of at least 1')
    checkOptions(where, options, { until: true, sharesContext: true, args: true, relay: true })
    checkChoice(where, 'until', options.until, ['joined', 'loaded'])
    checkFlag(where, 'sharesContext', options.sharesContext)
    checkChoice(where, 'relay', options.relay, relayChoices)
    const { until = 'joined', sharesContext = false, args = [], relay = 'off' } = options
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
    const contexts = await this.#newContexts(sharesContext ? 1 : worldSize)
    return group.open((rank) => contexts[rank % contexts.length].newPage(), until)
  }

  /** Closes all pages. What the ranks did wrong that `isKnown` does not know by its text is thrown. */
  async close(isTimedOut: boolean, isKnown: (text: string) => boolean): Promise<void> {
    for (const group of this.#groups) group.stop()
    await this.#closeContexts('the test has ended')
    const errors = this.#groups.map((group) => group.failure ?? (isTimedOut && group.missing()))
    for (const error of errors) if (error && !isKnown(error.message)) throw error
  }

  async #newContexts(count: number): Promise<BrowserContext[]> {
    const opening = Array.from({ length: count }, () => this.world.browser.newContext())
    const contexts = await Promise.all(opening)
    this.#contexts.push(...contexts)
    await Promise.all(
      contexts.map((context) => context.grantPermissions(iceWithoutRoutePermissions)),
    )
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
      `${where}: expected an address, got ${JSON.stringify(url)}${baseURL ? '' : ' and no baseURL'}. Write http://localhost:4173/, or set use.baseURL in playwright.config.ts.`,
    )
  }
}
