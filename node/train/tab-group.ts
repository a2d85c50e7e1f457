import { stripVTControlCharacters } from 'node:util'
import * as v from 'valibot'
import { memberOf } from '../../src/peer/room/lives.ts'
import { errorCodes } from '../../src/util/error-codes.ts'
import { type ErrorCode, PeerError, TabringError } from '../../src/util/errors.ts'
import type { RunEvent } from '../../src/worker/api.ts'
import { graceMs, isEcho, nearest } from '../nearest-failure.ts'

type Of<Name extends RunEvent['event']> = Extract<RunEvent, { event: Name }>

/** Of an event these fields, and those of `InJson`, which has null for NaN and the infinities. */
type Part<Name extends RunEvent['event'], Keys extends keyof Of<Name>, InJson = object> = Pick<
  Of<Name>,
  'event' | 'rank' | Exclude<Keys, keyof InJson>
> &
  InJson
type Measured = { readonly loss: number | null; readonly value: number | null }

/**
 * Events that tabs report while they run, through the page function `__tabringEvent`: the part of the trainer's that the launcher uses. Every rank
 * reports its events.
 */
export type TabEvent =
  | Part<
      'step',
      'step' | 'totalSteps' | 'epoch' | 'globalSamples' | 'stateHash',
      Measured & { readonly times: Readonly<Record<string, number>> }
    >
  | Part<'evaluation', 'step' | 'epoch' | 'metric', Measured>
  | Part<
      'resumed',
      'step' | 'epoch' | 'holders' | 'stepsLeft' | 'differences',
      { readonly best: number | null }
    >
  | Part<'paused' | 'continued', 'step'>
  | Part<'devices', 'step' | 'devices'>
  | Part<'group', 'step' | 'members' | 'proof'>
  | Part<'unlike', 'step' | 'text' | 'isLasting'>
  | Of<
      | 'phase'
      | 'checkpoint'
      | 'assigned'
      | 'leftOut'
      | 'unsaved'
      | 'lost'
      | 'regrouped'
      | 'state'
      | 'waits'
      | 'holdsUp'
      | 'broke'
      | 'undecided'
    >

/** What a tab tells at its end, through `__tabringDone`; fields beyond these pass unread. */
const doneSchema = v.variant('ok', [
  v.object({
    ok: v.literal(true),
    rank: v.pipe(v.number(), v.safeInteger(), v.minValue(0)),
    /** As the data channels' own statistics count them, where all links are such; else as the rank counts. */
    bytesSent: v.number(),
    /** How its links go: `webrtc`, `port` or `relay`, to each of its neighbours. */
    links: v.optional(v.array(v.string()), []),
    result: v.object({
      steps: v.number(),
      /** Of the last step's global batch. */
      loss: v.nullable(v.union([v.number(), v.nan()])),
      /** What the demo measures, over the same samples; null where no step was left. */
      trainValue: v.nullable(v.union([v.number(), v.nan()])),
      testAccuracy: v.nullable(v.number()),
      /** Over all held-out samples. */
      heldOutLoss: v.nullable(v.number()),
      value: v.nullable(v.number()),
      /** Over the parameters that this rank's GPU holds. */
      paramHash: v.string(),
      /** That this rank trained on. */
      samples: v.number(),
      seconds: v.number(),
    }),
  }),
  v.object({
    ok: v.literal(false),
    /** Null when the tab ended before it had one. */
    rank: v.optional(v.nullable(v.number()), null),
    code: v.optional(v.string(), 'unknown'),
    message: v.string(),
    /** An elastic run continues without it. */
    isLeftOut: v.optional(v.boolean(), false),
  }),
])

export type TabDone = v.InferOutput<typeof doneSchema>
export type RankResult = Omit<Extract<TabDone, { ok: true }>, 'ok'>

type Undecided = Extract<TabEvent, { event: 'undecided' }>

interface TabState {
  /** Its id in the room, once the room has a run. */
  member: string | null
  /** Null before the run has begun in it, or has taken it in. */
  rank: number | null
  doing: string
  done: RankResult | null
  /** It was opened while the others trained. */
  readonly joins: boolean
  /** It counts no more: it was lost, and the others continue. */
  isGone: boolean
  /** What it waits for where it may not decide to continue. */
  undecided: Undecided | null
}

const newTab = (joins: boolean): TabState => ({
  member: null,
  rank: null,
  doing: 'opening',
  done: null,
  joins,
  isGone: false,
  undecided: null,
})

export interface TabGroupOptions {
  readonly worldSize: number
  readonly timeoutMs: number
  readonly onEvent: (event: TabEvent) => void
  /** All ranks must end with equal parameters. Default: true. */
  readonly hasOneModel?: boolean
  /** The run is elastic: it continues without a tab that is lost, which this tells of. Without it a lost tab ends the run. */
  readonly onLost?: (text: string) => void
  /** The run continues without the tab, which must not come back into it. */
  readonly onGone?: (tab: number) => void
  /** A rank may not decide to continue: `text` names those that it waits for. Null: they are all gone, so that the launcher can answer for it. */
  readonly onUndecided?: (tab: number, text: string | null) => void
  /** Steps of the run are lost, as `text` says. */
  readonly onStepsLost?: (text: string) => void
}

/**
 * What is known of a run's tabs: collects their words, and settles `finished` once.
 *
 * It knows no browser, only numbered tabs; time comes from `now` and `after`.
 */
export class TabGroup {
  /** The results in rank order, when every tab has ended well. errors: the failure nearest to the cause. */
  readonly finished: Promise<RankResult[]>
  /** Resolves when any tab has sent an event: the run has begun. */
  readonly firstWord: Promise<void>
  readonly #tabs: TabState[]
  readonly #options: TabGroupOptions
  readonly #failures: TabringError[] = []
  /** Tabs that were lost since the run last continued with other ranks. */
  #lost: string[] = []
  #hearFirstWord!: () => void
  #resolve!: (results: RankResult[]) => void
  #reject!: (error: Error) => void
  #lastHeardMs: number
  #timer: NodeJS.Timeout | undefined
  readonly #watchdog: NodeJS.Timeout
  /** The end of a tab from now on says nothing of the run. */
  #isOver = false

  constructor(options: TabGroupOptions) {
    const { worldSize, timeoutMs } = options
    this.#options = options
    this.#tabs = Array.from({ length: worldSize }, () => newTab(false))
    this.finished = new Promise((resolve, reject) => {
      this.#resolve = resolve
      this.#reject = reject
    })
    this.firstWord = new Promise((resolve) => {
      this.#hearFirstWord = resolve
    })
    this.finished.catch(() => undefined)
    this.#lastHeardMs = performance.now()
    this.#watchdog = setInterval(() => this.#checkSilence(timeoutMs), Math.min(1000, timeoutMs / 4))
  }

  /** Null as long as it has none. */
  rankOf(tab: number): number | null {
    return this.#tabs[tab].rank
  }

  /** `rank 2`, or `tab 3 of 4` as long as it has no rank. */
  nameOf(tab: number): string {
    const { rank, joins } = this.#tabs[tab]
    if (rank !== null) return `rank ${rank}`
    return joins ? 'the new tab' : `tab ${tab + 1} of ${this.#options.worldSize}`
  }

  /** Takes the tab's id in the room. */
  isMember(tab: number, id: string): void {
    this.#tabs[tab].member = id
  }

  /** Counts another tab, which joins the run; returns its number. */
  add(): number {
    return this.#tabs.push(newTab(true)) - 1
  }

  /** Tabs that are ranks of the run. */
  get ranks(): number {
    return this.#tabs.filter(({ rank, isGone }) => rank !== null && !isGone).length
  }

  /** Tabs that are to be ranks, and are not yet. */
  get coming(): number {
    return this.#tabs.filter(({ rank, isGone }) => rank === null && !isGone).length
  }

  /** Returns whether the tab has said that its part ended well. */
  isDone(tab: number): boolean {
    return this.#tabs[tab].done !== null
  }

  /** Takes an event that `tab` sent: JSON text, or what it stands for. */
  event(tab: number, words: unknown): void {
    this.#lastHeardMs = performance.now()
    this.#hearFirstWord()
    const event = (typeof words === 'string' ? JSON.parse(words) : words) as TabEvent
    const state = this.#tabs[tab]
    const hasRegrouped = event.event === 'regrouped'
    // One that joins gets ready first, under a rank that another may have.
    if (!state.joins || state.rank !== null || hasRegrouped) state.rank = event.rank
    if (hasRegrouped) this.#lost = []
    if (event.event === 'phase') state.doing = event.phase
    if (event.event === 'step') state.doing = `step ${event.step}`
    this.#options.onEvent(event)
    if (event.event === 'undecided') this.#hesitates(tab, event)
  }

  /** Takes the end that `tab` reports. */
  done(tab: number, words: unknown): void {
    this.#lastHeardMs = performance.now()
    const parsed = v.safeParse(doneSchema, typeof words === 'string' ? JSON.parse(words) : words)
    if (!parsed.success) {
      const [issue] = parsed.issues
      this.fail(tab, 'unknown', `its result is invalid: bad ${v.getDotPath(issue)}`)
      return
    }
    const done = parsed.output
    const state = this.#tabs[tab]
    // A tab that joins may have a rank before the run has begun in it.
    if (done.rank !== null && (done.ok || !state.joins)) state.rank = done.rank
    if (!done.ok) {
      const { code, message, isLeftOut } = done
      const isLost = code === 'worker.dead' || code === 'signal.lost' || isLeftOut
      if (isLost) this.lose(tab, message, code)
      else this.fail(tab, code, message)
      return
    }
    const { rank, result, bytesSent, links } = done
    state.done = { rank, result, bytesSent, links }
    state.doing = 'done'
    this.#succeedIfDone()
  }

  /** Takes the loss of `tab`: an elastic run that has begun continues with the others. Else it is a failure. */
  lose(tab: number, text: string, code = ''): void {
    const state = this.#tabs[tab]
    if (state.isGone || this.#isOver) return
    const hasOthers = this.#tabs.some((one) => one !== state && !one.isGone && one.rank !== null)
    if (hasOthers && (state.rank !== null || state.joins) && this.#goesOn(tab, text)) return
    const isLast = this.#options.onLost && state.rank !== null
    this.fail(tab, code, isLast ? `${text} No other rank is left.` : text)
  }

  /** Takes a failure of `tab`. The run is over; a moment later the failure nearest to the cause is reported. */
  fail(tab: number, code: string, message: string): void {
    const { joins, isGone, rank } = this.#tabs[tab]
    if (isGone || this.#isOver || (joins && rank === null && this.#goesOn(tab, message))) return
    const known = Object.hasOwn(errorCodes, code) ? (code as ErrorCode) : 'worker.dead'
    const name = this.nameOf(tab)
    const text = message.startsWith(`${name}:`) ? message : `${name}: ${message}`
    this.#failures.push(new TabringError(known, oneLine(text)))
    clearInterval(this.#watchdog)
    const end = () => this.#reject(nearest(this.#failures)!)
    if (isEcho(code)) this.#timer ??= setTimeout(end, graceMs)
    else end()
  }

  /** Ends the run with a failure that no tab reported, such as the browser's end. */
  failAll(error: Error): void {
    clearInterval(this.#watchdog)
    this.#reject(error)
  }

  /** Stops waiting; `finished` stays as it is, or pending. */
  stop(): void {
    this.#isOver = true
    clearInterval(this.#watchdog)
    clearTimeout(this.#timer)
  }

  /** Returns whether the run continues without the tab. */
  #goesOn(tab: number, text: string): boolean {
    const { onLost } = this.#options
    if (!onLost || this.#failures.length > 0) return false
    const name = this.nameOf(tab)
    if (this.#tabs[tab].rank !== null) this.#lost.push(name)
    this.#tabs[tab].isGone = true
    this.#options.onGone?.(tab)
    onLost(`${name}: ${oneLine(text)}`)
    for (const other of this.#tabs.keys()) this.#decide(other)
    this.#succeedIfDone()
    return true
  }

  /** Takes the ids of those without which the tab may not decide to continue. */
  #hesitates(tab: number, event: Undecided): void {
    const { missing, hadMore } = event
    this.#tabs[tab].undecided = missing && event
    if (!missing || this.#decide(tab)) return
    const others = missing
      .map((id) => this.#tabOf(id))
      .filter((other) => other >= 0 && !this.#tabs[other].isGone)
    const names = others.map((other) => this.nameOf(other)).join(', ') || 'other ranks'
    const why = hadMore ? `had newer steps: here ${newestWords(event)}` : 'may train on without it'
    this.#options.onUndecided?.(
      tab,
      `${this.nameOf(tab)} waits for ${names}, which ${why}. End with Ctrl-C, and continue from a checkpoint (--resume).`,
    )
  }

  /** Tells the tab to continue where it waits only for those that are gone for sure; returns whether it did. */
  #decide(tab: number): boolean {
    const state = this.#tabs[tab]
    const { undecided } = state
    const isGone = (id: string) => this.#tabs[this.#tabOf(id)]?.isGone === true
    if (state.isGone || !undecided?.missing?.length || !undecided.missing.every(isGone))
      return false
    state.undecided = null
    if (undecided.hadMore)
      this.#options.onStepsLost?.(
        `The ranks that are gone had newer steps, which are lost: ${newestWords(undecided)}.`,
      )
    this.#options.onUndecided?.(tab, null)
    return true
  }

  /** -1 where it is not known. */
  #tabOf(life: string): number {
    return this.#tabs.findIndex(({ member }) => member === memberOf(life))
  }

  #succeedIfDone(): void {
    const waited = this.#tabs.filter(
      ({ isGone, joins, rank }) => !isGone && !(joins && rank === null),
    )
    if (this.#failures.length > 0 || !waited.every(({ done }) => done)) return
    this.stop()
    const results = waited.map(({ done }) => done!).sort((a, b) => a.rank - b.rank)
    const hashes = new Set(results.map(({ result }) => result.paramHash))
    const { hasOneModel = true } = this.#options
    if (hashes.size === 1 || !hasOneModel) this.#resolve(results)
    else
      this.#reject(
        new TabringError(
          'train.diverged',
          `end of run: ranks end with different parameters (hashes ${results.map(({ result }) => result.paramHash).join(' ')}). This is a defect, or an adapter computes wrong results.`,
        ),
      )
  }

  #checkSilence(timeoutMs: number): void {
    const silentMs = performance.now() - this.#lastHeardMs
    if (silentMs < timeoutMs) return
    const waiting = this.#tabs
      .map((state, tab) => ({ ...state, name: this.nameOf(tab) }))
      .filter((state) => !state.done && !state.isGone)
      .map((state) => `${state.name} (${state.doing})`)
      .join(', ')
    const text =
      this.#lost.length > 0
        ? `${this.#lost.join(', ')}: lost, and within ${timeoutMs / 1000} s the run has not continued with ${waiting}. Start again, with --resume from a checkpoint.`
        : `no message within ${timeoutMs / 1000} s from ${waiting}. Raise --timeout if the machine is slow.`
    this.failAll(new PeerError('peer.timeout', text))
  }
}

/** From where the run continues with what the ranks that are here have. */
const newestWords = ({ step }: Undecided): string =>
  step === null ? 'nobody has its state, and it begins again' : `the newest is step ${step}`

/** `text` without line breaks, terminal colours and what follows a stack's first line. */
export function oneLine(text: string): string {
  return stripVTControlCharacters(text)
    .split(/\n\s+at /)[0]
    .replace(/\s*\n\s*/g, ' ')
    .trim()
}
