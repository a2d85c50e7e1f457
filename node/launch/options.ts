import { Command, type Option } from 'commander'
import { TabringError } from '../../src/util/errors.ts'
import { checked, fromEnvironment, type SwitchInputs } from '../../src/util/switches.ts'
import { readArguments, withDashes } from '../command-line.ts'
import { deviceOf, flagRules } from '../flag-rules.ts'
import { type IceFlags, iceOptionsOf } from '../ice/ice-flags.ts'
import type { IceOptions } from '../ice/ice-source.ts'
import { fewRestarts } from '../restarts.ts'
import { checkKey } from './coordination/keys.ts'
import {
  addFlags,
  type Flags,
  type RankFlags,
  rankRules,
  refused,
  type SlurmFlags,
} from './flags.ts'
import { type Pin, parsePin } from './pin.ts'

/** How the script learns its local rank besides the environment: torch.distributed.launch's argument. */
export type LocalRankArgument = '--local_rank' | '--local-rank'

/** What a command line asks for of the launcher, whatever its ranks do. */
export interface RankOptions
  extends Omit<RankFlags, 'masterFingerprint' | 'maxRestarts' | keyof IceFlags>,
    SlurmFlags {
  /** As a person types it. */
  command: string
  pin?: Pin
  maxRestarts: number
  /** True if all ranks start again where the run fails. Default true; else restarts are for single tabs. */
  restartsAll?: boolean
  /** Nothing but this machine's tabs connects to a run of one launcher. */
  anyPort?: boolean
  /** True if a failed rank closes the others' tabs at once. */
  killOnBadExit: boolean
  /** STUN and TURN servers for all ranks, where this is the launcher of rank 0. */
  ice?: IceOptions
  /** From --rdzv-conf or TABRING_ROOM_KEY. */
  key?: string
  /** For the tabs, from flags and environment; flags go first. */
  switches: SwitchInputs
}

/** What the command line of `tabring run` asks for. */
export interface LaunchOptions
  extends RankOptions,
    Pick<Flags, 'data' | 'checkpointDir' | 'env' | 'check'> {
  /** As given: relative to the current folder. */
  module: string
  /** Behind the module's name, untouched. */
  args: readonly string[]
  /** Absent: the script gets none. */
  localRankArgument?: LocalRankArgument
}

export type Parsed = { kind: 'launch'; options: LaunchOptions } | { kind: 'help'; text: string }

const keyVariable = 'TABRING_ROOM_KEY'

const runExamples = `
Examples:
  Four tabs on this machine:
    npx tabring run --nproc-per-node 4 train.ts --epochs 3

  Two machines with four tabs each. The first prints the key and the certificate's fingerprint:
    npx tabring run --nproc-per-node 4 --nnodes 2 --node-rank 0 --master-addr alpha train.ts
    TABRING_ROOM_KEY=… npx tabring run --nproc-per-node 4 --nnodes 2 --node-rank 1 --master-addr alpha train.ts

  Restart up to twice when a rank fails, and keep each rank's output:
    npx tabring run --nproc-per-node 2 --max-restarts 2 --log-dir logs train.ts

  In a Slurm job, one launcher per machine or one per rank; neither needs flags:
    srun --ntasks-per-node=1 npx tabring run train.ts
    srun -n 8 npx tabring run train.ts
  (Tested with Slurm's variables, but not on a Slurm cluster.)

The module runs in each tab. It imports { env, args } from "tabring/distributed": env.RANK, env.LOCAL_RANK, env.WORLD_SIZE and the other variables
of npx tabring docs launching. Variables of the shell reach it by --env alone. The program is its top level, or the async function that it exports as default: await everything you start there.
`

const launchExamples = `
Examples:
  Like python -m torch.distributed.launch; the script gets --local_rank=0, --local_rank=1:
    tabring launch --nproc_per_node=2 train.ts --lr 0.1

  With dashes in the flags the script gets --local-rank=0:
    tabring launch --nproc-per-node=2 train.ts

  From the environment only, like tabring run:
    tabring launch --use-env --nproc_per_node=2 train.ts
`

function defineCommand(name: 'run' | 'launch'): Command {
  const command = new Command(`tabring ${name}`)
    .usage('[options] <module> [script arguments]')
    .description(
      name === 'run'
        ? 'Runs a TypeScript module in N headless browser tabs, each a rank, as torchrun runs a script in N processes.'
        : 'The same as "tabring run" for scripts that expect torch.distributed.launch: the local rank is an argument too.',
    )
    .argument('<module>', 'TypeScript or JavaScript module with the training program')
    .argument('[args...]', 'arguments for the module, passed unchanged')
    .passThroughOptions()
    .helpOption('-h, --help', 'show this help')
    .addHelpText('after', name === 'run' ? runExamples : launchExamples)
  addFlags(command)
  if (name === 'launch') {
    command
      .optionsGroup('Options of this command:')
      .option('--use-env', 'pass the local rank only in the environment')
  }
  return command
}

const takesValue = (option: Option) => option.required || option.optional

/**
 * The arguments with the flags before the module in one spelling, and how the caller spelled them. What stands behind the module is the script's.
 */
export function normalize(
  argv: readonly string[],
  options: readonly Option[],
): { argv: string[]; firstSpelling: '-' | '_' | null } {
  const out: string[] = []
  let firstSpelling: '-' | '_' | null = null
  let i = 0
  for (; i < argv.length; i++) {
    const given = argv[i]
    if (given === '--' || !given.startsWith('-') || given === '-') break
    const flag = withDashes(given)
    const [name] = flag.split('=')
    const inner = given.split('=')[0].slice(2)
    if (given.startsWith('--') && /[-_]/.test(inner))
      firstSpelling ??= inner.includes('_') ? '_' : '-'
    if (flag === '--kill-on-bad-exit' || flag === '-K') {
      // Its value may be left out, as srun lets it: the next word may be the module.
      const hasValue = /^(-?\d+|true|false|yes|no|on|off)$/.test(argv[i + 1] ?? '')
      out.push(`--kill-on-bad-exit=${hasValue ? argv[++i] : 1}`)
      continue
    }
    out.push(flag)
    const option = options.find((one) => one.long === name || one.short === flag)
    if (option && takesValue(option) && !flag.includes('=') && i + 1 < argv.length)
      out.push(argv[++i])
  }
  return { argv: [...out, ...argv.slice(i)], firstSpelling }
}

/**
 * Returns what the arguments after `tabring run` or `tabring launch` ask for, or the help text when they ask for help.
 *
 * errors: `config.invalid`, one line that names the option.
 */
export function parseLaunch(
  name: 'run' | 'launch',
  argv: readonly string[],
  environment: Readonly<Record<string, string | undefined>> = process.env,
): Parsed {
  const command = defineCommand(name)
  const together = flagRules(command, rankRules)
  const normal = normalize(argv, command.options)
  const text = readArguments(command, normal.argv, `npx tabring ${name} --help`)
  if (text !== undefined) return { kind: 'help', text }
  const [module, ...args] = command.args
  const { useEnv, ...flags } = command.opts<Flags>()
  for (const [option, why] of Object.entries(refused)) {
    if (command.getOptionValueSource(option) === 'cli') {
      const { long } = command.options.find((one) => one.attributeName() === option)!
      throw new TabringError('config.invalid', `${long}: ${why}`)
    }
  }
  together.check()
  const options = rankOptionsOf(flags, {}, environment)
  checkTogether(flags)
  if (flags.elastic && name === 'launch' && !useEnv)
    throw new TabringError(
      'config.invalid',
      '--elastic: the local rank changes while the module runs, so it cannot be an argument. Use tabring run, or --use-env.',
    )
  return {
    kind: 'launch',
    options: {
      ...options,
      command: 'npx tabring run',
      maxRestarts: flags.maxRestarts ?? (flags.elastic ? fewRestarts : 0),
      module,
      args,
      localRankArgument:
        name === 'run' || useEnv
          ? undefined
          : normal.firstSpelling === '-'
            ? '--local-rank'
            : '--local_rank',
    },
  }
}

/**
 * What the flags and the environment ask for of the launcher. `more`: switches from flags of the command's own.
 *
 * errors: `config.invalid` for flags that contradict each other; those of reading the key, the fingerprint and the ICE servers.
 */
export function rankOptionsOf<Given extends RankFlags & SlurmFlags>(
  flags: Given,
  more: SwitchInputs,
  environment: Readonly<Record<string, string | undefined>>,
) {
  checkMachines(flags)
  const { masterFingerprint, iceServers, turnSecretFile, turnLifetime, ...kept } = flags
  const { numThreads, visibleDevices, memoryCap, debug, cpusPerTask } = flags
  const words = {
    device: deviceOf(flags),
    numThreads,
    visibleDevices,
    memoryCap,
    debug,
    maxWorkers: cpusPerTask,
    ...more,
  }
  const named = Object.entries(words).filter(([, value]) => value !== undefined)
  const key = flags.rdzvConf?.key ?? environment[keyVariable]
  const where = flags.rdzvConf?.key === undefined ? keyVariable : '--rdzv-conf key'
  return {
    ...kept,
    ice: iceOptionsOf({ iceServers, turnSecretFile, turnLifetime }, environment),
    pin: masterFingerprint === undefined ? undefined : parsePin(masterFingerprint),
    key: key === undefined ? undefined : checkKey(where, key),
    switches: {
      ...fromEnvironment(environment),
      ...checked('launcher', Object.fromEntries(named)),
    },
  }
}

const refuse = (text: string) => {
  throw new TabringError('config.invalid', text)
}

/** Flags of `tabring run` that contradict each other. */
function checkTogether({ nprocPerNode, ntasksPerNode, elastic, killOnBadExit }: Flags): void {
  if (nprocPerNode !== undefined && ntasksPerNode !== undefined && nprocPerNode !== ntasksPerNode)
    refuse(
      `--ntasks-per-node: expected the same as --nproc-per-node, got ${ntasksPerNode} and ${nprocPerNode}. Pass one of them.`,
    )
  if (elastic && !killOnBadExit)
    refuse(
      '--kill-on-bad-exit: cannot be 0 with --elastic, where the others continue while they have the state of the run. Omit it.',
    )
}

/** Flags about machines that contradict each other. */
function checkMachines(flags: RankFlags): void {
  const { masterAddr, masterPort, rdzvEndpoint, nnodes } = flags
  const { host, port } = rdzvEndpoint ?? {}
  if (masterAddr !== undefined && host !== undefined && masterAddr !== host) {
    refuse(
      `--rdzv-endpoint: expected the host of --master-addr, got ${host} and ${masterAddr}. Pass one of them.`,
    )
  }
  if (masterPort !== undefined && port !== undefined && masterPort !== port) {
    refuse(
      `--rdzv-endpoint: expected the port of --master-port, got ${port} and ${masterPort}. Pass one of them.`,
    )
  }
  if (flags.standalone && nnodes && nnodes.max > 1) {
    refuse(`--standalone: expected one machine, got --nnodes ${nnodes.max}. Omit one of them.`)
  }
  if (flags.nodeRank !== undefined && nnodes && flags.nodeRank >= nnodes.max) {
    refuse(
      `--node-rank: expected a number below --nnodes ${nnodes.max}, got ${flags.nodeRank}. Machines are numbered from 0.`,
    )
  }
  if (flags.monitorInterval !== undefined && !(flags.monitorInterval > 0)) {
    refuse('--monitor-interval: must be a number of seconds above 0. Omit it.')
  }
}
