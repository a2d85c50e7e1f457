import type { Browser, Download, Page } from 'playwright'
import { meshLimit } from '../../src/peer/room/edges.ts'
import { formatFragment, newRoomLink, type RoomLink } from '../../src/peer/room/secret.ts'
import { isElasticWith, type TrainConfig } from '../../src/trainer/settings/config.ts'
import { messageOf, TabringError } from '../../src/util/errors.ts'
import { launcherParameter, type SwitchInputs } from '../../src/util/switches.ts'
import type { CheckpointAddress } from '../../src/worker/api.ts'
import { LeastRanks } from '../least-ranks.ts'
import type { RankRange } from '../rank-range.ts'
import { Restarts } from '../restarts.ts'
import { browserGone, ownContext, watchTab } from '../tab.ts'
import { type RankResult, type TabEvent, TabGroup } from './tab-group.ts'

export interface TabsOptions {
  browser: Browser
  /** The server's address, with its final slash; `tab.html` is there. */
  url: string
  /** The ranks that begin the run. */
  worldSize: number
  /**
   * Of an elastic run: more tabs join up to the most as soon as it has begun, and it ends when it has too few for `timeoutMs`. Default: none
   * join, and it ends with its last rank. At most `meshLimit`: a run of more ranks is not elastic, and ends with the first that is lost.
   */
  range?: RankRange
  /** The room that the tabs make; default: a new one. */
  room?: RoomLink
  config: TrainConfig
  timeoutMs: number
  /** For tabs that are opened in place of lost ones, where the run is elastic; default: 3. */
  restarts?: Restarts
  /** Where rank 0's trained weights go; absent: nowhere. */
  saveTo?: string
  /** Whether links that WebRTC does not bring about go through the server. */
  isRelayed?: boolean
  /** Where the ranks' checkpoints are, as addresses. */
  checkpoints?: CheckpointAddress
  /** The address of the data that a person gives; the maker's tab reads it. */
  given?: string
  /** Ends the run with the signal's reason. */
  signal: AbortSignal
  onEvent: (event: TabEvent) => void
  /** Takes words for people: a tab was lost. */
  onNotice?: (line: string) => void
  /** Switches of the tabs; what they tell goes to `onLine`. */
  switches?: SwitchInputs
  onLine?: (line: string) => void
  /** Takes each rank's spans, as JSON, before that rank is done; with the switch `trace`. */
  onTrace?: (json: string) => void
}

const pageTimeoutMs = 30_000
/** How long rank 0 may take to hand over the weights after it has reported its end. */
const downloadTimeoutMs = 30_000

/**
 * Opens one tab a rank in `browser`, joins them in one room, and returns their results in rank order.
 *
 * The first tab makes the room (`role=host`) and gets the settings; the others join as soon as the room is there. Each tab has
 * a browser context of its own, as tabs on different machines would: no shared storage, no shared worker.
 * Contract with the page: see `tabAddress`; it calls `__tabringMember`, `__tabringEvent` and `__tabringDone`, and with `save=1` rank 0 offers
 * its weights as a download before or after it calls `__tabringDone`. It has `__tabringContinueWithout`.
 * An elastic run continues without a tab that is lost once it has begun, and another tab joins it in its place.
 * errors: `config.invalid` for a range beyond `meshLimit`; one line that names the rank: what the tab reported, a crash, an uncaught error,
 * silence; or the signal's reason.
 * Tabs stay open after a failure: the caller closes the browser.
 */
export async function trainInTabs(options: TabsOptions): Promise<RankResult[]> {
  const { browser, worldSize, signal, range = { least: 1, most: worldSize } } = options
  const { timeoutMs, onEvent, config, restarts = new Restarts() } = options
  const { onNotice = () => undefined } = options
  const most = Math.max(range.most, worldSize)
  if (options.range && most > meshLimit)
    throw new TabringError(
      'config.invalid',
      `trainInTabs: expected at most ${meshLimit} ranks in an elastic run, got ${most}. Lower the range, or omit it: the run then ends with the first rank that is lost.`,
    )
  const fragment = formatFragment(options.room ?? newRoomLink())
  /** By tab, once it is there. */
  const pages: Page[] = []
  const count = () => leastRanks.count(group.ranks, group.coming)
  const group = new TabGroup({
    worldSize,
    timeoutMs,
    onEvent: (event) => {
      onEvent(event)
      if (event.event === 'regrouped') count()
    },
    onGone: (tab) => void pages[tab]?.close().catch(() => undefined),
    onUndecided: (tab, text) => {
      if (text !== null) onNotice(text)
      else pages[tab]?.evaluate(() => window.__tabringContinueWithout?.()).catch(() => undefined)
    },
    onStepsLost: onNotice,
    hasOneModel: config.strategy !== 'alone',
    ...(isElasticWith(config, worldSize) && { onLost: (text) => replace(text) }),
  })
  const onEnd = (error: Error) => group.failAll(error)
  const leastRanks = new LeastRanks({
    ...range,
    waitMs: timeoutMs,
    waitFlag: '--timeout',
    onNotice,
    onEnd,
  })
  /** Opens another tab, which joins the run. */
  const join = () => {
    const tab = group.add()
    const preparing = preparePage(options, tab, group, downloads)
    prepared = Promise.allSettled([prepared, preparing])
    preparing
      .then((page) => {
        pages[tab] = page
        return openPage(page, tabAddress(options.url, fragment, 'join', options), tab, group)
      })
      .catch((thrown) => group.lose(tab, messageOf(thrown)))
  }
  /** In place of one that was lost. */
  const replace = (text: string) => {
    const restart = restarts.take()
    const next = restart ? `, and another tab joins them (${restart})` : ''
    onNotice(`${text} The others continue${next}.`)
    if (restart) join()
    count()
  }
  group.firstWord.then(() => {
    for (let tabs = worldSize; tabs < range.most; tabs++) join()
  })
  const onAbort = () => group.failAll(signal.reason)
  const onDisconnected = () => group.failAll(new TabringError('peer.lost', browserGone))
  signal.addEventListener('abort', onAbort)
  browser.on('disconnected', onDisconnected)
  const downloads = new Downloads()
  const preparing = prepareTabs(options, group, downloads)
  let prepared: Promise<unknown> = preparing
  try {
    signal.throwIfAborted()
    preparing
      .then((first) => {
        pages.splice(0, first.length, ...first)
        return openTabs(first, fragment, options, group)
      })
      .catch((thrown) => group.failAll(thrown))
    const results = await group.finished
    if (options.saveTo !== undefined) await save(downloads, options.saveTo, signal)
    return results
  } finally {
    // Playwright throws out of band when a page is closed while it is being set up (seen in 1.65).
    await prepared.catch(() => undefined)
    leastRanks.stop()
    group.stop()
    signal.removeEventListener('abort', onAbort)
    browser.off('disconnected', onDisconnected)
  }
}

/** The address of one tab: parameters in the query, the room's secret in the fragment. */
export function tabAddress(
  url: string,
  fragment: string,
  role: 'host' | 'join',
  {
    worldSize,
    config,
    saveTo,
    checkpoints,
    given,
    switches = {},
    isRelayed = false,
  }: Pick<
    TabsOptions,
    'worldSize' | 'config' | 'saveTo' | 'checkpoints' | 'given' | 'switches' | 'isRelayed'
  >,
): string {
  const transport = isRelayed ? 'fallback' : 'webrtc'
  const query = new URLSearchParams({ role, ranks: String(worldSize), transport })
  if (role === 'host') query.set('config', JSON.stringify(config))
  if (role === 'host' && given !== undefined) query.set('given', given)
  if (saveTo !== undefined) query.set('save', '1')
  // Any rank's tab may become rank 0.
  if (checkpoints) query.set('checkpoints', JSON.stringify(checkpoints))
  if (Object.keys(switches).length > 0) query.set(launcherParameter, JSON.stringify(switches))
  return `${url}tab.html?${query}${fragment}`
}

/** Gives every tab its context and page functions; nothing is loaded yet. */
function prepareTabs(options: TabsOptions, group: TabGroup, downloads: Downloads) {
  return Promise.all(
    Array.from({ length: options.worldSize }, (_, tab) =>
      preparePage(options, tab, group, downloads),
    ),
  )
}

/** Loads the maker's page, and the joiners' as soon as its room is there. */
async function openTabs(
  pages: Page[],
  fragment: string,
  options: TabsOptions,
  group: TabGroup,
): Promise<void> {
  const address = (role: 'host' | 'join') => tabAddress(options.url, fragment, role, options)
  const [maker, ...joiners] = pages
  const roomIsThere = seesRoom(maker)
  await openPage(maker, address('host'), 0, group)
  if (joiners.length === 0) return
  await Promise.race([roomIsThere, group.firstWord, group.finished])
  await Promise.all(joiners.map((page, i) => openPage(page, address('join'), i + 1, group)))
}

/** Weights may be offered before anyone waits for them. */
class Downloads {
  readonly first: Promise<Download>
  readonly add: (download: Download) => void
  constructor() {
    let add!: (download: Download) => void
    this.first = new Promise((resolve) => {
      add = resolve
    })
    this.add = add
  }
}

async function preparePage(
  { browser, switches = {}, onLine, onTrace }: TabsOptions,
  tab: number,
  group: TabGroup,
  downloads: Downloads,
): Promise<Page> {
  const page = await (await ownContext(browser)).newPage()
  const lose = (text: string) => group.lose(tab, text)
  const loseUnlessDone = (text: string) => {
    if (!group.isDone(tab)) lose(text)
  }
  watchTab(page, {
    onCrash: lose,
    onClose: loseUnlessDone,
    onError: (error) => loseUnlessDone(`uncaught error in its page: ${messageOf(error)}`),
  })
  if (onLine && Object.keys(switches).length > 0) {
    page.on('console', (message) => {
      const text = message.text()
      if (text.startsWith('tabring')) onLine(`${group.nameOf(tab)}: ${text}`)
    })
  }
  page.on('download', (download) => downloads.add(download))
  await page.exposeFunction('__tabringMember', (id: string) => group.isMember(tab, id))
  await page.exposeFunction('__tabringEvent', (words: unknown) => group.event(tab, words))
  if (onTrace) await page.exposeFunction('__tabringTrace', onTrace)
  await page.exposeFunction('__tabringDone', (words: unknown) => group.done(tab, words))
  return page
}

async function openPage(page: Page, address: string, tab: number, group: TabGroup): Promise<void> {
  try {
    const response = await page.goto(address, { timeout: pageTimeoutMs })
    if (response && !response.ok())
      group.fail(
        tab,
        'worker.dead',
        `could not load the page tab.html, got status ${response.status()}.`,
      )
  } catch (thrown) {
    // The address holds the room's secret, so of Playwright's message only the reason is told. A tab that crashed
    // or was closed meanwhile has been reported already and goes before this.
    const reason = /net::\w+/.exec(messageOf(thrown))?.[0] ?? 'no page in time'
    group.fail(tab, 'peer.lost', `could not load the page tab.html: ${reason}.`)
  }
}

/**
 * Resolves when the signaling server has welcomed the page's member: from then on others can join its room.
 *
 * Read off the page's own socket, so the page needs no word for it.
 */
function seesRoom(page: Page): Promise<void> {
  return new Promise((resolve) => {
    page.on('websocket', (socket) => {
      socket.on('framereceived', ({ payload }) => {
        if (String(payload).includes('"welcome"')) resolve()
      })
    })
  })
}

async function save(downloads: Downloads, path: string, signal: AbortSignal): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  let onAbort: () => void = () => undefined
  const end = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal.reason)
    signal.addEventListener('abort', onAbort)
    timer = setTimeout(
      () =>
        reject(
          new TabringError(
            'file.unwritable',
            `rank 0: its weights did not arrive within ${downloadTimeoutMs / 1000} s of the end. Run again.`,
          ),
        ),
      downloadTimeoutMs,
    )
  })
  try {
    const download = await Promise.race([downloads.first, end])
    await Promise.race([download.saveAs(path), end])
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', onAbort)
  }
}
