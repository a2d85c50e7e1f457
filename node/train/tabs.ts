import { formatFragment, newRoomLink, type RoomLink } from '../../src/peer/room/secret.ts'
import { isElastic, type TrainConfig } from '../../src/trainer/settings/config.ts'
import { TabringError } from '../../src/util/errors.ts'
import { launcherParameter, type SwitchInputs } from '../../src/util/switches.ts'
import type { CheckpointAddress } from '../../src/worker/api.ts'
import { MinRanks } from '../min-ranks.ts'
import type { RankRange } from '../rank-range.ts'
import { Restarts } from '../restarts.ts'
import { sharedThreads, type TabBrowser } from '../tab.ts'
import { OpenTabs, type RankTab, type StreamName, type TabRun } from '../tabs.ts'
import { type RankResult, type TabEvent, TabGroup } from './tab-group.ts'

export const trainTransports = ['auto', 'webrtc'] as const
export type TrainTransport = (typeof trainTransports)[number]

export interface TabsOptions {
  browser: TabBrowser
  /** The server's address, with its final slash; `tab.html` is there. */
  url: string
  /** The tabs that begin the run here. */
  worldSize: number
  /** The ranks that begin the run on all machines; default: `worldSize`. */
  ranks?: number
  /** The first of them that is here; the tab with rank 0 makes the room. Default 0. */
  firstRank?: number
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
  /** `auto`: tabs of this machine exchange through their browser. Default: all over WebRTC, each tab as on a separate machine. */
  transport?: TrainTransport
  /** True if links that WebRTC does not bring about go through the server. */
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
  /** Switches of the tabs. */
  switches?: SwitchInputs
  /** Takes what a tab prints. `rank`: as long as the tab has none, that of its place among the tabs. */
  onSay?: (rank: number, stream: StreamName, text: string, name: string) => void
  /** Takes each rank's spans, as JSON, before that rank is done; with the switch `trace`. */
  onTrace?: (json: string) => void
}

/**
 * Opens one tab a rank in `browser`, joins them in one room, and returns the results of those that are here, in rank order.
 *
 * The tab with rank 0 makes the room (`role=host`) and gets the settings; the others join as soon as the room is there.
 * Contract with the page: see `tabAddress`; it calls `__tabringMember`, `__tabringEvent` and
 * `__tabringDone`, before which rank 0 sends its weights to the address `save`. It has `__tabringContinueWithout`.
 * An elastic run continues without a tab that is lost once it has begun, and another tab joins it in its place.
 * errors: one line that names the rank: what the tab reported, a crash, an uncaught error, silence; or the signal's reason.
 */
export async function trainInTabs(options: TabsOptions): Promise<RankResult[]> {
  const { browser, worldSize, signal, range = { min: 1, max: worldSize } } = options
  const { timeoutMs, onEvent, config, restarts = new Restarts() } = options
  const { onNotice = () => undefined, onSay, firstRank = 0 } = options
  signal.throwIfAborted()
  const fragment = formatFragment(options.room ?? newRoomLink())
  const runs: TabRun[] = []
  const count = () => minRanks.count(group.ranks, group.coming)
  const group = new TabGroup({
    worldSize,
    timeoutMs,
    onEvent: (event) => {
      onEvent(event)
      if (event.event === 'regrouped') count()
    },
    onGone: (tab) => void runs[tab]?.close(),
    onUndecided: (tab, text) => {
      if (text !== null) onNotice(text)
      else runs[tab].call('__tabringContinueWithout', null)
    },
    onStepsLost: onNotice,
    hasOneModel: config.strategy !== 'alone',
    ...(isElastic(config) && { onLost: (text) => replace(text) }),
  })
  const minRanks = new MinRanks({
    ...range,
    waitMs: timeoutMs,
    waitFlag: '--timeout',
    onNotice,
    onEnd: (error) => group.failAll(error),
  })
  const tabs = new OpenTabs({
    browser,
    stop: signal,
    onSay: ({ rank: tab }, stream, text) =>
      onSay?.(group.rankOf(tab) ?? firstRank + tab, stream, text, group.nameOf(tab)),
    onFailure: ({ code, text }, run) => {
      if (!run) group.failAll(new TabringError('peer.lost', text))
      else group.lose(run.rank, code ? text : `uncaught error in its page: ${text}`, code)
    },
  })
  const open = (tab: number) => {
    const role = firstRank + tab === 0 ? 'host' : 'join'
    runs[tab] = tabs.open(tabOf(tab, tabAddress(options.url, fragment, role, options)))
  }
  const tabOf = (tab: number, address: string): RankTab => ({
    rank: tab,
    address,
    sharesContext: options.transport === 'auto',
    functions: (run) => ({
      __tabringMember: (id: string) => group.isMember(tab, id),
      __tabringEvent: (words: unknown) => group.event(tab, words),
      __tabringDone: (words: unknown) => {
        group.done(tab, words)
        // Its end is no loss from now on.
        if (group.isDone(tab)) run.abandon()
      },
      ...(options.onTrace && { __tabringTrace: options.onTrace }),
    }),
  })
  /** In place of one that was lost. */
  const replace = (text: string) => {
    const restart = restarts.take()
    const next = restart ? `, and another tab joins them (${restart})` : ''
    onNotice(`${text} The others continue${next}.`)
    if (restart) open(group.add())
    count()
  }
  group.firstWord.then(() => {
    for (let tabs = worldSize; tabs < range.max; tabs++) open(group.add())
  })
  const onAbort = () => group.failAll(signal.reason)
  signal.addEventListener('abort', onAbort)
  try {
    for (let tab = 0; tab < worldSize; tab++) open(tab)
    return await group.finished
  } finally {
    minRanks.stop()
    group.stop()
    signal.removeEventListener('abort', onAbort)
    tabs.abandon()
    await tabs.ended()
  }
}

/** The address of one tab: parameters in the query, the room's secret in the fragment. */
export function tabAddress(
  url: string,
  fragment: string,
  role: 'host' | 'join',
  {
    worldSize,
    ranks = worldSize,
    range,
    config,
    saveTo,
    checkpoints,
    given,
    switches = {},
    transport = 'webrtc',
    isRelayed = false,
  }: Pick<
    TabsOptions,
    | 'worldSize'
    | 'ranks'
    | 'range'
    | 'config'
    | 'saveTo'
    | 'checkpoints'
    | 'given'
    | 'switches'
    | 'transport'
    | 'isRelayed'
  >,
): string {
  const query = new URLSearchParams({
    role,
    ranks: String(ranks),
    transport: isRelayed ? 'fallback' : transport,
  })
  if (role === 'host') query.set('config', JSON.stringify(config))
  if (role === 'host' && given !== undefined) query.set('given', given)
  if (saveTo !== undefined) query.set('save', saveTo)
  // Any rank's tab may become rank 0.
  if (checkpoints) query.set('checkpoints', JSON.stringify(checkpoints))
  const all = { ...sharedThreads(range?.max ?? worldSize), ...switches }
  if (Object.keys(all).length > 0) query.set(launcherParameter, JSON.stringify(all))
  return `${url}tab.html?${query}${fragment}`
}
