import { isIPv6 } from 'node:net'
import { type Command, InvalidArgumentError, Option } from 'commander'
import { defaultMasterPort } from '../../src/distributed/rendezvous/slurm.ts'
import { addIceFlags, type IceFlags } from '../ice/ice-flags.ts'
import { wholeNumber } from '../parse-number.ts'

/** What `tabring run` and `tabring launch` understand: torchrun's flags, and those of Slurm and of browsers. */

export const tabChoices = ['auto', 'cpu', 'gpu'] as const
/** `gpu`: one tab a GPU; `cpu`: one a processor; `auto`: the former where there is a GPU. */
export type TabChoice = (typeof tabChoices)[number]

function tabs(text: string): number | TabChoice {
  if ((tabChoices as readonly string[]).includes(text)) return text as TabChoice
  const value = Number(text)
  if (/^\d+$/.test(text) && value >= 1 && value <= 1024) return value
  throw new InvalidArgumentError(
    `Expected a whole number from 1, or one of ${tabChoices.join(', ')}, got "${text}".`,
  )
}

function nodes(text: string): number {
  const [minimum, maximum = minimum] = text.split(':')
  if (!/^\d+(:\d+)?$/.test(text) || Number(minimum) < 1) {
    throw new InvalidArgumentError(`Expected a whole number from 1, got "${text}".`)
  }
  if (minimum === maximum) return Number(minimum)
  throw new InvalidArgumentError(
    `Expected one number of nodes, got the range "${text}": a run here does not change its size yet. Give one number.`,
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
      `Expected HOST or HOST:PORT, an IPv6 address in brackets, got "${text}".`,
    )
  }
  return { host: inner ?? name, port }
}

function address(text: string): string {
  if (isIPv6(text)) return text
  const { host, port } = endpoint(text)
  if (port === undefined) return host
  throw new InvalidArgumentError(
    `Expected an address alone, got "${text}". Its port goes to --master-port.`,
  )
}

export interface RendezvousConf {
  key?: string
  file?: string
  joinTimeoutMs?: number
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
    } else {
      // The name alone: a value may be the key.
      const own = ['key', 'file', 'join_timeout', 'timeout']
      const got = own.includes(name)
        ? `a wrong value of ${name}`
        : otherConf.includes(name)
          ? `${name}, which means nothing here`
          : 'another setting'
      throw new InvalidArgumentError(
        `Expected key=TEXT, file=PATH or join_timeout=SECONDS, more after commas, got ${got}.`,
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
      `Expected 0 (none), 1 (stdout), 2 (stderr), 3 (both), or such a number by local rank like 0:3,1:2, got "${text}".`,
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
  throw new InvalidArgumentError(`Expected gpu:N with N of 1 or more, got "${text}".`)
}

const otherConf = [
  'last_call_timeout',
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
  throw new InvalidArgumentError(`Expected 1 or 0, got "${text}".`)
}

function notEmpty(text: string): string {
  if (/^\S+$/.test(text) && text.length <= 200) return text
  throw new InvalidArgumentError(
    `Expected a text without spaces, of 1 to 200 characters, got "${text}".`,
  )
}

/** The flags, as Commander gives them. */
export interface Flags extends IceFlags {
  nprocPerNode?: number | TabChoice
  nnodes?: number
  nodeRank?: number
  masterAddr?: string
  masterPort?: number
  standalone?: boolean
  rdzvId?: string
  rdzvEndpoint?: Endpoint
  rdzvBackend: 'static' | 'c10d'
  rdzvConf?: RendezvousConf
  masterFingerprint?: string
  maxRestarts: number
  monitorInterval?: number
  killOnBadExit: boolean
  logDir?: string
  tee?: Streams
  redirects?: Streams
  ntasksPerNode?: number
  cpusPerTask?: number
  gres?: number
  partition?: string
  jobName?: string
  device?: 'cpu' | 'webgpu'
  adapter: 'auto' | 'software'
  visibleDevices?: string
  headed?: boolean
  data?: string
  checkpointDir?: string
  relay?: boolean
  debug?: string
  /** Of `tabring launch` alone. */
  useEnv?: boolean
}

/** Adds the flags that both commands have, in the groups of the help text. */
export function addFlags(command: Command): Command {
  const hidden = (flags: string, parse?: (text: string) => unknown) => {
    const option = new Option(flags).hideHelp()
    return parse ? option.argParser(parse) : option
  }
  command
    .optionsGroup('Ranks and machines:')
    .option(
      '--nproc-per-node <n>',
      'tabs (ranks) on each machine, or auto, cpu, gpu: one a GPU or a processor (default: 1)',
      tabs,
    )
    .option('--nnodes <n>', 'machines (default: 1)', nodes)
    .option(
      '--node-rank <n>',
      'number of this machine, from 0; without it, the one that --rdzv-endpoint names is 0',
      wholeNumber(0, 65_535),
    )
    .option('--master-addr <host>', 'address of machine 0', address)
    .option(
      '--master-port <n>',
      `port of machine 0 (default: ${defaultMasterPort}; with one machine the next best if that is taken); 0: any free one`,
      wholeNumber(0, 65_535),
    )
    .option('--rdzv-endpoint <host[:port]>', 'both in one', endpoint)
    .option('--rdzv-id <name>', 'name of the run; launchers of other names never meet', notEmpty)
    .addOption(
      new Option('--rdzv-backend <name>', 'both mean the same here')
        .choices(['static', 'c10d'])
        .default('static'),
    )
    .option(
      '--rdzv-conf <pairs>',
      'key=TEXT, the secret of the run (also in TABRING_ROOM_KEY); file=PATH, a file that all machines see and pass it through; join_timeout=SECONDS (default: 600)',
      conf,
    )
    .option(
      '--master-fingerprint <sha256/…>',
      'of the certificate of machine 0, as its launcher prints it',
    )
    .option('--standalone', 'this machine alone, on any free port')
    .option(
      '--relay',
      'ranks that WebRTC does not link send through the signaling server of machine 0, sealed end to end; give it to all launchers',
    )
  return addIceFlags(command)
    .optionsGroup('When a rank fails:')
    .option(
      '--max-restarts <n>',
      'start all ranks again so often, in fresh tabs',
      wholeNumber(0, 1000),
      0,
    )
    .addOption(
      new Option(
        '--kill-on-bad-exit <0|1>',
        'close the other ranks at once (1), or let them go on (0); without a value 1',
      )
        .argParser(choice)
        .default(true, '1'),
    )
    .option('--monitor-interval <seconds>', 'taken and not needed: tabs report at once', Number)
    .optionsGroup('Output:')
    .option('--log-dir <folder>', 'write DIR/RANK/stdout.log and stderr.log too')
    .option(
      '-t, --tee <streams>',
      'which of them: 0 none, 1 stdout, 2 stderr, 3 both, or by local rank 0:3,1:2; without --log-dir in a new temporary folder',
      streams,
    )
    .option(
      '-r, --redirects <streams>',
      'which go there and are not shown, in the same form',
      streams,
    )
    .optionsGroup('Browser:')
    .addOption(
      new Option(
        '--device <which>',
        'what tabs compute on: webgpu, or cpu, the plain references, which are slow (default: webgpu)',
      ).choices(['cpu', 'webgpu']),
    )
    .addOption(
      new Option('--adapter <which>', 'auto takes a GPU where there is one')
        .choices(['auto', 'software'])
        .default('auto'),
    )
    .option('--visible-devices <list>', 'the WebGPU devices that tabs see, numbered anew: 0,2')
    .option('--headed', 'show the browser')
    .option('--data <folder>', 'serve its files to the tabs, at /data/')
    .option(
      '--checkpoint-dir <folder>',
      'where saveCheckpoint and loadCheckpoint keep files, on machine 0; made if there is none',
    )
    .option('--debug <n>', 'tell of kernels, plans, values: 1 to 5, see docs/reference/switches.md')
    .optionsGroup('As in Slurm (inside a job none is needed):')
    .option('--ntasks-per-node <n>', 'the same as --nproc-per-node', wholeNumber(1, 1024))
    .option(
      '--cpus-per-task <n>',
      "each tab's data loaders start at most so many workers",
      wholeNumber(1, 4096),
    )
    .option('--gres <gpu:n>', 'at most n tabs on each machine', gpusOf)
    .option('-p, --partition <name>', 'told in the first line', notEmpty)
    .option('-J, --job-name <name>', 'told in the first line', notEmpty)
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

/** Flags of torchrun that mean nothing here, and why. */
export const refused: Readonly<Record<string, string>> = {
  role: 'ranks have no roles here. Leave it out.',
  startMethod: 'ranks are tabs, which are not forked or spawned. Leave it out.',
  localAddr: 'launchers are known by the address that reaches them. Leave it out.',
  module: "the program is a file here: give the module's path, train.ts.",
  python: 'ranks run modules in tabs, no other programs.',
  runPath: "the program is a module here: give the module's path, train.ts.",
  rdzvBackendParams: 'there is one backend here. Use --rdzv-conf.',
  localRanksFilter:
    'all ranks are shown, each with its number in front. Use --redirects or --tee for files.',
  logsSpecs: 'there is one kind of logs here. Use --log-dir, --redirects and --tee.',
  eventLogHandler: 'there are no handlers of events here. Use --log-dir.',
  signalsToHandle: 'SIGINT and SIGTERM end all ranks, and no others are handled. Leave it out.',
  numaBinding: "the browser's processes are placed by the system. Leave it out.",
  virtualLocalRank: 'each tab sees the devices that --visible-devices leaves it. Leave it out.',
}
