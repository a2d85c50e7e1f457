import { availableParallelism } from 'node:os'
import type { SwitchInputs } from '../src/util/switches.ts'

/** What a launcher needs of a browser, whichever it is. */
export interface TabBrowser {
  /** Opens a blank tab. */
  openTab(settings: TabSettings): Promise<Tab>
  /** Calls `listener` when the browser has gone with all its tabs. Returns what undoes that. */
  onGone(listener: () => void): () => void
  /** Ends the browser, and removes what it kept on the disk. */
  close(): Promise<void>
}

export interface Tab {
  /** Returns the status of the page's answer, as soon as that comes. errors: the browser's reason, without the address. */
  load(url: string, timeoutMs: number): Promise<number>
  /** Calls a function in the page, with one value of JSON, and returns its result, likewise. */
  evaluate<Given, Result>(run: (given: Given) => Result, given: Given): Promise<Awaited<Result>>
  close(): Promise<void>
}

export interface TabSettings extends Partial<TabEvents> {
  /** Whose pages get permissions and constants, but not what they embed or open. */
  readonly origin: string
  /** Globals of the page, by name: there before its scripts. */
  readonly constants?: Readonly<Record<string, unknown>>
  /** Globals of the page, by name, that call this program: values of JSON come and go. */
  readonly functions?: Readonly<Record<string, (...words: never[]) => unknown>>
  /** True if it has the storage and shared workers of the browser's other such tabs. Default: its own, as on a separate machine. */
  readonly sharesContext?: boolean
  /** Names of functions that workers of the page call too, each over the channel of that name, with one value; not with `sharesContext`. */
  readonly forWorkers?: readonly string[]
}

/** What may happen to a tab, whenever it happens: at the end too. `text`: for people. */
export interface TabEvents {
  onCrash(text: string): void
  /** A moment later: if the browser has ended with all its tabs, that is known first. */
  onClose(text: string): void
  /** An error that nobody caught. */
  onError(error: Error): void
  /** Another page is there. */
  onPage(url: string): void
  /** `type`: as in Playwright. */
  onConsole(type: string, text: string): void
}

/** The message for a browser that has gone with all its tabs. */
export const browserGone = 'browser: it crashed or was closed before the run ended. Start again.'

export const tabCrashed = 'its tab crashed. Is the machine out of memory?'

/** A browser that ends tells so some milliseconds after the ends of its tabs. */
const closeGraceMs = 200

/** Tells `events` that the tab is closed. */
export function tellClosed({ onClose }: Partial<TabEvents>): void {
  setTimeout(() => onClose?.('its tab was closed before the run ended.'), closeGraceMs)
}

/**
 * Threads of each of `ranks` on this machine, as torchrun sets OMP_NUM_THREADS: tabs that share no storage do not see that they share the cores.
 */
export const sharedThreads = (ranks: number): SwitchInputs =>
  ranks === 1 ? {} : { numThreads: String(Math.max(1, Math.floor(availableParallelism() / ranks))) }
