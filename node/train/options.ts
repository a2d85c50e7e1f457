import { basename } from 'node:path'
import { Command, CommanderError, Option } from 'commander'
import { metaOf, parseTrainConfig } from '../../demos/experiments.ts'
import { limits } from '../../src/peer/room/messages.ts'
import { givenData, isElastic, type TrainConfig } from '../../src/trainer/settings/config.ts'
import type { DemoMeta } from '../../src/trainer/settings/demo-meta.ts'
import { ranksNeeded } from '../../src/trainer/settings/parallel.ts'
import type { DeviceChoice } from '../../src/util/device.ts'
import { TabringError } from '../../src/util/errors.ts'
import { checked, fromEnvironment, parsed, type SwitchInputs } from '../../src/util/switches.ts'
import { browserHelp } from '../browser-choice.ts'
import type { AdapterChoice } from '../chromium.ts'
import { deviceFlag, threadsFlag, usageProblem, withDashes } from '../command-line.ts'
import { deviceOf, deviceRules, type FlagRule, flagRules } from '../flag-rules.ts'
import { addIceFlags, iceOptionsOf, iceRules } from '../ice/ice-flags.ts'
import type { IceOptions } from '../ice/ice-source.ts'
import { dataMount } from '../mounts.ts'
import { positiveNumber, wholeNumber } from '../parse-number.ts'
import { type RankRange, rankRange } from '../rank-range.ts'
import { fewRestarts } from '../restarts.ts'
import { addSettingFlags, flaggedKeys, settingRules } from './setting-flags.ts'

export interface CheckpointOptions {
  /** Of the disk; made if there is none. */
  folder?: string
  keepLast?: number
  /** `latest` and `best` are of the folder. */
  resume?: { which: 'latest' | 'best' } | { file: string }
}

/** What one `npm run train` is to do. */
export interface TrainOptions {
  /** The ranks that begin the run, and the fewest of one with `--elastic MIN:MAX`. */
  worldSize: number
  /** Of `--elastic MIN:MAX`. */
  range?: RankRange
  /** Absent: what the demo makes itself, or `givenFile`. */
  dataFolder?: string
  /** Data of a person's own, where the demo takes some. */
  givenFile?: string
  /** Absent: the trained weights are not kept. */
  outFile?: string
  /** Progress as JSON lines on standard output. */
  isJson: boolean
  /** Visible browser windows. */
  isHeaded: boolean
  /** A kind or a path; absent: what `TABRING_BROWSER` names, or Chromium. */
  browser?: string
  adapter: AdapterChoice
  /** The longest silence of a rank that is borne. */
  timeoutMs: number
  config: TrainConfig
  /** What tabs compute on, unless something in their address says otherwise. */
  device: DeviceChoice
  /** Whether tabs may send their data through the server where WebRTC does not link them. */
  isRelayed: boolean
  /** STUN and TURN servers that tabs receive; absent: none. */
  ice?: IceOptions
  /** For the tabs, from flags and environment; flags go first. */
  switches: SwitchInputs
  /** How often a lost tab is opened again; all tabs too with `restartsAll`. */
  maxRestarts: number
  /** Whether all ranks start again where the run ends with a failure. */
  restartsAll: boolean
  /** What is saved while training, and what it goes on from; absent: nothing. */
  checkpoints?: CheckpointOptions
  /** Where the spans of all ranks go, as a Chrome trace; absent: nowhere. */
  traceFile?: string
  /** Where the log of a run with `exact` goes; absent: nowhere. */
  runLogFile?: string
}

function defineCommand(): Command {
  const command = new Command('train')
    .usage('[options]      (through npm: npm run train -- [options])')
    .description(
      'Trains one model in N headless browser tabs, each a rank with its own WebGPU device, over WebRTC.',
    )
    .option(
      '--nproc-per-node <n>',
      'number of tabs (ranks)',
      wholeNumber(1, limits.membersPerRoom),
      1,
    )
    .option(
      '--elastic <min:max>',
      'train with MIN to MAX ranks: it begins with MIN tabs, more join it up to MAX, and a tab that is lost is opened again and joins',
      rankRange(limits.membersPerRoom),
    )
  addSettingFlags(command)
  command
    .option(
      '--data-file <file>',
      'your own data, for a demo that accepts some; rank 0 sends it to the others',
    )
    .option(
      '--out <file>',
      'write the trained weights to this file: .pt or .pth for torch.load, else .safetensors',
    )
    .option(
      '--checkpoint-dir <dir>',
      "save checkpoints in this folder: at each epoch's end, and as --checkpoint-every says",
    )
    .option(
      '--keep-last <n>',
      'number of checkpoints to keep, in addition to the best one',
      wholeNumber(1),
      2,
    )
    .option(
      '--max-restarts <n>',
      `how many times to open again what was lost: one tab where the others continue without it, else all, from the latest checkpoint that the run has saved (default: ${fewRestarts}; without --elastic MIN:MAX single tabs only)`,
      wholeNumber(0, 1000),
    )
    .addOption(deviceFlag())
    .addOption(threadsFlag())
    .option('--browser <which>', browserHelp)
    .addOption(
      new Option('--adapter <which>', 'auto uses a GPU if there is one')
        .choices(['auto', 'software'])
        .default('auto'),
    )
    .option('--json', 'print one JSON object per line instead of the bar')
    .option('--headed', 'show the browser')
    .option(
      '--timeout <seconds>',
      'give up on a rank that has been silent for this long',
      positiveNumber(false),
      120,
    )
    .option('--debug <n>', 'log kernels, plans and values: 1 to 5, see docs/reference/switches.md')
    .option('--naive', 'no graph rewrites, and the first variant of every op')
    .option('--variant <op:name>', 'force kernel variants, separated by commas')
    .option('--drop <share>', 'lose this share of the messages between tabs')
    .option('--delay-ms <n>', 'delay each message between tabs by this time')
    .option('--stall-rank <n>', 'this rank stops sending, without notice')
    .option('--visible-devices <list>', 'WebGPU devices that tabs see, renumbered from 0: 0,2')
    .option('--memory-cap <size>', 'most memory that a device of a tab may hold: 64MB')
    .option('--trace <file>', 'write a Chrome trace to this file, for Perfetto')
    .option(
      '--run-log <file>',
      'with --exact: write the hash of each step to this file, for npm run replay; also where the run fails or is stopped',
    )
    .option(
      '--relay',
      'let tabs send their data through the server of this command, encrypted end to end, where WebRTC cannot link them',
    )
    .helpOption('-h, --help', 'show this help')
    .allowExcessArguments(false)
  return addIceFlags(command)
}

const rules: readonly FlagRule[] = [
  { flag: '--elastic', excludes: '--no-elastic' },
  {
    flag: '--nproc-per-node',
    excludes: '--elastic',
    remedy: ', whose MAX is the number of tabs. Omit it.',
  },
  { flag: '--data-file', excludes: '--data' },
  {
    flag: '--run-log',
    needs: '--exact',
    remedy: 'Only such a run can be computed again. Add it, or omit --run-log.',
  },
  {
    flag: '--checkpoint-every',
    needs: '--checkpoint-dir',
    remedy: 'Name the folder of the checkpoints.',
  },
  { flag: '--keep-last', needs: '--checkpoint-dir', remedy: 'Name the folder of the checkpoints.' },
  { flag: '--tune', excludes: '--naive', remedy: ', which fixes the variants. Omit one of them.' },
  ...settingRules,
  ...deviceRules,
  ...iceRules,
]

/**
 * Returns what the arguments (without node and script) ask for, or the help text when they ask for help.
 *
 * errors: `config.invalid`, one line that names the option.
 */
export function parseOptions(
  argv: readonly string[],
  environment: NodeJS.ProcessEnv = process.env,
): { kind: 'train'; options: TrainOptions } | { kind: 'help'; text: string } {
  let help = ''
  const command = defineCommand()
    .exitOverride()
    .configureOutput({
      writeOut: (text) => {
        help += text
      },
      writeErr: () => undefined,
    })
  const together = flagRules(command, rules)
  try {
    command.parse(argv.map(withDashes), { from: 'user' })
  } catch (thrown) {
    if (thrown instanceof CommanderError && thrown.code === 'commander.helpDisplayed')
      return { kind: 'help', text: help }
    throw new TabringError(
      'config.invalid',
      `${usageProblem(thrown)} See npm run train -- --help.`,
      { cause: thrown },
    )
  }
  together.check()
  const options = command.opts()
  const {
    nprocPerNode,
    data,
    dataFile: givenFile,
    out,
    json,
    headed,
    device,
    numThreads,
    browser,
    adapter,
    timeout,
    debug,
    naive,
    variant,
    drop,
    delayMs,
    stallRank,
    visibleDevices,
    memoryCap,
    trace,
    runLog,
    checkpointDir,
    checkpointEvery,
    keepLast,
    resume,
    maxRestarts,
    elastic,
    relay,
    iceServers,
    turnSecretFile,
    turnLifetime,
  } = options
  const faults = { drop, delayMs, stallRank }
  const inside = {
    debug,
    naive,
    variant,
    ...faults,
    device: deviceOf({ device, adapter, visibleDevices }),
    numThreads,
    visibleDevices,
    memoryCap,
  }
  const flags = { ...inside, trace: trace === undefined ? undefined : true }
  const given = Object.entries(flags).filter(([, value]) => value !== undefined)
  const switches = {
    ...fromEnvironment(environment),
    ...checked('launcher', Object.fromEntries(given)),
  }
  const checkpoints = checkpointOptions({ checkpointDir, keepLast, resume })
  const ice = iceOptionsOf({ iceServers, turnSecretFile, turnLifetime }, environment)
  const dataFolder = dataFolderOf(metaOf(options.demo), data)
  const range: RankRange | undefined = elastic || undefined
  const config = parseTrainConfig({
    ...Object.fromEntries(flaggedKeys.map((key) => [key, options[key]])),
    elastic: elastic !== false,
    data: givenFile !== undefined ? givenData : dataFolder === undefined ? data : dataMount,
    ...(checkpointDir !== undefined && { checkpointEvery: checkpointEvery ?? 0 }),
    ...(resume !== undefined && { resume: basename(resume) }),
  })
  if (range) checkRange(config)
  const { min: worldSize, max } = range ?? { min: nprocPerNode, max: nprocPerNode }
  if (config.batchSize < max)
    throw new TabringError(
      'config.invalid',
      `--batch-size: expected ${max} or more for ${max} ranks, got ${config.batchSize}. Raise it, or lower ${range ? 'MAX of --elastic' : '--nproc-per-node'}.`,
    )
  if (['trimmedMean', 'median'].includes(config.aggregation) && max < 3)
    throw new TabringError(
      'config.invalid',
      `--aggregation: ${config.aggregation} needs 3 ranks or more, of which the others outvote a wrong one, got ${max}. Start 3, or omit it.`,
    )
  if (relay && max === 1)
    throw new TabringError(
      'config.invalid',
      '--relay: one rank sends to nobody. Start more with --nproc-per-node, or omit it.',
    )
  if (Number(stallRank) >= max)
    throw new TabringError(
      'config.invalid',
      `--stall-rank: expected a rank below ${max}, the number of ranks, got ${stallRank}. Lower it.`,
    )
  const needed = ranksNeeded(config.parallel, nprocPerNode)
  if (needed)
    throw new TabringError(
      'config.invalid',
      `--nproc-per-node: --parallel ${config.parallel} needs ${needed}, got ${nprocPerNode}. Start that number, or choose other pipelines.`,
    )
  return {
    kind: 'train',
    options: {
      worldSize,
      ...(range && { range }),
      dataFolder,
      ...(givenFile !== undefined && { givenFile }),
      outFile: out,
      isJson: json ?? false,
      isHeaded: headed ?? false,
      browser,
      adapter,
      device: parsed('device', switches.device),
      timeoutMs: timeout * 1000,
      config,
      switches,
      traceFile: trace,
      runLogFile: runLog,
      maxRestarts: maxRestarts ?? (isElastic(config) ? fewRestarts : 0),
      restartsAll: maxRestarts !== undefined || range !== undefined,
      isRelayed: relay ?? false,
      ...(ice && { ice }),
      ...(checkpoints && { checkpoints }),
    },
  }
}

/** errors: `config.invalid` for a run that cannot be elastic. */
function checkRange(config: TrainConfig): void {
  if (isElastic(config)) return
  throw new TabringError(
    'config.invalid',
    `--elastic: needs --parallel dp and --strategy ddp, where each rank has the whole model, got ${config.parallel} and ${config.strategy}. Omit it.`,
  )
}

/** The folder that `--data` names, where it names no set of the demo's. */
function dataFolderOf(
  { data: own, address }: DemoMeta,
  data: string | undefined,
): string | undefined {
  if (data === undefined || Object.hasOwn(own, data)) return undefined
  // The settings' own words say what the demo has.
  return address ? data : undefined
}

/** errors: `config.invalid` for what needs a folder, without one. */
function checkpointOptions({
  checkpointDir: folder,
  keepLast,
  resume,
}: {
  checkpointDir?: string
  keepLast: number
  resume?: string
}): CheckpointOptions | undefined {
  const isOfFolder = resume === 'latest' || resume === 'best'
  if (isOfFolder && folder === undefined) {
    throw new TabringError(
      'config.invalid',
      '--resume: needs --checkpoint-dir. Name the folder of the checkpoints.',
    )
  }
  if (folder === undefined && resume === undefined) return undefined
  return {
    ...(folder !== undefined && { folder, keepLast }),
    ...(resume !== undefined && { resume: isOfFolder ? { which: resume } : { file: resume } }),
  }
}
