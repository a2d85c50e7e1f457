import { hostname } from 'node:os'
import { defaultMasterPort, type Variables } from '../../src/distributed/rendezvous/slurm.ts'
import { TabringError } from '../../src/util/errors.ts'
import { formatRanks } from '../../src/util/format-ranks.ts'
import type { RankRange } from '../rank-range.ts'
import type { LauncherMember } from './coordination/messages.ts'
import type { TabChoice } from './flags.ts'
import type { RankOptions } from './options.ts'
import { readSlurmJob, refuseScript, type SlurmJob } from './slurm-job.ts'

/** What one launcher is to do in its run, as far as it can be known before anything is started. */
export interface Plan {
  /** How many launchers the run has, at most. */
  launchers: number
  /** And at least. */
  minLaunchers: number
  /** Its place among them; null: the one whose machine has the master's address is the first, the others take what is free. */
  index: number | null
  /** `alone`: no other launcher. `leader`: has rank 0. `either`: the leader, if its machine has the address and the port is free. */
  role: 'alone' | 'leader' | 'member' | 'either'
  tabs: number | TabChoice
  /** No more tabs than this on this machine. */
  maxTabs?: number
  place: LauncherMember['place']
  masterAddr: string
  masterPort: number
  /** Take that port or fail; else the next best. */
  isPortFixed: boolean
  runId: string
  /** Where the leader leaves port, key and fingerprint for the others; absent: they get them by hand. */
  rendezvousFile?: string
  job: SlurmJob | null
  /** Lines for people, printed first. */
  notes: string[]
}

/** What a plan takes from its machine. */
export interface Surroundings {
  environment: Variables
  /** This machine's name in its network. */
  hostName: string
  /** A folder that is the same on all nodes of a cluster, as a rule: the user's home. */
  homeFolder: string
  /** Letters and digits, another each time. */
  randomName: () => string
}

/**
 * Returns what a launcher does with its options where it was started: flags go before Slurm's variables, those before torchrun's defaults.
 *
 * errors: `config.invalid` where they contradict each other.
 */
export function planLaunch(options: RankOptions, around: Surroundings): Plan {
  const job = options.standalone ? null : readSlurmJob(around.environment)
  const plan = job ? planInSlurm(options, job, around) : planByFlags(options, around)
  const { gres: gpus = job?.gpusHere } = options
  if (gpus !== undefined && !plan.place) {
    plan.maxTabs = gpus
    if (typeof plan.tabs === 'number' && plan.tabs > gpus) {
      plan.notes.push(
        `${plan.tabs} tabs requested on this machine, but gpu:${gpus} allows ${gpus}: opening ${gpus}`,
      )
      plan.tabs = gpus
    }
  }
  if (options.elastic) checkElastic(options.elastic, plan)
  const words = describe(options, plan)
  // Of many launchers on a machine one says it.
  if (words && (!plan.place || plan.index === 0)) plan.notes.unshift(words)
  return plan
}

const isHere = (host: string) => /^(?:localhost|127\..*|::1)$/.test(host) || host === hostname()

/** Lines about flags that change nothing in a launcher of so many tabs. */
export function notesOnFlags(
  options: RankOptions,
  { place, launchers, index }: Pick<Plan, 'place' | 'launchers' | 'index'>,
  tabs: number,
): string[] {
  const notes: string[] = []
  // Of many launchers on a machine one says it.
  if (place && index !== 0) return notes
  const { tee, redirects, relay } = options
  const here = place?.localWorldSize ?? tabs
  for (const [flag, streams] of Object.entries({ '--tee': tee, '--redirects': redirects })) {
    const named = typeof streams === 'object' ? Object.keys(streams).map(Number) : []
    const missing = named.filter((rank) => rank >= here)
    if (missing.length > 0)
      notes.push(
        `${flag}: this machine has no local ${formatRanks(missing)}. Local ranks are numbered from 0, and it has ${here}.`,
      )
  }
  if (relay && launchers * tabs === 1)
    notes.push('--relay: changes nothing in a run of one rank, which sends to nobody.')
  const { host } = addressIn(options)
  if (launchers === 1 && host !== undefined && !isHere(host))
    notes.push(
      `${options.masterAddr ? '--master-addr' : '--rdzv-endpoint'}: a run of one machine meets no other at ${host}. Pass --nnodes for several machines.`,
    )
  return notes
}

/** errors: `config.invalid` for a run of several launchers, or on a machine with fewer devices than MIN. */
function checkElastic({ min }: RankRange, { launchers, tabs }: Plan): void {
  if (launchers > 1)
    throw new TabringError(
      'config.invalid',
      `--elastic: works with one launcher, and this run has up to ${launchers}. Use --nnodes MIN:MAX with --max-restarts, which restarts all ranks when a machine is lost or joins.`,
    )
  if (typeof tabs === 'number' && tabs < min)
    throw new TabringError(
      'config.invalid',
      `--elastic: expected MIN of at most ${tabs}, the tabs that this machine may open, got ${min}. Lower it, or raise --gres.`,
    )
}

/** The address that flags name. */
const addressIn = ({ masterAddr, masterPort, rdzvEndpoint }: RankOptions) => ({
  host: masterAddr ?? rdzvEndpoint?.host,
  port: masterPort ?? rdzvEndpoint?.port,
})

const tabsIn = ({ elastic, nprocPerNode, ntasksPerNode }: RankOptions) =>
  elastic?.max ?? nprocPerNode ?? ntasksPerNode

function planByFlags(options: RankOptions, around: Surroundings): Plan {
  const { nnodes = { min: 1, max: 1 }, nodeRank, standalone } = options
  const { min: minLaunchers, max: launchers } = nnodes
  const { host, port } = standalone ? {} : addressIn(options)
  const isAlone = launchers === 1
  if (isAlone && nodeRank) {
    throw new TabringError(
      'config.invalid',
      `--node-rank: a run of one machine has none but 0, got ${nodeRank}. Pass --nnodes, or omit it.`,
    )
  }
  if (isAlone && options.pin) {
    throw new TabringError(
      'config.invalid',
      '--master-fingerprint: a run of one machine connects to no other. Pass --nnodes, or omit it.',
    )
  }
  if (!isAlone && host === undefined && nodeRank !== 0) {
    throw new TabringError(
      'config.invalid',
      '--master-addr: the address of machine 0 is missing. Pass it, or pass --node-rank 0 to the launcher there.',
    )
  }
  if (port === 0 && !isAlone && nodeRank !== 0 && options.rdzvConf?.file === undefined) {
    throw new TabringError(
      'config.invalid',
      '--master-port: expected the port of machine 0, got 0, which means any free port. Pass the one that its launcher prints, or pass --rdzv-conf file=PATH to all launchers.',
    )
  }
  return {
    launchers,
    minLaunchers,
    index: isAlone ? 0 : (nodeRank ?? null),
    role: isAlone
      ? 'alone'
      : nodeRank === undefined
        ? 'either'
        : nodeRank === 0
          ? 'leader'
          : 'member',
    tabs: tabsIn(options) ?? 1,
    place: null,
    masterAddr: host ?? (isAlone ? '127.0.0.1' : around.hostName),
    masterPort: port ?? (isAlone && options.anyPort ? 0 : defaultMasterPort),
    isPortFixed: port !== 0 && (!isAlone || port !== undefined),
    // As torchrun: every run by hand is called none, unless it is alone.
    runId: options.rdzvId ?? (isAlone ? around.randomName() : 'none'),
    rendezvousFile: options.rdzvConf?.file,
    job: null,
    notes: [],
  }
}

function planInSlurm(options: RankOptions, job: SlurmJob, around: Surroundings): Plan {
  if (options.nnodes === undefined) refuseScript(job, options.command)
  const { host, port } = addressIn(options)
  const { nodeRank = job.nodeRank } = options
  const nodesOfJob = Math.min(job.nodes.length, job.tasks)
  const { nnodes = { min: nodesOfJob, max: nodesOfJob } } = options
  const isPerTask = job.startedPer === 'task'
  const wanted = tabsIn(options)
  if (isPerTask && !options.elastic && wanted !== undefined && wanted !== job.tasksHere) {
    throw new TabringError(
      'config.invalid',
      `--nproc-per-node: expected ${job.tasksHere}, or none, because srun has started ${job.tasksHere} launchers on this node, each for one tab, got ${wanted}. Omit it, or start one launcher per node: srun --ntasks-per-node=1`,
    )
  }
  const launchers = isPerTask ? job.tasks : nnodes.max
  const index = isPerTask ? job.task : nodeRank
  const isAlone = launchers === 1
  const isKeyGiven = options.key !== undefined
  return {
    launchers,
    minLaunchers: isPerTask ? launchers : nnodes.min,
    index,
    role: isAlone ? 'alone' : index === 0 ? 'leader' : 'member',
    tabs: isPerTask
      ? 1
      : (wanted ?? (job.startedPer === 'script' ? job.tasksHere : (job.gpusHere ?? 1))),
    place: isPerTask ? { nodeRank, localRank: job.localTask, localWorldSize: job.tasksHere } : null,
    masterAddr: host ?? (isAlone ? '127.0.0.1' : job.nodes[0]),
    masterPort: port ?? defaultMasterPort,
    // With a file to read it from, the port may be any.
    isPortFixed: port !== 0 && (port !== undefined || (!isAlone && isKeyGiven)),
    runId: options.rdzvId ?? job.id,
    rendezvousFile: isKeyGiven
      ? options.rdzvConf?.file
      : (options.rdzvConf?.file ?? `${around.homeFolder}/.tabring/runs/${job.runName}.json`),
    job,
    notes: [],
  }
}

/** What is known by Slurm's words: `job mnist on partition gpu, 2 nodes, 8 CPUs a tab`. */
function describe(options: RankOptions, { job, launchers, place }: Plan): string | null {
  const name = options.jobName ?? job?.name
  const partition = options.partition ?? job?.partition
  const cpus = options.cpusPerTask ?? job?.cpusPerTask
  const isAsked = [options.jobName, options.partition, options.cpusPerTask].some(
    (one) => one !== undefined,
  )
  if (!job && !isAsked && options.gres === undefined) return null
  const parts = [
    `job${name === undefined ? '' : ` ${name}`}${job ? ` (${job.id})` : ''}`,
    ...(partition === undefined ? [] : [`partition ${partition}`]),
    ...(job ? [`node ${job.nodeRank} of ${job.nodes.length}`] : []),
    ...(place ? [`task ${job!.task} of ${launchers}`] : []),
    ...(cpus === undefined ? [] : [`at most ${cpus} workers per tab`]),
    ...(options.gres === undefined ? [] : [`at most ${options.gres} tabs per machine`]),
  ]
  return parts.join(', ')
}
