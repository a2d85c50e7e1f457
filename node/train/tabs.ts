import { formatFragment, newRoomLink, type RoomLink } from '../../src/peer/room/secret.ts'
import { isElastic, type TrainConfig } from '../../src/trainer/settings/config.ts'
import { messageOf, TabringError } from '../../src/util/errors.ts'
import { launcherParameter, type SwitchInputs } from '../../src/util/switches.ts'
import type { CheckpointAddress } from '../../src/worker/api.ts'
import { MinRanks } from '../min-ranks.ts'
import type { RankRange } from '../rank-range.ts'
import { Restarts } from '../restarts.ts'
import { browserGone, sharedThreads, type Tab, type TabBrowser } from '../tab.ts'
import { type RankResult, type TabEvent, TabGroup } from './tab-group.ts'

export interface TabsOptions {
  browser: TabBrowser
  /** The server's address, with its final slash; `tab.html` is there. */
  url: string
  /** The ranks that begin the run. */
  worldSize: number
  /**
   * Of an elastic run: more tabs join up to the most as soon as it has begun, and it ends when it has too few for `timeoutMs`. Default: none
   * join, and it ends with its last rank.
   */
  range?: RankRange
  /** The room that the tabs make; default: a new one. */
  room?: RoomLink
  config: TrainConfig
  timeoutMs: number
  /** For tabs that are opened in place of lost ones, where the run is elastic; default: 3. */
  restarts?: Restarts
  /** The address to which rank 0 sends its trained weights, as PUT; absent: they go nowhere. */
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

/**
 * Opens one tab a rank in `browser`, joins them in one room, and returns their results in rank order.
 *
 * The first tab makes the room (`role=host`) and gets the settings; the others join as soon as the room is there. Each tab has
 * separate storage, as tabs on different machines would.
 * Contract with the page: see `tabAddress`; it calls `__tabringRoom` when its room is there, `__tabringMember`, `__tabringEvent` and
 * `__tabringDone`, before which rank 0 sends its weights to the address `save`. It has `__tabringContinueWithout`.
 * An elastic run continues without a tab that is lost once it has begun, and another tab joins it in its place.
 * errors: one line that names the rank: what the tab reported, a crash, an uncaught error, silence; or the signal's reason.
 * Tabs stay open after a failure: the caller closes the browser.
 */
export async function trainInTabs(options: TabsOptions): Promise<RankResult[]> {
  const { browser, worldSize, signal, range = { min: 1, max: worldSize } } = options
  const { timeoutMs, onEvent, config, restarts = new Restarts() } = options
  const { onNotice = () => undefined } = options
  const fragment = formatFragment(options.room ?? newRoomLink())
  /** By tab, once it is there. */
  const pages: Tab[] = []
  const count = () => minRanks.count(group.ranks, group.coming)
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
      else
        pages[tab]?.evaluate(() => window.__tabringContinueWithout?.(), null).catch(() => undefined)
    },
    onStepsLost: onNotice,
    hasOneModel: config.strategy !== 'alone',
    ...(isElastic(config) && { onLost: (text) => replace(text) }),
  })
  const onEnd = (error: Error) => group.failAll(error)
  const minRanks = new MinRanks({
    ...range,
    waitMs: timeoutMs,
    waitFlag: '--timeout',
    onNotice,
    onEnd,
  })
  /** Opens another tab, which joins the run. */
  const join = () => {
    const tab = group.add()
    const preparing = prepareTab(options, tab, group)
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
    for (let tabs = worldSize; tabs < range.max; tabs++) join()
  })
  const onAbort = () => group.failAll(signal.reason)
  const onDisconnected = () => group.failAll(new TabringError('peer.lost', browserGone))
  signal.addEventListener('abort', onAbort)
  const unwatch = browser.onGone(onDisconnected)
  let onRoom!: () => void
  const room = new Promise<void>((resolve) => {
    onRoom = resolve
  })
  const preparing = Promise.all(
    Array.from({ length: worldSize }, (_, tab) => prepareTab(options, tab, group, onRoom)),
  )
  let prepared: Promise<unknown> = preparing
  try {
    signal.throwIfAborted()
    preparing
      .then((first) => {
        pages.splice(0, first.length, ...first)
        return openTabs(first, fragment, options, group, room)
      })
      .catch((thrown) => group.failAll(thrown))
    return await group.finished
  } finally {
    // Playwright throws out of band when a page is closed while it is being set up (seen in 1.65).
    await prepared.catch(() => undefined)
    minRanks.stop()
    group.stop()
    signal.removeEventListener('abort', onAbort)
    unwatch()
  }
}

/** The address of one tab: parameters in the query, the room's secret in the fragment. */
export function tabAddress(
  url: string,
  fragment: string,
  role: 'host' | 'join',
  {
    worldSize,
    range,
    config,
    saveTo,
    checkpoints,
    given,
    switches = {},
    isRelayed = false,
  }: Pick<
    TabsOptions,
    'worldSize' | 'range' | 'config' | 'saveTo' | 'checkpoints' | 'given' | 'switches' | 'isRelayed'
  >,
): string {
  const transport = isRelayed ? 'fallback' : 'webrtc'
  const query = new URLSearchParams({ role, ranks: String(worldSize), transport })
  if (role === 'host') query.set('config', JSON.stringify(config))
  if (role === 'host' && given !== undefined) query.set('given', given)
  if (saveTo !== undefined) query.set('save', saveTo)
  // Any rank's tab may become rank 0.
  if (checkpoints) query.set('checkpoints', JSON.stringify(checkpoints))
  const all = { ...sharedThreads(range?.max ?? worldSize), ...switches }
  if (Object.keys(all).length > 0) query.set(launcherParameter, JSON.stringify(all))
  return `${url}tab.html?${query}${fragment}`
}

/** Loads the maker's page, and the joiners' as soon as its room is there. */
async function openTabs(
  tabs: Tab[],
  fragment: string,
  options: TabsOptions,
  group: TabGroup,
  room: Promise<void>,
): Promise<void> {
  const address = (role: 'host' | 'join') => tabAddress(options.url, fragment, role, options)
  const [maker, ...joiners] = tabs
  await openPage(maker, address('host'), 0, group)
  if (joiners.length === 0) return
  await Promise.race([room, group.firstWord, group.finished])
  await Promise.all(joiners.map((tab, i) => openPage(tab, address('join'), i + 1, group)))
}

/** Opens a tab with its page functions; nothing is loaded yet. */
function prepareTab(
  { browser, url, switches = {}, onLine, onTrace }: TabsOptions,
  tab: number,
  group: TabGroup,
  onRoom: () => void = () => undefined,
): Promise<Tab> {
  const lose = (text: string) => group.lose(tab, text)
  const loseUnlessDone = (text: string) => {
    if (!group.isDone(tab)) lose(text)
  }
  const hasSwitches = Object.keys(switches).length > 0
  return browser.openTab({
    origin: new URL(url).origin,
    functions: {
      __tabringRoom: onRoom,
      __tabringMember: (id: string) => group.isMember(tab, id),
      __tabringEvent: (words: unknown) => group.event(tab, words),
      __tabringDone: (words: unknown) => group.done(tab, words),
      ...(onTrace && { __tabringTrace: onTrace }),
    },
    onCrash: lose,
    onClose: loseUnlessDone,
    onError: (error) => loseUnlessDone(`uncaught error in its page: ${messageOf(error)}`),
    onConsole: (_, text) => {
      if (hasSwitches && text.startsWith('tabring')) onLine?.(`${group.nameOf(tab)}: ${text}`)
    },
  })
}

async function openPage(page: Tab, address: string, tab: number, group: TabGroup): Promise<void> {
  try {
    const status = await page.load(address, pageTimeoutMs)
    if (status >= 400)
      group.fail(tab, 'worker.dead', `could not load the page tab.html, got status ${status}.`)
  } catch (thrown) {
    // A tab that crashed or was closed meanwhile has been reported already and goes before this.
    group.fail(tab, 'peer.lost', `could not load the page tab.html: ${messageOf(thrown)}.`)
  }
}
