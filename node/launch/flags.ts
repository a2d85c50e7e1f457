import { isIPv6 } from 'node:net'
import { type Command, InvalidArgumentError, Option } from 'commander'
import { variables } from '../../src/distributed/rendezvous/env.ts'
import { defaultMasterPort } from '../../src/distributed/rendezvous/slurm.ts'
import { limits } from '../../src/peer/room/messages.ts'
import { clipped } from '../../src/util/clipped.ts'
import type { DeviceChoice } from '../../src/util/device.ts'
import { ownOf } from '../../src/util/own-of.ts'
import { browserHelp } from '../browser-choice.ts'
import { deviceFlag, threadsFlag } from '../command-line.ts'
import { deviceRules, type FlagRule } from '../flag-rules.ts'
import { addIceFlags, type IceFlags, iceRules } from '../ice/ice-flags.ts'
import { wholeNumber } from '../parse-number.ts'
import { type RankRange, rankRange } from '../rank-range.ts'
import { fewRestarts } from '../restarts.ts'

/** Flags of commands that open ranks: torchrun's and those of browsers in all of them, those of modules and of Slurm in `tabring run`. */

export const tabChoices = ['auto', 'cpu', 'gpu'] as const
/** `gpu`: one tab a GPU; `cpu`: one a processor; `auto`: the former where there is a GPU. */
export type TabChoice = (typeof tabChoices)[number]

/** Returns the reader of a number of tabs. `limit`: the highest number. */
const tabsUpTo =
  (limit: number) =>
  (text: string): number | TabChoice => {
    if ((tabChoices as readonly string[]).includes(text)) return text as TabChoice
    const value = Number(text)
    if (/^\d+$/.test(text) && value >= 1 && value <= limit) return value
    throw new InvalidArgumentError(
      `Expected a whole number from 1 to ${limit}, or one of ${tabChoices.join(', ')}, got "${clipped(text)}".`,
    )
  }

/** How many machines a run may have. */
export interface NodeRange {
  min: number
  max: number
}

function nodes(text: string): NodeRange {
  const [min, max = min] = text.split(':').map(Number)
  if (/^\d+(:\d+)?$/.test(text) && min >= 1 && min <= max && max <= 65_536) return { min, max }
  throw new InvalidArgumentError(
    `Expected a whole number from 1, or MIN:MAX, got "${clipped(text)}".`,
  )
}

export interface Endpoint {
  host: string
  port?: number
}

function endpoint(text: string): Endpoint {
  const form = /^(?:\[(?<inner>[^\]]+)\]|(?<name>[^:[\]]+))(?::(?<port>\d{1,5}))?$/.exec(text)
  const { inner, name, port: digits } = form?.groups ?? {}
  const port = digits === undefined ? undefined : Number(digits)
  if (!form || (port !== undefined && port > 65_535)) {
    throw new InvalidArgumentError(
      `Expected HOST or HOST:PORT, an IPv6 address in brackets, got "${clipped(text)}".`,
    )
  }
  return { host: inner ?? name, port }
}

function address(text: string): string {
  if (isIPv6(text)) return text
  const { host, port } = endpoint(text)
  if (port === undefined) return host
  throw new InvalidArgumentError(
    `Expected an address without a port, got "${clipped(text)}". Pass the port as --master-port.`,
  )
}

export interface RendezvousConf {
  key?: string
  file?: string
  joinTimeoutMs?: number
  lastCallMs?: number
}

function conf(text: string): RendezvousConf {
  const found: RendezvousConf = {}
  for (const pair of text.split(',')) {
    const at = pair.indexOf('=')
    const [name, value] = [pair.slice(0, at).trim(), pair.slice(at + 1).trim()]
    if (at > 0 && value !== '' && name === 'key') found.key = value
    else if (at > 0 && value !== '' && name === 'file') found.file = value
    else if (['join_timeout', 'timeout'].includes(name) && Number(value) > 0) {
      found.joinTimeoutMs = 1000 * Number(value)
    } else if (name === 'last_call_timeout' && Number(value) > 0) {
      found.lastCallMs = 1000 * Number(value)
    } else {
      // The name alone: a value may be the key.
      const own = ['key', 'file', 'join_timeout', 'timeout', 'last_call_timeout']
      const got = own.includes(name)
        ? `an invalid value of ${name}`
        : otherConf.includes(name)
          ? `${name}, which has no meaning here`
          : 'an unknown setting'
      throw new InvalidArgumentError(
        `Expected key=TEXT, file=PATH, join_timeout=SECONDS or last_call_timeout=SECONDS, separated by commas, got ${got}.`,
      )
    }
  }
  return found
}

/** Which streams go where, by local rank: bit 1 is stdout, bit 2 stderr. */
export type Streams = number | Readonly<Record<number, number>>

function streams(text: string): Streams {
  if (/^[0-3]$/.test(text)) return Number(text)
  const pairs = text.split(',').map((pair) => /^(\d{1,4}):([0-3])$/.exec(pair.trim()))
  if (pairs.some((pair) => pair === null)) {
    throw new InvalidArgumentError(
      `Expected 0 (none), 1 (stdout), 2 (stderr), 3 (both), or one such number per local rank like 0:3,1:2, got "${clipped(text)}".`,
    )
  }
  return Object.fromEntries(pairs.map((pair) => [Number(pair![1]), Number(pair![2])]))
}

/** `gpu:2`, `gpu:a100:2`; other resources after commas pass. */
function gpusOf(text: string): number {
  const counts = text.split(',').flatMap((one) => {
    const form = /^(?:gres:)?gpu(?::[A-Za-z][\w.-]*)?(?::(\d{1,4}))?(?:\(.*\))?$/.exec(one.trim())
    return form ? [Number(form[1] ?? 1)] : []
  })
  const sum = counts.reduce((total, count) => total + count, 0)
  if (counts.length > 0 && sum > 0) return sum
  throw new InvalidArgumentError(`Expected gpu:N with N of 1 or more, got "${clipped(text)}".`)
}

const otherConf = [
  'close_timeout',
  'keep_alive_interval',
  'keep_alive_max_attempt',
  'read_timeout',
  'is_host',
  'store_type',
  'rank',
]

const yes = ['1', 'true', 'yes', 'on']
const no = ['0', 'false', 'no', 'off']
function choice(text: string): boolean {
  if (yes.includes(text)) return true
  if (no.includes(text)) return false
  throw new InvalidArgumentError(`Expected 1 or 0, got "${clipped(text)}".`)
}

function notEmpty(text: string): string {
  if (/^\S+$/.test(text) && text.length <= 200) return text
  throw new InvalidArgumentError(
    `Expected 1 to 200 characters without spaces, got "${clipped(text)}".`,
  )
}

/** Adds `NAME=value`, or `NAME` with the shell's value. */
function variable(text: string, before: Readonly<Record<string, string>> = {}) {
  const [, name, given] = /^(?!__proto__\b)([A-Za-z_]\w*)(?:=(.*))?$/s.exec(text) ?? []
  if (name === undefined)
    throw new InvalidArgumentError(`Expected NAME or NAME=value, got "${clipped(text)}".`)
  if (Object.hasOwn(variables, name))
    throw new InvalidArgumentError(`Expected a name that the launcher does not set, got ${name}.`)
  const value = given ?? ownOf(process.env, name)
  if (value === undefined)
    throw new InvalidArgumentError(`Expected a variable of the shell, but ${name} is not set.`)
  if (Object.hasOwn(before, name) && before[name] !== value)
    throw new InvalidArgumentError(`Expected one value for ${name}, got two. Pass it once.`)
  return { ...before, [name]: value }
}

/** Flags of every command that opens ranks, as Commander gives them. */
export interface RankFlags extends IceFlags {
  nprocPerNode?: number | TabChoice
  nnodes?: NodeRange
  nodeRank?: number
  masterAddr?: string
  masterPort?: number
  standalone?: boolean
  rdzvId?: string
  rdzvEndpoint?: Endpoint
  rdzvBackend: 'static' | 'c10d'
  rdzvConf?: RendezvousConf
  masterFingerprint?: string
  relay?: boolean
  maxRestarts?: number
  elastic?: RankRange
  monitorInterval?: number
  logDir?: string
  tee?: Streams
  redirects?: Streams
  browser?: string
  device?: DeviceChoice
  numThreads?: number
  adapter: 'auto' | 'software'
  visibleDevices?: string
  memoryCap?: string
  headed?: boolean
  debug?: string
}

/** Flags that Slurm has too. */
export interface SlurmFlags {
  ntasksPerNode?: number
  cpusPerTask?: number
  gres?: number
  partition?: string
  jobName?: string
}

/** Flags of `tabring run` and `tabring launch`. */
export interface Flags extends RankFlags, SlurmFlags {
  killOnBadExit: boolean
  data?: string
  checkpointDir?: string
  /** Variables for the program, besides the launcher's. */
  env?: Readonly<Record<string, string>>
  /** Of types, before the module runs. */
  check: boolean
  /** Of `tabring launch` alone. */
  useEnv?: boolean
}

/** Adds the flags that every command has that opens ranks, in the groups of the help text. `texts`: of those that mean more than in torchrun. */
export function addRankFlags(
  command: Command,
  { maxTabs, texts }: { maxTabs: number; texts: Record<'maxRestarts' | 'elastic', string> },
): Command {
  command
    .optionsGroup('Ranks and machines:')
    .option(
      '--nproc-per-node <n>',
      'tabs (ranks) per machine, or auto, cpu, gpu: one per GPU or processor (default: 1)',
      tabsUpTo(maxTabs),
    )
    .option(
      '--nnodes <n or min:max>',
      'number of machines (default: 1); with MIN:MAX all ranks restart when a machine is lost or joins',
      nodes,
    )
    .option(
      '--node-rank <n>',
      'number of this machine, from 0; default: 0 on the machine that --rdzv-endpoint names',
      wholeNumber(0, 65_535),
    )
    .option('--master-addr <host>', 'address of machine 0', address)
    .option(
      '--master-port <n>',
      `port of machine 0 (default: ${defaultMasterPort}; on a single machine the next free one if that is taken); 0: any free port`,
      wholeNumber(0, 65_535),
    )
    .option('--rdzv-endpoint <host[:port]>', 'address and port of machine 0 in one', endpoint)
    .option(
      '--rdzv-id <name>',
      'name of the run; launchers with different names never join each other',
      notEmpty,
    )
    .addOption(
      new Option('--rdzv-backend <name>', 'accepted for compatibility: both values behave the same')
        .choices(['static', 'c10d'])
        .default('static'),
    )
    .option(
      '--rdzv-conf <pairs>',
      'key=TEXT, the secret of the run (or set TABRING_ROOM_KEY); file=PATH, a file visible to all machines that passes on the secret; join_timeout=SECONDS (default: 600); last_call_timeout=SECONDS, how long a run with --nnodes MIN:MAX waits for more than MIN (default: 30)',
      conf,
    )
    .option(
      '--master-fingerprint <sha256/…>',
      'fingerprint of the certificate of machine 0, as its launcher prints it',
    )
    .option('--standalone', 'use only this machine, on any free port')
    .option(
      '--relay',
      'ranks that WebRTC cannot link send through the signaling server of machine 0, encrypted end to end; pass it to all launchers',
    )
  return addIceFlags(command)
    .optionsGroup('When a rank fails:')
    .option('--max-restarts <n>', texts.maxRestarts, wholeNumber(0, 1000))
    .option('--elastic <min:max>', texts.elastic, rankRange(limits.membersPerRoom))
    .option(
      '--monitor-interval <seconds>',
      'accepted for compatibility, without effect: tabs report at once',
      Number,
    )
    .optionsGroup('Output:')
    .option('--log-dir <folder>', 'also write <folder>/<rank>/stdout.log and stderr.log')
    .option(
      '-t, --tee <streams>',
      'streams to write to the log folder: 0 none, 1 stdout, 2 stderr, 3 both, or per local rank 0:3,1:2; without --log-dir to a new temporary folder',
      streams,
    )
    .option(
      '-r, --redirects <streams>',
      'streams to write there without showing them, in the same form',
      streams,
    )
    .optionsGroup('Browser:')
    .option('--browser <which>', browserHelp)
    .addOption(deviceFlag())
    .addOption(threadsFlag())
    .addOption(
      new Option('--adapter <which>', 'auto uses a GPU if there is one')
        .choices(['auto', 'software'])
        .default('auto'),
    )
    .option('--visible-devices <list>', 'WebGPU devices that tabs see, renumbered from 0: 0,2')
    .option('--memory-cap <size>', 'most memory that a device of a tab may hold: 64MB')
    .option('--headed', 'show the browser')
    .option('--debug <n>', 'log kernels, plans and values: 1 to 5, see npx tabring docs switches')
}

/** Of the flags of commands that open ranks. */
export const rankRules: readonly FlagRule[] = [
  ...['--nproc-per-node', '--ntasks-per-node'].map((flag) => ({
    flag,
    excludes: '--elastic',
    remedy: ', whose MAX is the number of tabs. Omit it.',
  })),
  {
    flag: '--nproc-per-node gpu',
    excludes: '--device cpu',
    remedy: '. Pass the number of tabs, or omit --device.',
  },
  ...['--master-addr', '--rdzv-endpoint', '--master-fingerprint'].map((flag) => ({
    flag,
    excludes: '--standalone',
    remedy: ', which uses any free port of this machine. Omit one of them.',
  })),
  ...deviceRules,
  ...iceRules,
]

/** Adds the flags of `tabring run` and `tabring launch`. */
export function addFlags(command: Command): Command {
  const hidden = (flags: string) => new Option(flags).hideHelp()
  const texts = {
    maxRestarts: `how many times to restart all ranks, in fresh tabs; with --elastic, to open a lost tab again too (default: 0, with --elastic ${fewRestarts})`,
    elastic:
      'open MAX tabs; the others continue without a lost one, which is opened again and joins them, while MIN are left. The program must call runElastic; one machine only',
  }
  return addRankFlags(command, { maxTabs: 1024, texts })
    .optionsGroup('When a rank fails:')
    .addOption(
      new Option(
        '--kill-on-bad-exit <0|1>',
        'close the other ranks at once (1), or let them continue (0); without a value: 1',
      )
        .argParser(choice)
        .default(true, '1'),
    )
    .optionsGroup('Module:')
    .option('--no-check', 'run the module even if its types are wrong: they are not checked')
    .option('--data <folder>', 'serve the files of this folder to the tabs, at /data/')
    .option(
      '--checkpoint-dir <folder>',
      'folder of saveCheckpoint and loadCheckpoint, on machine 0; created if missing',
    )
    .option(
      '--env <name[=value]>',
      "give the program a variable, by default with the shell's value; may be repeated. No secrets: all code in the tab can read it",
      variable,
    )
    .optionsGroup('As in Slurm (not needed inside a job):')
    .option('--ntasks-per-node <n>', 'the same as --nproc-per-node', wholeNumber(1, 1024))
    .option(
      '--cpus-per-task <n>',
      "most workers that each tab's data loaders start",
      wholeNumber(1, 4096),
    )
    .option('--gres <gpu:n>', 'at most n tabs per machine', gpusOf)
    .option('-p, --partition <name>', 'shown in the first line', notEmpty)
    .option('-J, --job-name <name>', 'shown in the first line', notEmpty)
    .addOption(hidden('--role <name>'))
    .addOption(hidden('--start-method <name>'))
    .addOption(hidden('--local-addr <host>'))
    .addOption(hidden('-m, --module'))
    .addOption(hidden('--no-python'))
    .addOption(hidden('--run-path'))
    .addOption(hidden('--rdzv-backend-params <text>'))
    .addOption(hidden('--local-ranks-filter <ranks>'))
    .addOption(hidden('--logs-specs <name>'))
    .addOption(hidden('--event-log-handler <name>'))
    .addOption(hidden('--signals-to-handle <names>'))
    .addOption(hidden('--numa-binding <mode>'))
    .addOption(hidden('--virtual-local-rank'))
}

/** Flags of torchrun and of `npm run train` that mean nothing here, and why. */
export const refused: Readonly<Record<string, string>> = {
  role: 'ranks have no roles. Omit it.',
  startMethod: 'ranks are tabs, which are not forked or spawned. Omit it.',
  localAddr: 'launchers are identified by the address that reaches them. Omit it.',
  module: "the program is always a file. Pass the module's path, train.ts.",
  python: 'ranks run modules in tabs, not other programs. Pass a module.',
  runPath: "the program is always a module. Pass the module's path, train.ts.",
  rdzvBackendParams: 'there is only one backend. Use --rdzv-conf.',
  localRanksFilter:
    'all ranks are shown, each line prefixed with its rank. Use --redirects or --tee for files.',
  logsSpecs: 'there is only one kind of log. Use --log-dir, --redirects and --tee.',
  eventLogHandler: 'event handlers are not supported. Use --log-dir.',
  signalsToHandle: 'SIGINT and SIGTERM end all ranks, and other signals are not handled. Omit it.',
  numaBinding: "the operating system places the browser's processes. Omit it.",
  virtualLocalRank: 'each tab sees the devices that --visible-devices names. Omit it.',
}
