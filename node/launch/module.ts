import { stat } from 'node:fs/promises'
import { resolve } from 'node:path'
import type { RankVariables } from '../../src/distributed/rendezvous/env.ts'
import { signalPath } from '../../src/peer/room/messages.ts'
import { TabringError } from '../../src/util/errors.ts'
import type { InjectedEnvironment } from '../../src/util/injected.ts'
import { chosenBrowser } from '../browser-choice.ts'
import { CheckpointFolder } from '../checkpoint-folder.ts'
import { dataMount } from '../mounts.ts'
import type { Screen } from '../screen.ts'
import type { Served } from '../serve.ts'
import { sharedThreads } from '../tab.ts'
import { type BuiltProgram, buildProgram, findModule } from './build-program.ts'
import { checkTypes } from './check-types.ts'
import type { Part } from './coordination/messages.ts'
import { runElasticTabs } from './elastic/elastic-tabs.ts'
import { importTool, requireTools } from './import-tool.ts'
import type { Command, Program, Start } from './launch.ts'
import type { LaunchOptions } from './options.ts'
import { defaultJoinTimeoutMs } from './rendezvous.ts'
import { slurmVariables } from './slurm-job.ts'
import { sourceLines } from './source-lines.ts'
import { runTabs } from './tabs.ts'

/** Groups that an elastic run may have had: each has a room, and the server knows those. */
const maxGroups = 1000

/** Returns `tabring run`: it builds the module, and runs it in each tab with the environment of a rank. */
export function moduleCommand(
  options: LaunchOptions,
  screen: Screen,
  signal: AbortSignal,
): Command {
  const note = (line: string) => screen.note(line)
  const module = findModule(options.module)
  const { checkpointDir, elastic } = options
  const checkpoints = checkpointDir === undefined ? null : new CheckpointFolder(checkpointDir)
  let data: string | undefined
  return {
    name: 'tabring',
    options,
    note,
    stop: () => screen.stop(),
    check: async (plan) => {
      data = options.data === undefined ? undefined : await findFolder(options.data)
      // Which launcher has rank 0 may not be known yet: then that one finds out at the start.
      if (plan.index === 0) await checkpoints?.prove()
      // What drives Firefox is ours.
      const isFirefox = chosenBrowser(options.browser).kind === 'firefox'
      const tools = isFirefox ? (['vite'] as const) : (['vite', 'playwright'] as const)
      await requireTools(tools)
      for (const tool of tools) await importTool(tool)
    },
    prepare: async (toClose) => {
      const types = options.check ? typeCheck(module, note, signal) : null
      if (types) toClose.push(() => types.stop())
      const built = await buildProgram(module)
      toClose.push(() => built.remove())
      noteMissed(built, options, note)
      await types?.done
      const mounts = data === undefined ? undefined : { [dataMount]: data }
      return {
        pages: { root: built.root, policy: null, mounts, writable: checkpoints?.writable },
        moreRooms: elastic ? maxGroups : 0,
        toSource: sourceLines(built.root, process.cwd()),
        run: runner(options, screen, checkpoints),
      }
    },
  }
}

/** Returns what runs the ranks of one start. */
function runner(
  options: LaunchOptions,
  screen: Screen,
  checkpoints: CheckpointFolder | null,
): Program['run'] {
  const { elastic } = options
  let groups = 0
  return async (start) => {
    const { part, ranks, served, browser, switches, restarts, stop, fail, say } = start
    const more = await offered(checkpoints, served, part)
    const all = {
      browser,
      url: served.localUrl,
      switches: { ...sharedThreads(ranks.length), ...switches },
      stop,
      onSay: ({ rank }, stream, text) =>
        say(rank, stream, text, (line) => screen.say(rank, stream, line)),
      // One bar for all: ranks go in step.
      onProgress: (rank, progress) => {
        if (rank === part.firstRank) screen.progress(progress)
      },
      onDevice: (rank, text) => screen.note(`rank ${rank}: ${text}`),
      onFailure: fail,
    } satisfies Parameters<typeof runTabs>[1]
    if (!elastic) {
      const environment = (rank: number) => environmentOf(rank, part, options, start, more)
      await runTabs(
        ranks.map((rank) => ({ rank, environment: environment(rank) })),
        all,
      )
      return
    }
    await runElasticTabs({
      ...all,
      range: { ...elastic, max: ranks.length },
      restarts,
      joinTimeoutMs: options.rdzvConf?.joinTimeoutMs ?? defaultJoinTimeoutMs,
      log: (line) => screen.note(line),
      nextNumber: () => groups++,
      environmentOf: ({ group, rank, worldSize }) => {
        const sizes = { worldSize, localWorldSize: worldSize }
        return environmentOf(rank, { ...part, ...sizes, attempt: group }, options, start, more)
      },
    })
  }
}

/** Says which variables of the shell the module reads and does not get. */
function noteMissed(
  { reads }: BuiltProgram,
  { env = {} }: LaunchOptions,
  note: (line: string) => void,
): void {
  const missed = [...reads].filter(
    (name) => Object.hasOwn(process.env, name) && !Object.hasOwn(env, name),
  )
  if (missed.length > 0)
    note(
      `env: the module reads ${missed.map((name) => `process.env.${name}`).join(', ')} of the shell, which a tab does not have. Pass ${missed.map((name) => `--env ${name}`).join(' ')}.`,
    )
}

/** Starts a check of the module's types, which runs beside other work. */
function typeCheck(module: string, note: (line: string) => void, signal: AbortSignal) {
  const stopped = new AbortController()
  const done = checkTypes(module, { signal: AbortSignal.any([signal, stopped.signal]), note })
  // `prepare` awaits it later, and not at all where the build fails first.
  const settled = done.catch(() => undefined)
  const stop = () => {
    stopped.abort()
    return settled
  }
  return { done, stop }
}

/** errors: `data.missing` when there is no such folder. */
async function findFolder(path: string): Promise<string> {
  const found = await stat(resolve(path)).catch(() => null)
  if (found?.isDirectory()) return resolve(path)
  throw new TabringError(
    'data.missing',
    `--data: ${path} ${found ? 'is not a folder' : 'does not exist'}. Name the folder whose files the module fetches from ${dataMount}.`,
  )
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

function environmentOf(
  rank: number,
  part: Part,
  options: LaunchOptions,
  { plan, coordination, served }: Start,
  more: Pick<RankVariables, 'CHECKPOINT_URL'>,
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
