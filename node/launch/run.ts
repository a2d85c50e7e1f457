import { randomBytes } from 'node:crypto'
import { mkdtemp, stat } from 'node:fs/promises'
import { homedir, hostname, tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import type { RankVariables } from '../../src/distributed/rendezvous/env.ts'
import { signalPath } from '../../src/peer/room/messages.ts'
import { messageOf, TabringError } from '../../src/util/errors.ts'
import type { InjectedEnvironment } from '../../src/util/injected.ts'
import { orAbort } from '../../src/util/or-abort.ts'
import { parsed } from '../../src/util/switches.ts'
import { chosenBrowser } from '../browser-choice.ts'
import { lanAddresses } from '../certificate.ts'
import { CheckpointFolder } from '../checkpoint-folder.ts'
import { closeSoon, Interrupt } from '../interrupt.ts'
import { PortTaken } from '../listen.ts'
import { makeFolder } from '../make-folder.ts'
import { dataMount } from '../mounts.ts'
import { browserStarter, hostNote, type StartBrowser } from '../open-browser.ts'
import { Restarts } from '../restarts.ts'
import type { Served } from '../serve.ts'
import { sharedThreads, type TabBrowser } from '../tab.ts'
import { buildProgram, findModule } from './build-program.ts'
import { checkTypes } from './check-types.ts'
import type { Failure, Part } from './coordination/messages.ts'
import { countTabs } from './devices.ts'
import { runElasticTabs } from './elastic/elastic-tabs.ts'
import type { Outcome } from './failure-text.ts'
import { importTool, requireTools } from './import-tool.ts'
import { LogFiles, unwritable } from './log-files.ts'
import type { LaunchOptions } from './options.ts'
import { notesOnFlags, type Plan, planLaunch } from './plan.ts'
import { type Coordination, defaultJoinTimeoutMs, rendezvous } from './rendezvous.ts'
import type { Screen } from './screen.ts'
import { servePages } from './serve-pages.ts'
import { slurmVariables } from './slurm-job.ts'
import { sourceLines } from './source-lines.ts'
import { runTabs, type TabsOptions } from './tabs.ts'

/** Of a failure's text, stack included. units: characters. */
const failureChars = 16_000
/** Groups that an elastic run may have had: each has a room, and the server knows those. */
const maxGroups = 1000

/**
 * `tabring run`: builds the module, gets in touch with the run's other launchers, runs this one's ranks in tabs, again after a failure where that is
 * asked for, and says how it ended.
 *
 * Order: what was typed is checked before anything is started. Whatever was started is ended again in the reverse order, in every case.
 * errors: as said above; the reason of `signal`.
 */
export async function launch(
  options: LaunchOptions,
  screen: Screen,
  signal: AbortSignal,
): Promise<Outcome> {
  const name = hostname() || 'this machine'
  const plan = planLaunch(options, {
    environment: process.env,
    hostName: hostname() || (lanAddresses()[0] ?? '127.0.0.1'),
    homeFolder: homedir(),
    randomName: () => randomBytes(8).toString('hex'),
  })
  for (const note of plan.notes) screen.note(note)
  const module = findModule(options.module)
  const { data: dataFolder } = options
  const data = dataFolder === undefined ? undefined : await orAbort(findFolder(dataFolder), signal)
  const { checkpointDir } = options
  const checkpoints = checkpointDir === undefined ? null : new CheckpointFolder(checkpointDir)
  // Which launcher has rank 0 may not be known yet: then that one finds out at the start.
  if (plan.index === 0 && checkpoints) await orAbort(checkpoints.prove(), signal)
  const choice = chosenBrowser(options.browser)
  // What drives Firefox is ours.
  const tools = choice.kind === 'firefox' ? (['vite'] as const) : (['vite', 'playwright'] as const)
  await requireTools(tools)
  for (const tool of tools) await importTool(tool)
  const startBrowser = await browserStarter(choice)

  const toClose: (() => Promise<unknown>)[] = []
  let coordination: Coordination | null = null
  let leaving = ''
  try {
    const logs = await openLogs(options, (line) => screen.note(line))
    if (logs) toClose.push(async () => logs.close())
    const types = options.check ? typeCheck(module, screen, signal) : null
    if (types) toClose.push(() => types.stop())
    const built = await buildProgram(module)
    toClose.push(() => built.remove())
    const missed = [...built.reads].filter(
      (name) => Object.hasOwn(process.env, name) && !Object.hasOwn(options.env ?? {}, name),
    )
    if (missed.length > 0)
      screen.note(
        `env: the module reads ${missed.map((name) => `process.env.${name}`).join(', ')} of the shell, which a tab does not have. Pass ${missed.map((name) => `--env ${name}`).join(' ')}.`,
      )
    await types?.done
    signal.throwIfAborted()
    const browsers = new Browsers(startBrowser, options, (line) => screen.note(line))
    toClose.push(() => browsers.close())

    const tabs = await countTabs(plan.tabs, () => browsers.fresh(false), {
      maxTabs: plan.maxTabs,
      visibleDevices: parsed('visibleDevices', options.switches.visibleDevices),
      logicalDevices: parsed('logicalDevices', options.switches.logicalDevices),
    })
    for (const note of notesOnFlags(options, plan, tabs)) screen.note(note)
    const member = { index: plan.index, name, tabs, place: plan.place }
    const log = (line: string) => screen.note(line)
    const used = new Restarts(options.maxRestarts)
    coordination = await rendezvous({ options, plan, restarts: used, member, signal, log })
    const joined = coordination
    toClose.push(() => joined.close(leaving))
    const { ice, relay } = options
    const pages = {
      root: built.root,
      data,
      checkpoints,
      ice,
      relay,
      maxRooms: 1 + options.maxRestarts + (options.elastic ? maxGroups : 0),
    }
    const served = await servePages(plan, joined, pages)
    toClose.push(() => served.close())

    const toSource = sourceLines(built.root, process.cwd())
    let restarts = 0
    let groups = 0
    for (;;) {
      const task = await orAbort(joined.follower.next(), signal)
      if (task.type === 'leave') {
        const count = options.elastic ? used.used : restarts
        return { failure: task.failure, restarts: count, isShared: plan.launchers > 1 }
      }
      const { part } = task
      restarts = part.attempt
      const fail = (failure: Omit<Failure, 'host'>) => {
        const text = toSource(failure.text).slice(0, failureChars)
        joined.follower.failed(part, { ...failure, text, host: name })
      }
      try {
        const ranks = Array.from({ length: tabs }, (_, i) => part.firstRank + i)
        const folder = await orAbort(offered(checkpoints, served, part), signal)
        logs?.open(ranks)
        const browser = await browsers.fresh()
        const given = { options, plan, coordination: joined, served, more: folder }
        const all: Omit<TabsOptions, 'tabs'> = {
          browser,
          url: served.localUrl,
          switches: switchesOf(options, plan, tabs),
          stop: AbortSignal.any([task.stop, signal]),
          onSay: (rank, stream, text) => {
            const localRank = part.localRank + rank - part.firstRank
            try {
              const line = toSource(text)
              if (logs?.write(rank, localRank, stream, line) ?? true) screen.say(rank, stream, line)
            } catch (thrown) {
              fail({ rank: null, code: codeOf(thrown), text: messageOf(thrown) })
            }
          },
          // One bar for all: ranks go in step.
          onProgress: (rank, progress) => {
            if (rank === part.firstRank) screen.progress(progress)
          },
          onDevice: (rank, text) => screen.note(`rank ${rank}: ${text}`),
          onFailure: fail,
        }
        const { elastic } = options
        if (elastic)
          await runElasticTabs({
            ...all,
            range: { ...elastic, max: tabs },
            restarts: used,
            joinTimeoutMs: options.rdzvConf?.joinTimeoutMs ?? defaultJoinTimeoutMs,
            log,
            nextNumber: () => groups++,
            environmentOf: ({ group, rank, worldSize }) => {
              const sizes = { worldSize, localWorldSize: worldSize }
              return environmentOf(rank, { ...part, ...sizes, attempt: group }, given)
            },
          })
        else
          await runTabs({
            ...all,
            tabs: ranks.map((rank) => ({ rank, environment: environmentOf(rank, part, given) })),
          })
      } catch (thrown) {
        signal.throwIfAborted()
        fail({ rank: null, code: codeOf(thrown), text: `launcher: ${messageOf(thrown)}` })
      }
      await closeSoon('tabring', () => browsers.close())
      screen.stop()
      signal.throwIfAborted()
      joined.follower.ended(part)
    }
  } catch (thrown) {
    leaving = thrown instanceof Interrupt ? 'interrupted' : messageOf(thrown)
    if (!(thrown instanceof PortTaken)) throw thrown
    throw new TabringError(
      'config.invalid',
      `launcher: port ${plan.masterPort} is in use. Choose another --master-port.`,
    )
  } finally {
    screen.stop()
    for (const close of toClose.reverse()) await closeSoon('tabring', close)
  }
}

/** Starts a check of the module's types, which runs beside other work. */
function typeCheck(module: string, screen: Screen, signal: AbortSignal) {
  const stopped = new AbortController()
  const done = checkTypes(module, {
    signal: AbortSignal.any([signal, stopped.signal]),
    note: (line) => screen.note(line),
  })
  // Whoever waits for it hears of it later; nobody does where the build fails first.
  const settled = done.catch(() => undefined)
  const stop = () => {
    stopped.abort()
    return settled
  }
  return { done, stop }
}

/** As torchrun: asked for files without a folder, it makes one. */
async function openLogs(
  { logDir, tee, redirects }: LaunchOptions,
  note: (line: string) => void,
): Promise<LogFiles | null> {
  if (logDir !== undefined) {
    const path = resolve(logDir)
    await makeFolder(path).catch((thrown) => {
      throw unwritable(path, thrown)
    })
    return new LogFiles(path, tee, redirects)
  }
  if (tee === undefined && redirects === undefined) return null
  const folder = await mkdtemp(join(tmpdir(), 'tabring-logs-'))
  note(`the output of the ranks is in ${folder}`)
  return new LogFiles(folder, tee, redirects)
}

const codeOf = (thrown: unknown) => (thrown instanceof TabringError ? thrown.code : '')

/** errors: `data.missing` when there is no such folder. */
async function findFolder(path: string): Promise<string> {
  const found = await stat(resolve(path)).catch(() => null)
  if (found?.isDirectory()) return resolve(path)
  throw new TabringError(
    'data.missing',
    `--data: ${path} ${found ? 'is not a folder' : 'does not exist'}. Name the folder whose files the module fetches from ${dataMount}.`,
  )
}

/** One browser after another: each start of the ranks gets its own, as torchrun starts new processes. */
class Browsers {
  #browser: TabBrowser | null = null
  #isUsed = false

  constructor(
    private readonly start: StartBrowser,
    private readonly options: LaunchOptions,
    private readonly note: (line: string) => void,
  ) {}

  /** The one that is open already, if no rank has run in it; else a new one. errors: `browser.missing`. */
  async fresh(forRanks = true): Promise<TabBrowser> {
    if (this.#isUsed) await this.close()
    this.#isUsed = forRanks
    if (this.#browser) return this.#browser
    const { switches, adapter, headed, debug } = this.options
    const device = parsed('device', switches.device)
    const note = hostNote(device)
    if (note) this.note(note)
    this.#browser = await this.start(
      adapter,
      { device, isHeaded: headed ?? false, timesKernels: Number(debug ?? 0) >= 2 },
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

/** The address for one start of the folder for checkpoints, which is on the machine of rank 0. errors: `file.unwritable`. */
async function offered(
  checkpoints: CheckpointFolder | null,
  { localUrl }: Served,
  { firstRank }: Part,
): Promise<Pick<RankVariables, 'CHECKPOINT_URL'>> {
  if (!checkpoints) return {}
  if (firstRank !== 0) return { CHECKPOINT_URL: '' }
  await checkpoints.prove()
  return { CHECKPOINT_URL: new URL(checkpoints.offer(), localUrl).href }
}

/** What `tabs` tabs get by their address: flags and environment, and what Slurm says of processors. */
function switchesOf({ switches, cpusPerTask }: LaunchOptions, { job }: Plan, tabs: number) {
  const cpus = cpusPerTask ?? job?.cpusPerTask
  const workers = cpus === undefined ? {} : { maxWorkers: String(cpus) }
  return { ...sharedThreads(tabs), ...workers, ...switches }
}

function environmentOf(
  rank: number,
  part: Part,
  {
    options,
    plan,
    coordination,
    served,
    more,
  }: {
    options: LaunchOptions
    plan: Plan
    coordination: Coordination
    served: Served
    more: Pick<RankVariables, 'CHECKPOINT_URL'>
  },
): InjectedEnvironment {
  const { worldSize, nodeRank, attempt } = part
  const localRank = part.localRank + rank - part.firstRank
  const { room, key } = coordination.keys.room(attempt)
  const own: RankVariables = {
    RANK: String(rank),
    LOCAL_RANK: String(localRank),
    WORLD_SIZE: String(worldSize),
    LOCAL_WORLD_SIZE: String(part.localWorldSize),
    GROUP_RANK: String(nodeRank),
    NODE_RANK: String(nodeRank),
    MASTER_ADDR: coordination.masterAddr,
    MASTER_PORT: String(coordination.signaling ? coordination.masterPort : served.port),
    MASTER_URL: `ws://localhost:${served.port}${signalPath}`,
    ROOM_ID: room,
    ROOM_KEY: key,
    RELAY: options.relay ? 'fallback' : 'off',
    RUN_ID: plan.runId,
    RESTART_COUNT: String(attempt),
    MAX_RESTARTS: String(options.maxRestarts),
    ...more,
  }
  const slurm = plan.job
    ? slurmVariables(process.env, { rank, worldSize, localRank, nodeRank })
    : {}
  const { localRankArgument } = options
  return {
    variables: { ...options.env, ...slurm, ...own },
    args: localRankArgument
      ? [`${localRankArgument}=${localRank}`, ...options.args]
      : [...options.args],
  }
}
