import { basename } from 'node:path'
import { Command, Option } from 'commander'
import { metaOf, parseTrainConfig } from '../../demos/experiments.ts'
import { limits } from '../../src/peer/room/messages.ts'
import { givenData, isElastic, type TrainConfig } from '../../src/trainer/settings/config.ts'
import type { DemoMeta } from '../../src/trainer/settings/demo-meta.ts'
import { ranksNeeded } from '../../src/trainer/settings/parallel.ts'
import { TabringError } from '../../src/util/errors.ts'
import { readArguments, withDashes } from '../command-line.ts'
import { type FlagRule, flagRules } from '../flag-rules.ts'
import { addRankFlags, type RankFlags, rankRules } from '../launch/flags.ts'
import { type RankOptions, rankOptionsOf } from '../launch/options.ts'
import { dataMount } from '../mounts.ts'
import { positiveNumber, wholeNumber } from '../parse-number.ts'
import type { RankRange } from '../rank-range.ts'
import { fewRestarts } from '../restarts.ts'
import { addSettingFlags, flaggedKeys, settingRules } from './setting-flags.ts'
import { type TrainTransport, trainTransports } from './tabs.ts'

export interface CheckpointOptions {
  /** Of the disk; made if there is none. */
  folder?: string
  keepLast?: number
  /** `latest` and `best` are of the folder. */
  resume?: { which: 'latest' | 'best' } | { file: string }
}

/** What one `npm run train` is to do. Its `elastic` is that of `--elastic MIN:MAX`: the run begins with MIN ranks. */
export interface TrainOptions extends RankOptions {
  restartsAll: boolean
  /** Absent: what the demo makes itself, or `givenFile`. */
  dataFolder?: string
  /** Data of a person's own, where the demo takes some. */
  givenFile?: string
  /** Absent: the trained weights are not kept. */
  outFile?: string
  /** Progress as JSON lines on standard output. */
  isJson: boolean
  transport: TrainTransport
  /** The longest silence of a rank that is borne. */
  timeoutMs: number
  config: TrainConfig
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
      'Trains one model in N headless browser tabs, each a rank with its own device: a GPU, or else the CPU.',
    )
  const texts = {
    maxRestarts: `how many times to open again what was lost: one tab where the others continue without it, else all, from the latest checkpoint that the run has saved (default: ${fewRestarts}; without --elastic MIN:MAX single tabs only)`,
    elastic:
      'train with MIN to MAX ranks: it begins with MIN tabs, more join it up to MAX, and a tab that is lost is opened again and joins',
  }
  addRankFlags(command, { maxTabs: limits.membersPerRoom, texts })
    .optionsGroup('Ranks and machines:')
    .addOption(
      new Option(
        '--transport <how>',
        'how gradients travel: auto: between tabs of one machine through their browser, else over WebRTC; webrtc: over WebRTC alone, each tab as on a separate machine',
      )
        .choices(trainTransports)
        .default(trainTransports[0]),
    )
    .optionsGroup('When a rank fails:')
    .option(
      '--timeout <seconds>',
      'give up on a rank that has been silent for this long',
      positiveNumber(false),
      120,
    )
    .optionsGroup('Output:')
    .option('--json', 'print one JSON object per line instead of the bar')
    .optionsGroup('Training:')
  addSettingFlags(command)
  return command
    .optionsGroup('Files:')
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
    .option('--trace <file>', 'write a Chrome trace to this file, for Perfetto')
    .option(
      '--run-log <file>',
      'with --exact: write the hash of each step to this file, for npm run replay; also where the run fails or is stopped',
    )
    .optionsGroup('To look for errors:')
    .option('--naive', 'no graph rewrites, and the first variant of every op')
    .option('--variant <op:name>', 'force kernel variants, separated by commas')
    .option('--drop <share>', 'lose this share of the messages between tabs')
    .option('--delay-ms <n>', 'delay each message between tabs by this time')
    .option('--stall-rank <n>', 'this rank stops sending, without notice')
    .helpOption('-h, --help', 'show this help')
    .allowExcessArguments(false)
}

const rules: readonly FlagRule[] = [
  { flag: '--elastic', excludes: '--no-elastic' },
  { flag: '--data-file', excludes: '--data' },
  {
    flag: '--run-log',
    needs: '--exact',
    remedy: 'Only such a run can be computed again. Add it, or omit --run-log.',
  },
  {
    flag: '--run-log',
    excludes: '--nnodes',
    remedy: ': it has what the tabs of one machine report. Omit one of them.',
  },
  {
    flag: '--checkpoint-every',
    needs: '--checkpoint-dir',
    remedy: 'Name the folder of the checkpoints.',
  },
  { flag: '--keep-last', needs: '--checkpoint-dir', remedy: 'Name the folder of the checkpoints.' },
  { flag: '--tune', excludes: '--naive', remedy: ', which fixes the variants. Omit one of them.' },
  ...settingRules,
  ...rankRules,
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
  const command = defineCommand()
  const together = flagRules(command, rules)
  const text = readArguments(command, argv.map(withDashes), 'npm run train -- --help')
  if (text !== undefined) return { kind: 'help', text }
  together.check()
  const {
    dataFile: givenFile,
    out,
    json,
    timeout,
    trace,
    runLog,
    transport,
    ...others
  } = command.opts()
  const { checkpointDir, keepLast, naive, variant, drop, delayMs, stallRank, ...all } = others
  const { data, resume, checkpointEvery, demo } = all
  const settings = Object.fromEntries(flaggedKeys.map((key) => [key, all[key]]))
  const ofRanks = Object.entries(all).filter(([key]) => !Object.hasOwn(settings, key))
  const checkpoints = checkpointOptions({ checkpointDir, keepLast, resume })
  const dataFolder = dataFolderOf(metaOf(demo), data)
  const config = parseTrainConfig({
    ...settings,
    elastic: all.elastic !== false,
    data: givenFile !== undefined ? givenData : dataFolder === undefined ? data : dataMount,
    ...(checkpointDir !== undefined && { checkpointEvery: checkpointEvery ?? 0 }),
    ...(resume !== undefined && { resume: basename(resume) }),
  })
  const elastic: RankRange | undefined = all.elastic || undefined
  if (elastic) checkRange(config)
  const words = {
    naive,
    variant,
    drop,
    delayMs,
    stallRank,
    trace: trace === undefined ? undefined : true,
  }
  const flags = { ...(Object.fromEntries(ofRanks) as unknown as RankFlags), elastic }
  const { maxRestarts, nprocPerNode = 1, nnodes } = flags
  const options: TrainOptions = {
    ...rankOptionsOf(flags, words, environment),
    command: 'npm run train --',
    killOnBadExit: true,
    anyPort: true,
    dataFolder,
    givenFile,
    outFile: out,
    isJson: json ?? false,
    transport,
    timeoutMs: timeout * 1000,
    config,
    traceFile: trace,
    runLogFile: runLog,
    maxRestarts: maxRestarts ?? (isElastic(config) ? fewRestarts : 0),
    restartsAll: maxRestarts !== undefined || elastic !== undefined,
    checkpoints,
  }
  const tabs = elastic?.max ?? nprocPerNode
  // Elsewhere it is known when all launchers are there.
  const isKnown = nnodes === undefined && !environment.SLURM_PROCID
  if (isKnown && typeof tabs === 'number') checkRanks(options, tabs)
  return { kind: 'train', options }
}

/** errors: `config.invalid` for settings that do not suit a run of `ranks` ranks. */
export function checkRanks(
  { config, elastic, relay, switches }: TrainOptions,
  ranks: number,
): void {
  const refuse = (text: string) => {
    throw new TabringError('config.invalid', text)
  }
  const { batchSize, aggregation, parallel } = config
  if (batchSize < ranks)
    refuse(
      `--batch-size: expected ${ranks} or more for ${ranks} ranks, got ${batchSize}. Raise it, or lower ${elastic ? 'MAX of --elastic' : '--nproc-per-node'}.`,
    )
  if (['trimmedMean', 'median'].includes(aggregation) && ranks < 3)
    refuse(
      `--aggregation: ${aggregation} needs 3 ranks or more, of which the others outvote a wrong one, got ${ranks}. Start 3, or omit it.`,
    )
  if (relay && ranks === 1)
    refuse('--relay: one rank sends to nobody. Start more with --nproc-per-node, or omit it.')
  if (Number(switches.stallRank) >= ranks)
    refuse(
      `--stall-rank: expected a rank below ${ranks}, the number of ranks, got ${switches.stallRank}. Lower it.`,
    )
  const needed = ranksNeeded(parallel, ranks)
  if (needed)
    refuse(
      `--nproc-per-node: --parallel ${parallel} needs ${needed}, got ${ranks}. Start that number, or choose other pipelines.`,
    )
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
