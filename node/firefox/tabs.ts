import { messageOf } from '../../src/util/errors.ts'
import { type Tab, type TabBrowser, type TabSettings, tabCrashed, tellClosed } from '../tab.ts'
import type { Bidi, Words } from './bidi.ts'
import type { FirefoxProcess } from './process.ts'

/** How Playwright calls what the console does. */
const consoleTypes: Readonly<Record<string, string>> = { warn: 'warning', groupEnd: 'endGroup' }

const answersName = '__tabringAnswers'

interface Preloaded {
  readonly origin: string
  readonly constants: Readonly<Record<string, unknown>>
  /** Of the functions. */
  readonly names: readonly string[]
  /** Of those that workers call too. */
  readonly forWorkers: readonly string[]
  readonly answersName: string
}

/**
 * Runs in each document of a tab, before its scripts. What the page calls goes through `channel`; answers come by the global `answersName`.
 *
 * It is text in the browser, so it knows nothing of this file.
 */
function preload(
  channel: (json: string) => void,
  { origin, constants, names, forWorkers, answersName }: Preloaded,
): void {
  if (window !== window.top || location.origin !== origin) return
  for (const [name, value] of Object.entries(constants))
    Object.defineProperty(globalThis, name, { value })
  type Settle = [(value: unknown) => void, (error: Error) => void]
  const waiting: Settle[] = []
  const globals = globalThis as unknown as Record<string, (...words: never[]) => unknown>
  for (const name of names)
    globals[name] = (...words: unknown[]) =>
      new Promise((...settle) => {
        const call = waiting.push(settle) - 1
        channel(JSON.stringify({ call, name, words }))
      })
  for (const name of forWorkers)
    new BroadcastChannel(name).onmessage = ({ data }) => globals[name](data as never)
  globals[answersName] = ({ call, value, error }: Answer) => {
    const [resolve, reject] = waiting[call]
    delete waiting[call]
    if (error === undefined) resolve(value)
    else reject(new Error(error))
  }
}

interface Answer {
  readonly call: number
  readonly value?: unknown
  readonly error?: string
}

const events = [
  'browsingContext.contextDestroyed',
  'browsingContext.navigationCommitted',
  'browsingContext.navigationFailed',
  'log.entryAdded',
  'network.responseStarted',
  'script.message',
]

/** A Firefox that launchers can use. */
export class FirefoxTabs implements TabBrowser {
  readonly #bidi: Bidi
  readonly #process: FirefoxProcess
  readonly #tabs = new Map<string, FirefoxTab>()
  readonly #gone = new Set<() => void>()
  /** Of the tabs that are beside each other. */
  #common: Promise<string> | undefined

  constructor(bidi: Bidi, process: FirefoxProcess) {
    this.#bidi = bidi
    this.#process = process
    const tabOf = ({ context, source }: Words) => this.#tabs.get(context ?? source?.context)
    bidi.on('browsingContext.contextDestroyed', (words) => tabOf(words)?.closed())
    bidi.on('browsingContext.navigationCommitted', (words) => tabOf(words)?.hasPage(words.url))
    bidi.on('browsingContext.navigationFailed', (words) => tabOf(words)?.failed('no page'))
    bidi.on('log.entryAdded', (words) => tabOf(words)?.logged(words))
    bidi.on('network.responseStarted', (words) => {
      if (words.navigation !== null) tabOf(words)?.answered(words.response.status)
    })
    bidi.on('script.message', (words) => tabOf(words)?.called(JSON.parse(words.data.value)))
    void bidi.closed.then(() => {
      for (const tab of this.#tabs.values()) tab.closed()
      for (const listener of this.#gone) listener()
    })
  }

  async openTab(settings: TabSettings): Promise<Tab> {
    const makeContext = async (): Promise<string> =>
      (await this.#bidi.send('browser.createUserContext')).userContext
    if (settings.sharesContext) this.#common ??= makeContext()
    const userContext = await (settings.sharesContext ? this.#common! : makeContext())
    const { context } = await this.#bidi.send('browsingContext.create', {
      type: 'window',
      userContext,
    })
    const tab = new FirefoxTab(this.#bidi, { context, userContext }, settings)
    this.#tabs.set(context, tab)
    const contexts = [context]
    await this.#bidi.send('session.subscribe', { events, contexts })
    const { origin, constants = {}, functions = {}, forWorkers = [] } = settings
    const names = Object.keys(functions)
    const given = JSON.stringify({ origin, constants, names, forWorkers, answersName })
    await this.#bidi.send('script.addPreloadScript', {
      functionDeclaration: `(channel) => (${preload})(channel, ${given})`,
      arguments: [{ type: 'channel', value: { channel: context } }],
      contexts,
    })
    return tab
  }

  onGone(listener: () => void): () => void {
    this.#gone.add(listener)
    return () => this.#gone.delete(listener)
  }

  async close(): Promise<void> {
    await this.#process.close()
    await this.#bidi.closed
  }
}

class FirefoxTab implements Tab {
  readonly #bidi: Bidi
  readonly #ids: { readonly context: string; readonly userContext: string }
  readonly #settings: TabSettings
  #isClosed = false
  /** Of the newest page. */
  #status = 0
  #load: { resolve: (status: number) => void; reject: (error: Error) => void } | undefined

  constructor(
    bidi: Bidi,
    ids: { readonly context: string; readonly userContext: string },
    settings: TabSettings,
  ) {
    this.#bidi = bidi
    this.#ids = ids
    this.#settings = settings
  }

  async load(url: string, timeoutMs: number): Promise<number> {
    const { context } = this.#ids
    let timer: NodeJS.Timeout | undefined
    try {
      return await new Promise((resolve, reject) => {
        this.#load = { resolve, reject }
        timer = setTimeout(() => reject(new Error(`Timeout ${timeoutMs}ms`)), timeoutMs)
        this.#bidi.send('browsingContext.navigate', { context, url, wait: 'none' }).catch(reject)
      })
    } finally {
      clearTimeout(timer)
      this.#load = undefined
    }
  }

  async evaluate<Given, Result>(
    run: (given: Given) => Result,
    given: Given,
  ): Promise<Awaited<Result>> {
    const { result, exceptionDetails } = await this.#bidi.send('script.callFunction', {
      functionDeclaration: `async (json) => JSON.stringify((await (${run})(JSON.parse(json))) ?? null)`,
      arguments: [{ type: 'string', value: JSON.stringify(given ?? null) }],
      awaitPromise: true,
      target: { context: this.#ids.context },
    })
    if (exceptionDetails) throw new Error(exceptionDetails.text)
    return JSON.parse(result.value)
  }

  async close(): Promise<void> {
    if (this.#isClosed) return
    const { context, userContext } = this.#ids
    if (this.#settings.sharesContext) await this.#bidi.send('browsingContext.close', { context })
    else await this.#bidi.send('browser.removeUserContext', { userContext })
  }

  // --- what the browser tells ---

  closed(): void {
    if (!this.#isClosed) tellClosed(this.#settings)
    this.#isClosed = true
    this.failed('the tab was closed')
  }

  failed(why: string): void {
    this.#load?.reject(new Error(why))
  }

  answered(status: number): void {
    this.#status = status
  }

  hasPage(url: string): void {
    const { onCrash, onPage } = this.#settings
    this.#load?.resolve(this.#status)
    if (url.startsWith('about:tabcrashed')) onCrash?.(tabCrashed)
    else onPage?.(url)
  }

  logged({ type, level, method, text, args = [], stackTrace }: Words): void {
    const { onConsole, onError } = this.#settings
    if (type === 'console') {
      const areTexts = args.every((one: Words) => one.type === 'string')
      onConsole?.(
        consoleTypes[method] ?? method,
        areTexts ? args.map((one: Words) => one.value).join(' ') : text,
      )
    } else if (type === 'javascript' && level === 'error') {
      const error = new Error(text.replace(/^Error: /, ''))
      error.stack = [text, ...(stackTrace?.callFrames ?? []).map(frameText)].join('\n')
      onError?.(error)
    }
  }

  async called({ call, name, words }: { call: number; name: string; words: never[] }) {
    let answer: Answer
    try {
      answer = { call, value: await this.#settings.functions?.[name](...words) }
    } catch (thrown) {
      answer = { call, error: messageOf(thrown) }
    }
    const take = ([name, answer]: readonly [string, Answer]) => {
      const { [name]: listener } = globalThis as unknown as Record<string, (answer: Answer) => void>
      listener(answer)
    }
    // A page that has gone meanwhile waits for nothing.
    await this.evaluate(take, [answersName, answer] as const).catch(() => undefined)
  }
}

/** A line of a stack, as Chromium has it. BiDi counts lines and columns from 0. */
const frameText = ({ functionName, url, lineNumber, columnNumber }: Words): string => {
  const place = `${url}:${lineNumber + 1}:${columnNumber + 1}`
  return `    at ${functionName ? `${functionName} (${place})` : place}`
}
