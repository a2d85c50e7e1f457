import { randomBytes } from 'node:crypto'
import { mkdtemp } from 'node:fs/promises'
import { homedir, hostname, tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { messageOf, TabringError } from '../../src/util/errors.ts'
import { orAbort } from '../../src/util/or-abort.ts'
import { parsed, type SwitchInputs } from '../../src/util/switches.ts'
import { chosenBrowser } from '../browser-choice.ts'
import { lanAddresses } from '../certificate.ts'
import { closeSoon, Interrupt } from '../interrupt.ts'
import { PortTaken } from '../listen.ts'
import { makeFolder } from '../make-folder.ts'
import { browserStarter, hostNote, type StartBrowser } from '../open-browser.ts'
import { Restarts } from '../restarts.ts'
import type { Served } from '../serve.ts'
import type { TabBrowser } from '../tab.ts'
import type { StreamName } from '../tabs.ts'
import type { Failure, Part } from './coordination/messages.ts'
import { countTabs } from './devices.ts'
import type { Outcome } from './failure-text.ts'
import { LogFiles, unwritable } from './log-files.ts'
import type { RankOptions } from './options.ts'
import { notesOnFlags, type Plan, planLaunch } from './plan.ts'
import { type Coordination, rendezvous } from './rendezvous.ts'
import { type Pages, servePages } from './serve-pages.ts'

/** Of a failure's text, stack included. units: characters. */
const failureChars = 16_000

/** What the ranks of a run do: a user's module, or the built-in training. */
export interface Program {
  /** Served to the tabs of this machine. */
  readonly pages: Pages
  /** Rooms that it needs besides one for each start. Default 0. */
  readonly moreRooms?: number
  /** Returns a text with places in the sources in place of those in built files. */
  toSource?(text: string): string
  /** Runs this launcher's ranks of one start; resolves when their tabs are closed. errors: reported as a failure of the launcher. */
  run(start: Start): Promise<void>
}

/** One start of this launcher's ranks. */
export interface Start {
  readonly plan: Plan
  readonly part: Part
  /** Of this launcher. */
  readonly ranks: readonly number[]
  readonly coordination: Coordination
  readonly served: Served
  readonly browser: TabBrowser
  readonly switches: SwitchInputs
  readonly restarts: Restarts
  /** Closes the tabs before they have ended. */
  readonly stop: AbortSignal
  fail(failure: Omit<Failure, 'host'>): void
  /** Takes what a rank prints; `show` gets it unless it goes to a file alone. */
  say(rank: number, stream: StreamName, text: string, show: (text: string) => void): void
}

/** A command that opens ranks. */
export interface Command {
  /** By which it complains. */
  readonly name: string
  readonly options: RankOptions
  /** Checks what was typed, before anything is started. */
  check(plan: Plan): Promise<void>
  /** Gets the program ready, and adds to `toClose` what is to be ended again. */
  prepare(toClose: (() => Promise<unknown>)[]): Promise<Program>
  /** Takes a line for people. */
  note(line: string): void
  /** Leaves the terminal clean. */
  stop(): void
}

/**
 * Gets a program ready, gets in touch with the run's other launchers, runs this one's ranks in tabs, again after a failure where that is asked for,
 * and returns how the run ended.
 *
 * Order: what was typed is checked before anything is started. Whatever was started is ended again in the reverse order, in every case.
 * errors: as said above; the reason of `signal`.
 */
export async function launch(command: Command, signal: AbortSignal): Promise<Outcome> {
  const { options } = command
  const note = (line: string) => command.note(line)
  const name = hostname() || 'this machine'
  const plan = planLaunch(options, {
    environment: process.env,
    hostName: hostname() || (lanAddresses()[0] ?? '127.0.0.1'),
    homeFolder: homedir(),
    randomName: () => randomBytes(8).toString('hex'),
  })
  for (const line of plan.notes) note(line)
  await orAbort(command.check(plan), signal)
  const startBrowser = await browserStarter(chosenBrowser(options.browser))

  const toClose: (() => Promise<unknown>)[] = []
  let leaving = ''
  try {
    const logs = await openLogs(options, note)
    if (logs) toClose.push(async () => logs.close())
    const program = await command.prepare(toClose)
    const { toSource = (text: string) => text } = program
    signal.throwIfAborted()
    const browsers = new Browsers(startBrowser, options, note)
    toClose.push(() => browsers.close())
    const tabs = await countTabs(plan.tabs, () => browsers.fresh(false), {
      maxTabs: plan.maxTabs,
      visibleDevices: parsed('visibleDevices', options.switches.visibleDevices),
      logicalDevices: parsed('logicalDevices', options.switches.logicalDevices),
    })
    for (const line of notesOnFlags(options, plan, tabs)) note(line)
    const member = { index: plan.index, name, tabs, place: plan.place }
    const restarts = new Restarts(options.maxRestarts)
    const ofAll = options.restartsAll === false ? new Restarts(0) : restarts
    const coordination = await rendezvous({
      options,
      plan,
      restarts: ofAll,
      member,
      signal,
      log: note,
    })
    toClose.push(() => coordination.close(leaving))
    const { ice, relay } = options
    const maxRooms = 1 + options.maxRestarts + (program.moreRooms ?? 0)
    const served = await servePages(plan, coordination, program.pages, { ice, relay, maxRooms })
    toClose.push(() => served.close())

    let attempt = 0
    for (;;) {
      const task = await orAbort(coordination.follower.next(), signal)
      if (task.type === 'leave') {
        if (logs?.problem && !task.failure)
          throw unwritable(
            logs.folder,
            `the run has ended, but lines are missing (${logs.problem})`,
          )
        const count = options.restartsAll === false ? attempt : Math.max(restarts.used, attempt)
        return { failure: task.failure, restarts: count, isShared: plan.launchers > 1 }
      }
      const { part } = task
      attempt = part.attempt
      const ranks = Array.from({ length: tabs }, (_, i) => part.firstRank + i)
      const fail = (failure: Omit<Failure, 'host'>) => {
        const text = toSource(failure.text).slice(0, failureChars)
        coordination.follower.failed(part, { ...failure, text, host: name })
      }
      const failBy = (thrown: unknown, where = '') =>
        fail({ rank: null, code: codeOf(thrown), text: `${where}${messageOf(thrown)}` })
      try {
        logs?.open(ranks)
        await program.run({
          plan,
          part,
          ranks,
          coordination,
          served,
          browser: await browsers.fresh(),
          switches: switchesOf(options, plan),
          restarts,
          stop: AbortSignal.any([task.stop, signal]),
          fail,
          say: (rank, stream, text, show) => {
            const localRank = part.localRank + rank - part.firstRank
            const line = toSource(text)
            try {
              if (logs?.write(rank, localRank, stream, line) ?? true) show(line)
            } catch (thrown) {
              failBy(thrown)
            }
          },
        })
      } catch (thrown) {
        signal.throwIfAborted()
        failBy(thrown, 'launcher: ')
      }
      await closeSoon(command.name, () => browsers.close())
      command.stop()
      signal.throwIfAborted()
      coordination.follower.ended(part)
    }
  } catch (thrown) {
    leaving = thrown instanceof Interrupt ? 'interrupted' : messageOf(thrown)
    if (!(thrown instanceof PortTaken)) throw thrown
    throw new TabringError(
      'config.invalid',
      `launcher: port ${plan.masterPort} is in use. Choose another --master-port.`,
    )
  } finally {
    command.stop()
    for (const close of toClose.reverse()) await closeSoon(command.name, close)
  }
}

/** As torchrun: asked for files without a folder, it makes one. */
async function openLogs(
  { logDir, tee, redirects }: RankOptions,
  note: (line: string) => void,
): Promise<LogFiles | null> {
  if (logDir !== undefined) {
    const path = resolve(logDir)
    await makeFolder(path).catch((thrown) => {
      throw unwritable(path, thrown)
    })
    return new LogFiles(path, tee, redirects, note)
  }
  if (tee === undefined && redirects === undefined) return null
  const folder = await mkdtemp(join(tmpdir(), 'tabring-logs-'))
  note(`the output of the ranks is in ${folder}`)
  return new LogFiles(folder, tee, redirects, note)
}

export const codeOf = (thrown: unknown) => (thrown instanceof TabringError ? thrown.code : '')

/** One browser after another: each start of the ranks gets its own, as torchrun starts new processes. */
class Browsers {
  #browser: TabBrowser | null = null
  #isUsed = false

  constructor(
    private readonly start: StartBrowser,
    private readonly options: RankOptions,
    private readonly note: (line: string) => void,
  ) {}

  /** The one that is open already, if no rank has run in it; else a new one. errors: `browser.missing`. */
  async fresh(forRanks = true): Promise<TabBrowser> {
    if (this.#isUsed) await this.close()
    this.#isUsed = forRanks
    if (this.#browser) return this.#browser
    const { switches, adapter, headed } = this.options
    const device = parsed('device', switches.device)
    const note = hostNote(device)
    if (note) this.note(note)
    const timesKernels = Number(switches.debug ?? 0) >= 2 || switches.trace !== undefined
    this.#browser = await this.start(
      adapter,
      { device, isHeaded: headed ?? false, timesKernels },
      this.note,
    )
    return this.#browser
  }

  async close(): Promise<void> {
    const browser = this.#browser
    this.#browser = null
    this.#isUsed = false
    await browser?.close()
  }
}

/** Switches of all tabs: flags and environment, and what Slurm says of processors. */
function switchesOf({ switches, cpusPerTask }: RankOptions, { job }: Plan) {
  const cpus = cpusPerTask ?? job?.cpusPerTask
  const workers = cpus === undefined ? {} : { maxWorkers: String(cpus) }
  return { ...workers, ...switches }
}
