import { messageOf } from '../src/util/errors.ts'
import { closeSoon } from './interrupt.ts'
import { browserGone, type Tab, type TabBrowser, type TabSettings } from './tab.ts'

export type StreamName = 'stdout' | 'stderr'

const toStderr = new Set(['error', 'warning', 'assert', 'trace'])
const silent = new Set(['clear', 'endGroup'])

/** Returns the stream and the text of a console call, as a terminal has them; null for one that prints nothing. `type`: as in Playwright. */
export function printed(type: string, text: string): [stream: StreamName, text: string] | null {
  if (silent.has(type)) return null
  // A line ends once.
  return [toStderr.has(type) ? 'stderr' : 'stdout', text.replace(/\n$/, '')]
}

/** One tab to open. */
export interface RankTab extends Pick<TabSettings, 'constants' | 'forWorkers' | 'sharesContext'> {
  /** Its rank, or a number that no other tab has. */
  rank: number
  readonly address: string
  readonly functions: (run: TabRun) => TabSettings['functions']
}

/** A report of a rank that failed. */
export interface TabFailure {
  /** Null when the browser failed, with all its tabs. */
  rank: number | null
  /** Of Tabring's errors; empty for an error that nobody caught. */
  code: string
  /** With the stack where there is one. */
  text: string
}

export interface TabsOptions {
  readonly browser: TabBrowser
  /** Closes the tabs before they have ended. */
  readonly stop: AbortSignal
  readonly onSay: (tab: TabRun, stream: StreamName, text: string) => void
  /** Called once for each tab that fails, in the order in which that was heard. `tab`: absent when the browser failed. */
  readonly onFailure: (failure: TabFailure, tab?: TabRun) => void
}

const pageTimeoutMs = 60_000
/** The page itself tells more of an error than the browser does: this goes first. */
const graceMs = 200

/**
 * Tabs of ranks: open, or opening.
 *
 * A rank that ends well stays open until the last has ended: what it has sent may still be under way. One that fails is closed at once.
 */
export class OpenTabs {
  readonly #options: TabsOptions
  readonly #runs: TabRun[] = []
  readonly #unwatch: () => void
  #isOver = false

  constructor(options: TabsOptions) {
    const { browser, stop, onFailure } = options
    this.#options = options
    stop.addEventListener('abort', this.abandon)
    this.#unwatch = browser.onGone(() => {
      if (this.#runs.every((run) => run.hasEnded)) return
      onFailure({ rank: null, code: 'worker.dead', text: browserGone })
      this.abandon()
    })
  }

  open(tab: RankTab): TabRun {
    const run = new TabRun(tab, this.#options)
    this.#runs.push(run)
    if (this.#isOver || this.#options.stop.aborted) run.abandon()
    else void run.open()
    return run
  }

  /** Waits for none of them any longer. */
  readonly abandon = (): void => {
    this.#isOver = true
    for (const run of this.#runs) run.abandon()
  }

  /** Resolves when all have ended and are closed, with those that are opened meanwhile. */
  async ended(): Promise<void> {
    const runs = this.#runs
    try {
      for (const run of runs) await run.ended
    } finally {
      this.#unwatch()
      this.#options.stop.removeEventListener('abort', this.abandon)
      // A browser that does not answer is ended by its owner.
      await closeSoon('tabs', () => Promise.all(runs.map((run) => run.close())))
    }
  }
}

/** One rank's tab, from its opening to its end. */
export class TabRun {
  /** Resolves when the program has ended, well or not, or nobody waits for it any more. */
  readonly ended: Promise<void>
  hasEnded = false
  rank: number
  #end!: () => void
  #opening: Promise<Tab> | undefined
  #closing: Promise<void> | undefined
  readonly #options: TabsOptions
  readonly #tab: RankTab

  constructor(tab: RankTab, options: TabsOptions) {
    this.#tab = tab
    this.#options = options
    this.rank = tab.rank
    this.ended = new Promise((resolve) => {
      this.#end = resolve
    })
  }

  /** Calls a function of its page, if that is there. A page that does not hear it is silent: its owner sees to that. */
  call(name: string, words: unknown): void {
    const take = ([name, received]: readonly [string, unknown]) => {
      const { [name]: listener } = globalThis as unknown as Record<
        string,
        ((received: unknown) => void) | undefined
      >
      listener?.(received)
    }
    this.#opening?.then((tab) => tab.evaluate(take, [name, words] as const)).catch(() => undefined)
  }

  /** Opens the tab, and loads its page, which runs the program. */
  async open(): Promise<void> {
    try {
      this.#opening = this.#prepare()
      const tab = await this.#opening
      if (this.hasEnded) return
      const status = await tab.load(this.#tab.address, pageTimeoutMs)
      if (status >= 400) throw new Error(`status ${status}`)
    } catch (thrown) {
      const [reason] = messageOf(thrown).split('\n')
      this.#failSoon('worker.dead', `its page did not open: ${reason}`)
    }
  }

  /** Waits for it no longer. */
  abandon(): void {
    this.hasEnded = true
    this.#end()
  }

  /** Resolves when the tab is closed; may be called again. */
  close(): Promise<void> {
    this.abandon()
    // Playwright throws out of band when a page is closed while it is being set up (seen in 1.65). It is gone already with a browser that has exited.
    this.#closing ??= this.#opening?.then((tab) => tab.close()).catch(() => undefined)
    return this.#closing ?? Promise.resolve()
  }

  #prepare(): Promise<Tab> {
    const { browser, onSay } = this.#options
    const { address, functions, ...settings } = this.#tab
    let hasCome = false
    return browser.openTab({
      // The room's key is this page's own, not that of what it may embed or open.
      origin: new URL(address).origin,
      ...settings,
      functions: functions(this),
      onCrash: (text) => this.fail('worker.dead', text),
      onClose: (text) => this.fail('worker.dead', text),
      onError: (error) => this.#failSoon('', error.stack || messageOf(error)),
      onPage: (address) => {
        if (hasCome)
          this.fail(
            'worker.dead',
            `its page was replaced by ${address.split(/[?#]/)[0]} before the run ended. A program must not navigate or reload.`,
          )
        hasCome = true
      },
      onConsole: (...call) => {
        const line = printed(...call)
        if (line) onSay(this, ...line)
      },
    })
  }

  /** Closes the tab and reports the failure. */
  fail(code: string, text: string): void {
    if (this.hasEnded) return
    // Closed before its failure is known: another may take its place.
    this.abandon()
    void this.close()
    this.#options.onFailure({ rank: this.rank, code, text }, this)
  }

  #failSoon(code: string, text: string): void {
    setTimeout(() => this.fail(code, text), graceMs)
  }
}
