import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import type { Streams } from '../../../node/launch/flags.ts'
import { type LaunchOptions, parseLaunch } from '../../../node/launch/options.ts'
import { planLaunch } from '../../../node/launch/plan.ts'

/** The command lines of `tabring run` and `tabring launch`, beside what torch 1.13 makes of them. */

interface Taken {
  nodes: [number, number]
  tabs: number | string
  nodeRank: number
  masterAddr: string
  masterPort: number
  standalone: boolean
  rdzvId: string
  rdzvBackend: string
  rdzvEndpoint: string
  maxRestarts: number
  logDir: string | null
  redirects: string
  tee: string
  script: string
  args: string[]
}
interface Golden {
  run: { line: string; taken: Taken }[]
  launch: { line: string; localRank: number; args: string[] }[]
}
const golden: Golden = JSON.parse(
  readFileSync(new URL('../../golden/torchrun-flags.json', import.meta.url), 'utf8'),
)

function parse(name: 'run' | 'launch', line: string, environment = {}): LaunchOptions {
  const parsed = parseLaunch(name, line.split(' '), environment)
  if (parsed.kind === 'help') throw new Error('help')
  return parsed.options
}

/** The flags before the script, spelled with dashes. */
function dashed(line: string): string {
  const words = line.split(' ')
  const script = words.indexOf('train.py')
  return words
    .map((word, i) => (i < script && word.startsWith('--') ? dashedFlag(word) : word))
    .join(' ')
}
function dashedFlag(word: string): string {
  const [name, ...value] = word.split('=')
  return [name.replaceAll('_', '-'), ...value].join('=')
}

const streamsText = (streams: Streams | undefined): string =>
  streams === undefined
    ? '0'
    : typeof streams === 'number'
      ? String(streams)
      : Object.entries(streams)
          .map((pair) => pair.join(':'))
          .join(',')

const around = {
  environment: {},
  hostName: 'here',
  homeFolder: '/home/me',
  randomName: () => 'random',
}

describe('flags mean what torchrun makes of them', () => {
  const both = golden.run.flatMap(({ line, taken }) =>
    [...new Set([line, dashed(line)])].map((one) => ({ line: one, taken })),
  )
  test.each(both)('$line', ({ line, taken }) => {
    const options = parse('run', line)
    const plan = planLaunch(options, around)
    expect(plan.launchers).toBe(taken.nodes[0])
    expect(taken.nodes[0]).toBe(taken.nodes[1])
    expect(plan.tabs).toBe(taken.tabs)
    // Where torch says 0 by default, the c10d backend still finds out which machine it is.
    if (options.nodeRank !== undefined) expect(plan.index).toBe(taken.nodeRank)
    const [host, port] = taken.rdzvEndpoint.split(':')
    expect(plan.masterAddr).toBe(host || taken.masterAddr)
    expect(plan.masterPort).toBe(Number(port ?? taken.masterPort))
    expect(options.standalone ?? false).toBe(taken.standalone)
    expect(options.rdzvId ?? 'none').toBe(taken.rdzvId)
    expect(options.rdzvBackend).toBe(taken.rdzvBackend)
    expect(options.maxRestarts).toBe(taken.maxRestarts)
    expect(options.logDir ?? null).toBe(taken.logDir)
    expect(streamsText(options.redirects)).toBe(taken.redirects)
    expect(streamsText(options.tee)).toBe(taken.tee)
    expect(options.module).toBe(taken.script)
    expect(options.args).toEqual(taken.args)
    expect(options.localRankArgument).toBeUndefined()
  })
})

describe('torch.distributed.launch gives the script', () => {
  const argumentsOf = ({ localRankArgument, args }: LaunchOptions, localRank: number) => [
    ...(localRankArgument ? [`${localRankArgument}=${localRank}`] : []),
    ...args,
  ]
  test.each(golden.launch)('$line', ({ line, localRank, args }) => {
    expect(argumentsOf(parse('launch', line), localRank)).toEqual(args)
  })

  test.each([
    ['--nproc-per-node=2 train.ts', '--local-rank'],
    ['--nproc_per_node 2 train.ts', '--local_rank'],
    ['--nproc-per-node 2 --master_port 1234 train.ts', '--local-rank'],
    ['--standalone train.ts --some-flag', '--local_rank'],
    ['--use-env --nproc-per-node 2 train.ts', undefined],
  ])('in the spelling of the flags: %s', (line, argument) => {
    expect(parse('launch', line).localRankArgument).toBe(argument)
  })
})

describe('values', () => {
  test.each<[string, Partial<LaunchOptions>]>([
    ['--nproc-per-node gpu train.ts', { nprocPerNode: 'gpu' }],
    ['--ntasks-per-node=8 train.ts', { ntasksPerNode: 8 }],
    ['--gres=gpu:2 train.ts', { gres: 2 }],
    ['--gres gpu:a100:3,shard:4 train.ts', { gres: 3 }],
    ['--gres gpu train.ts', { gres: 1 }],
    ['-p fast -J mnist train.ts', { partition: 'fast', jobName: 'mnist' }],
    ['--kill-on-bad-exit train.ts', { killOnBadExit: true, module: 'train.ts' }],
    ['--kill-on-bad-exit=0 train.ts', { killOnBadExit: false }],
    ['--kill_on_bad_exit 0 train.ts', { killOnBadExit: false, module: 'train.ts' }],
    ['-K train.ts', { killOnBadExit: true, module: 'train.ts' }],
    ['-K no train.ts', { killOnBadExit: false, module: 'train.ts' }],
    ['train.ts', { killOnBadExit: true, adapter: 'auto', maxRestarts: 0 }],
    ['--rdzv-endpoint [::1]:99 train.ts', { rdzvEndpoint: { host: '::1', port: 99 } }],
    ['--master-addr [::1] train.ts', { masterAddr: '::1' }],
    ['--rdzv-endpoint alpha train.ts', { rdzvEndpoint: { host: 'alpha', port: undefined } }],
    [
      '--rdzv-conf key=0123456789abcdefg,join_timeout=30 train.ts',
      {
        key: '0123456789abcdefg',
        rdzvConf: { key: '0123456789abcdefg', joinTimeoutMs: 30_000 },
      },
    ],
    ['--nnodes 1:4 train.ts', { nnodes: { min: 1, max: 4 } }],
    ['--nnodes 3 train.ts', { nnodes: { min: 3, max: 3 } }],
    ['--rdzv-conf last_call_timeout=5 train.ts', { rdzvConf: { lastCallMs: 5000 } }],
    ['--device cpu train.ts', { switches: { device: 'cpu' } }],
    ['--checkpoint_dir runs/a --max-restarts 2 x.ts', { checkpointDir: 'runs/a', maxRestarts: 2 }],
    ['--elastic 1:4 train.ts', { elastic: { min: 1, max: 4 }, maxRestarts: 3 }],
    ['--elastic 1:4 --max-restarts 0 train.ts', { maxRestarts: 0 }],
    ['--env A=1 --env B=x=y train.ts', { env: { A: '1', B: 'x=y' } }],
    ['--visible-devices 0,2 train.ts', { switches: { visibleDevices: '0,2' } }],
    ['--cpus-per-task 4 train.ts', { cpusPerTask: 4, switches: { maxWorkers: 4 } }],
    [`--master-fingerprint ${'A'.repeat(43)}= train.ts`, { pin: `sha256/${'A'.repeat(43)}=` }],
    ['-- train.ts --headed', { module: 'train.ts', args: ['--headed'] }],
    ['train.ts', { check: true }],
    ['--no-check train.ts', { check: false }],
    ['--no_check train.ts --check', { check: false, args: ['--check'] }],
    ['--relay train.ts --relay', { relay: true, module: 'train.ts', args: ['--relay'] }],
  ])('%s', (line, expected) => {
    expect(parse('run', line)).toMatchObject(expected)
  })

  test('the key may come from the environment; a flag goes before it', () => {
    const environment = { TABRING_ROOM_KEY: 'from-the-environment' }
    expect(parse('run', 'train.ts', environment).key).toBe('from-the-environment')
    const flag = '--rdzv-conf key=from-the-command-line train.ts'
    expect(parse('run', flag, environment).key).toBe('from-the-command-line')
  })

  test("arguments after the module are the module's, help included", () => {
    const line = 'train.ts --help --nproc_per_node -x --kill_on_bad_exit -- --'
    expect(parse('run', line).args).toEqual(line.split(' ').slice(1))
  })
})

describe('what is refused, in one line', () => {
  test.each([
    [
      '--nproc-per-nod 3 train.ts',
      '--nproc-per-nod: there is no such flag. Did you mean --nproc-per-node?',
    ],
    ['--master_prot=1 train.ts', 'Did you mean --master-port?'],
    ['--kill-on-bad-exit 2 train.ts', '--kill-on-bad-exit: expected 1 or 0, got "2"'],
    [
      '--nproc-per-node 0 train.ts',
      '--nproc-per-node: expected a whole number from 1 to 1024, or one of auto, cpu, gpu, got "0"',
    ],
    ...['x', '0', '4:1', '1:', '1:2:3'].map((text) => [
      `--nnodes ${text} train.ts`,
      `--nnodes: expected a whole number from 1, or MIN:MAX, got "${text}"`,
    ]),
    ['--rdzv-backend etcd train.ts', '--rdzv-backend: expected static'],
    [
      '--rdzv-conf nonsense=1 train.ts',
      'expected key=TEXT, file=PATH, join_timeout=SECONDS or last_call_timeout=SECONDS',
    ],
    ['--rdzv-conf close_timeout=5 train.ts', 'got close_timeout, which has no meaning here'],
    ['--rdzv-conf join_timeout=x train.ts', 'got an invalid value of join_timeout'],
    ['--master-addr host:29501 train.ts', 'expected an address without a port, got "host:29501"'],
    [
      '--rdzv-conf key=short train.ts',
      '--rdzv-conf key: expected a key of at least 16 characters without spaces, got 5',
    ],
    ['--rdzv-endpoint a:b:c train.ts', 'expected HOST or HOST:PORT'],
    ['--gres tpu:2 train.ts', 'expected gpu:N with N of 1 or more, got "tpu:2"'],
    ['--tee 4 --log-dir x train.ts', 'expected 0 (none), 1 (stdout), 2 (stderr), 3 (both)'],
    ['--standalone --nnodes 2 train.ts', '--standalone: expected one machine, got --nnodes 2'],
    ['--nnodes 2 --node-rank 2 train.ts', '--node-rank: expected a number below --nnodes 2, got 2'],
    [
      '--master-addr a --rdzv-endpoint b:1 train.ts',
      'expected the host of --master-addr, got b and a',
    ],
    [
      '--nproc-per-node 2 --ntasks-per-node 3 train.ts',
      'expected the same as --nproc-per-node, got 3 and 2',
    ],
    [
      '--master-fingerprint abc train.ts',
      '--master-fingerprint: expected sha256/ and 44 characters of base64',
    ],
    ['--env RANK=1 train.ts', '--env: expected a name that the launcher does not set'],
    ['--env NOT_SET_HERE train.ts', 'a variable of the shell, but NOT_SET_HERE is not set'],
    ['--env A=1 --env A=2 train.ts', '--env: expected one value for A, got two'],
    ['--env 1a train.ts', '--env: expected NAME or NAME=value, got "1a"'],
    ['--env __proto__=1 train.ts', '--env: expected NAME or NAME=value, got "__proto__=1"'],
    ['--env constructor train.ts', 'but constructor is not set'],
    ['--visible-devices 0,0 train.ts', 'visibleDevices must be'],
    [
      '--elastic 3 train.ts',
      '--elastic: expected MIN:MAX, numbers of ranks from 1 to 64, got "3".',
    ],
    ['--elastic 1:3 --nproc-per-node 3 train.ts', '--nproc-per-node: cannot be combined with'],
    ['--elastic 1:3 --ntasks-per-node=3 train.ts', '--ntasks-per-node: cannot be combined with'],
    ['--elastic 1:3 -K 0 train.ts', '--kill-on-bad-exit: cannot be 0 with --elastic'],
    ['--nproc-per-node gpu --device cpu train.ts', '--nproc-per-node gpu: cannot be combined with'],
    ['--device cpu --adapter software train.ts', '--adapter: cannot be combined with --device cpu'],
    ['--data= train.ts', '--data: its value is empty.'],
    ['--device cpu --visible-devices 0 train.ts', '--visible-devices: cannot be combined with'],
    ['--turn-lifetime 60 train.ts', '--turn-lifetime: needs --ice-servers. Name the TURN server.'],
    ...['--master-addr a', '--rdzv-endpoint a:1', '--master-fingerprint a'].map((flag) => [
      `--standalone ${flag} train.ts`,
      `${flag.split(' ')[0]}: cannot be combined with --standalone, which uses any free port`,
    ]),
    ['--role trainer train.ts', '--role: ranks have no roles'],
    ['--start_method spawn train.ts', '--start-method: ranks are tabs'],
    ['-m train', '--module: the program is always a file'],
    ['--no_python train.ts', '--no-python: ranks run modules in tabs'],
    ['--run-path train.ts', '--run-path: '],
    ['--monitor-interval 0 train.ts', '--monitor-interval: must be a number of seconds above 0'],
    ['--use-env train.ts', '--use-env: there is no such flag.'],
    ['--nproc-per-node 2', 'the module is missing. See npx tabring run --help.'],
  ])('%s', (line, text) => {
    expect(() => parse('run', line)).toThrow(text)
    expect(() => parse('run', line)).toThrow(/^[^\n]+\.$/)
  })

  test('an elastic run has no local rank among the arguments', () => {
    expect(() => parse('launch', '--elastic 1:2 train.ts')).toThrow(
      'Use tabring run, or --use-env.',
    )
    expect(parse('launch', '--use-env --elastic 1:2 train.ts').localRankArgument).toBeUndefined()
  })

  test('a wrong key is not quoted in its error', () => {
    expect(() => parse('run', 'train.ts', { TABRING_ROOM_KEY: 'secret' })).toThrow(
      /^TABRING_ROOM_KEY: (?!.*secret)/,
    )
  })
})

test.each(['run', 'launch'] as const)('tabring %s --help has examples and every group', (name) => {
  const parsed = parseLaunch(name, ['--help'], {})
  const text = parsed.kind === 'help' ? parsed.text : ''
  expect(text).toContain('Examples:')
  expect(text).toContain(`tabring ${name} `)
  for (const flag of ['--nproc-per-node', '--max-restarts', '--log-dir', '--headed', '--gres']) {
    expect(text).toContain(flag)
  }
  if (name === 'run') expect(text).toContain('not on a Slurm cluster')
  expect(text).not.toContain('--role')
})
