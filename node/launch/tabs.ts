import {
  type GroupEnds,
  groupEndsName,
  nextGroupName,
} from '../../src/distributed/launcher/next-group.ts'
import { type Progress, progressName } from '../../src/distributed/launcher/progress.ts'
import { endName, type RankEnd } from '../../src/distributed/launcher/rank-end.ts'
import { messageOf } from '../../src/util/errors.ts'
import { type InjectedEnvironment, injectedName } from '../../src/util/injected.ts'
import { launcherParameter, type SwitchInputs } from '../../src/util/switches.ts'
import { deviceName } from '../../src/util/tell-launcher.ts'
import { browserGone, type Tab, type TabBrowser } from '../tab.ts'
import type { StreamName } from './log-files.ts'

/** One tab to open. */
export interface RankTab {
  /** Of an elastic run: that of the newest group; of a tab in none, a number that no other tab has. */
  rank: number
  environment: InjectedEnvironment
}

/** A report of a rank that failed. */
export interface TabFailure {
  /** Null when the browser failed, with all its tabs. */
  rank: number | null
  /** Of Tabring's errors; else empty. */
  code: string
  /** With the stack where there is one. */
  text: string
}

export interface TabsOptions {
  browser: TabBrowser
  /** The server's address, with its final slash; `rank.html` is there. */
  url: string
  tabs: readonly RankTab[]
  switches: SwitchInputs
  /** Closes the tabs before they have ended. */
  stop: AbortSignal
  onSay: (rank: number, stream: StreamName, text: string) => void
  onProgress: (rank: number, progress: Progress) => void
  /** Takes what a rank computes on, and why, when that is news. */
  onDevice: (rank: number, text: string) => void
  /** Called once for each rank that fails, in the order in which that was heard. `tab`: absent when the browser failed. */
  onFailure: (failure: TabFailure, tab?: TabRun) => void
  /** Called when a rank's program has ended well. */
  onEnd?: (tab: TabRun) => void
  /** Of an elastic run: a rank asks for its next group. Resolves with the variables of that. */
  onNextGroup?: (tab: TabRun) => Promise<Readonly<Record<string, string>>>
  /** Of an elastic run: training has ended well on a rank, whose program may do more. */
  onTrained?: (tab: TabRun) => void
}

/** Tabs that are open, or opening. */
export interface OpenTabs {
  /** Resolves when all have ended and are closed. */
  readonly ended: Promise<void>
  /** Opens one more. */
  open(tab: RankTab): TabRun
  /** Waits for none of them any longer. */
  abandon(): void
}

const pageTimeoutMs = 60_000
/** The page itself tells more of an error than the browser does: this goes first. */
const graceMs = 200

/**
 * Opens one tab a rank, each as if on its own machine.
 *
 * A rank that ends well stays open until the last has ended: what it has sent may still be under way. One that fails is closed at once.
 */
export function openTabs(options: TabsOptions): OpenTabs {
  const { browser, tabs, stop, onFailure } = options
  const runs: TabRun[] = []
  const add = (tab: RankTab) => {
    const run = new TabRun(tab, options)
    runs.push(run)
    if (stop.aborted) run.abandon()
    return run
  }
  const abandon = () => {
    for (const run of runs) run.abandon()
  }
  const onDisconnected = () => {
    if (runs.every((run) => run.hasEnded)) return
    onFailure({ rank: null, code: 'worker.dead', text: browserGone })
    abandon()
  }
  const first = tabs.map(add)
  const untilEnded = async () => {
    const unwatch = browser.onGone(onDisconnected)
    stop.addEventListener('abort', abandon)
    try {
      await Promise.all(first.map((run) => run.prepare()))
      for (const run of first) void run.load()
      // More may be opened meanwhile.
      for (const run of runs) await run.ended
      // Playwright throws out of band when a page is closed while it is being set up (seen in 1.65).
      await Promise.all(runs.map((run) => run.prepare()))
    } finally {
      unwatch()
      stop.removeEventListener('abort', abandon)
      await Promise.all(runs.map((run) => run.close()))
    }
  }
  return {
    ended: untilEnded(),
    open: (tab) => {
      const run = add(tab)
      void run.prepare().then(() => run.load())
      return run
    },
    abandon,
  }
}

/** As `openTabs`; resolves when all have ended and are closed. */
export const runTabs = (options: TabsOptions): Promise<void> => openTabs(options).ended

const toStderr = new Set(['error', 'warning', 'assert', 'trace'])
const silent = new Set(['clear', 'endGroup'])

/** One rank's tab, from its opening to its end. */
export class TabRun {
  /** Resolves when the program has ended, well or not, or nobody waits for it any more. */
  readonly ended: Promise<void>
  hasEnded = false
  #end!: () => void
  #opened: Tab | null = null
  #prepared: Promise<void> | undefined
  #closing: Promise<void> | undefined
  readonly #options: TabsOptions
  readonly #tab: RankTab

  constructor(tab: RankTab, options: TabsOptions) {
    this.#tab = tab
    this.#options = options
    this.ended = new Promise((resolve) => {
      this.#end = resolve
    })
  }

  /** Its rank, as `RankTab` has it. */
  get rank(): number {
    return this.#tab.rank
  }

  set rank(rank: number) {
    this.#tab.rank = rank
  }

  /** Tells its page that the rank's group ends. A page that does not hear it is silent: its owner sees to that. */
  tell(words: GroupEnds): void {
    const take = ([name, received]: readonly [string, GroupEnds]) => {
      const { [name]: listener } = globalThis as unknown as Record<
        string,
        ((received: GroupEnds) => void) | undefined
      >
      listener?.(received)
    }
    this.#opened?.evaluate(take, [groupEndsName, words] as const).catch(() => undefined)
  }

  /** Opens the tab; nothing is loaded yet. May be called again. */
  prepare(): Promise<void> {
    this.#prepared ??= this.#prepare()
    return this.#prepared
  }

  async #prepare(): Promise<void> {
    if (this.hasEnded) return
    try {
      this.#opened = await this.#open()
    } catch (thrown) {
      this.#failToOpen(thrown)
    }
  }

  /** Loads the page, which runs the program. */
  async load(): Promise<void> {
    if (this.hasEnded || !this.#opened) return
    const { url, switches } = this.#options
    const query = new URLSearchParams()
    if (Object.keys(switches).length > 0) query.set(launcherParameter, JSON.stringify(switches))
    try {
      await this.#opened.load(`${url}rank.html?${query}`, pageTimeoutMs)
    } catch (thrown) {
      this.#failToOpen(thrown)
    }
  }

  /** Waits for it no longer. */
  abandon(): void {
    this.hasEnded = true
    this.#end()
  }

  /** Resolves when the tab is closed; may be called again. */
  close(): Promise<void> {
    this.hasEnded = true
    // Gone already with a browser that has exited.
    this.#closing ??= this.#opened?.close().catch(() => undefined)
    return this.#closing ?? Promise.resolve()
  }

  #open(): Promise<Tab> {
    const { browser, url, onProgress, onDevice, onNextGroup, onTrained } = this.#options
    const devices = new Set<string>()
    const functions: Record<string, (...words: never[]) => unknown> = {
      [progressName]: (json: string) => {
        if (!this.hasEnded) onProgress(this.rank, JSON.parse(json))
      },
      [deviceName]: (json: string) => {
        if (!devices.has(json)) onDevice(this.rank, JSON.parse(json))
        devices.add(json)
      },
      [endName]: (json: string) => this.#take(JSON.parse(json)),
    }
    if (onNextGroup)
      functions[nextGroupName] = async (isDone?: boolean) => {
        if (isDone) onTrained?.(this)
        return isDone ? '' : JSON.stringify(await onNextGroup(this))
      }
    let hasCome = false
    return browser.openTab({
      // The room's key is this page's own, not that of what it may embed or open.
      origin: new URL(url).origin,
      constants: { [injectedName]: this.#tab.environment },
      functions,
      onCrash: (text) => this.fail('worker.dead', text),
      onClose: (text) => this.fail('worker.dead', text),
      onError: (error) => this.#failSoon('', error.stack || messageOf(error)),
      onPage: (address) => {
        if (hasCome)
          this.fail(
            'worker.dead',
            `its page was replaced by ${address.split('?')[0]} before the run ended. A program must not navigate or reload.`,
          )
        hasCome = true
      },
      onConsole: (type, text) => {
        if (silent.has(type)) return
        // As a terminal has it: a line ends once.
        const stream = toStderr.has(type) ? 'stderr' : 'stdout'
        this.#options.onSay(this.rank, stream, text.replace(/\n$/, ''))
      },
    })
  }

  #take(end: RankEnd): void {
    if (!end.isOk) {
      this.fail(end.code, end.stack)
      return
    }
    const isFirst = !this.hasEnded
    this.abandon()
    if (isFirst) this.#options.onEnd?.(this)
  }

  /** Closes the tab and reports the failure. */
  fail(code: string, text: string): void {
    if (this.hasEnded) return
    // Closed before its failure is known: another may take its place.
    this.abandon()
    void this.close()
    this.#options.onFailure({ rank: this.rank, code, text }, this)
  }

  #failToOpen(thrown: unknown): void {
    const [reason] = messageOf(thrown).split('\n')
    this.#failSoon('worker.dead', `its page did not open: ${reason}`)
  }

  #failSoon(code: string, text: string): void {
    setTimeout(() => this.fail(code, text), graceMs)
  }
}
