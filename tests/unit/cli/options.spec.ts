import { expect, test } from 'vitest'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { dataMount } from '../../../node/mounts.ts'
import { parseOptions } from '../../../node/train/options.ts'

function optionsOf(...argv: string[]) {
  const parsed = parseOptions(argv, {})
  if (parsed.kind !== 'train') throw new Error('asked for help')
  return parsed.options
}

test('without options one tab trains the drawn digits', () => {
  expect(optionsOf()).toMatchObject({
    dataFolder: undefined,
    outFile: undefined,
    isJson: false,
    adapter: 'auto',
    switches: {},
    timeoutMs: 120_000,
    transport: 'auto',
    config: {
      model: 'mlp',
      data: 'digits',
      epochs: 3,
      batchSize: 64,
      optimizer: 'adamw',
      seed: 0,
      tune: false,
    },
  })
  expect(optionsOf().config.lr).toBeUndefined()
  // Measured, or as in the run that is resumed.
  expect(optionsOf().config.bucketCapMb).toBeUndefined()
})

test('every option has its value', () => {
  const argv =
    '--nproc-per-node 3 --data some/dir --model cnn --steps 7 --batch-size 30 --optimizer sgd --lr 0.1 --seed 5 ' +
    '--out w.safetensors --bucket-cap-mb 0.5 --hash-every 10 --tune --adapter software --json --headed --timeout 9.5 --transport webrtc ' +
    '--demo digits --precision float16 --strategy ddp --parallel dp --partition own-slice --evaluate-every 3 ' +
    '--no-elastic --clip-norm 1.5 --aggregation mean --trust members --device webgpu --debug 2 --variant matmul:naive --visible-devices 0,2 --trace t.json'
  expect(optionsOf(...argv.split(' '))).toEqual({
    command: 'npm run train --',
    nprocPerNode: 3,
    rdzvBackend: 'static',
    dataFolder: 'some/dir',
    outFile: 'w.safetensors',
    isJson: true,
    headed: true,
    anyPort: true,
    killOnBadExit: true,
    debug: '2',
    visibleDevices: '0,2',
    maxRestarts: 0,
    restartsAll: false,
    adapter: 'software',
    timeoutMs: 9500,
    transport: 'webrtc',
    device: 'webgpu',
    switches: {
      device: 'webgpu',
      debug: '2',
      variant: 'matmul:naive',
      visibleDevices: '0,2',
      trace: true,
    },
    traceFile: 't.json',
    config: parseTrainConfig({
      demo: 'digits',
      precision: 'float16',
      partition: 'own-slice',
      elastic: false,
      clipNorm: 1.5,
      trust: 'members',
      evaluateEvery: 3,
      model: 'cnn',
      data: dataMount,
      steps: 7,
      batchSize: 30,
      optimizer: 'sgd',
      lr: 0.1,
      seed: 5,
      bucketCapMb: 0.5,
      hashEvery: 10,
      tune: true,
    }),
  })
})

test('options that exclude some of those have their values too', () => {
  expect(optionsOf('--device', 'cpu', '--naive', '--strategy', 'alone')).toMatchObject({
    switches: { device: 'cpu', naive: true },
    config: { strategy: 'alone' },
  })
})

test('a demo brings its own models, data and defaults', () => {
  const { config, dataFolder } = optionsOf(...'--demo playground --data moons --lr 0.1'.split(' '))
  expect(dataFolder).toBeUndefined()
  expect(config).toMatchObject({ demo: 'playground', model: 'tanh', data: 'moons', batchSize: 96 })
  const given = optionsOf(...'--demo playground --data-file points.bin'.split(' '))
  expect(given).toMatchObject({ givenFile: 'points.bin', config: { data: 'given' } })
})

test('--device is the switch that the environment has too, and goes before it', () => {
  const deviceOf = (argv: string[], environment: Record<string, string>) => {
    const parsed = parseOptions(argv, environment)
    if (parsed.kind !== 'train') throw new Error('asked for help')
    return parsed.options.switches.device
  }
  expect(deviceOf([], {})).toBeUndefined()
  expect(deviceOf(['--adapter=software'], { TABRING_DEVICE: 'cpu' })).toBe('webgpu')
  expect(deviceOf(['--visible-devices', '0'], {})).toBe('webgpu')
  expect(deviceOf([], { TABRING_DEVICE: 'cpu' })).toBe('cpu')
  expect(deviceOf(['--device=webgpu'], { TABRING_DEVICE: 'cpu' })).toBe('webgpu')
})

test('--num-threads is the switch of that name, and goes before OMP_NUM_THREADS', () => {
  const threadsOf = (argv: string[], OMP_NUM_THREADS = '3') => {
    const parsed = parseOptions(argv, { OMP_NUM_THREADS })
    return parsed.kind === 'train' && parsed.options.switches.numThreads
  }
  expect(threadsOf([])).toBe(3)
  expect(threadsOf(['--num-threads', '2'])).toBe(2)
  expect(threadsOf([], '128')).toBe(64)
  expect(threadsOf([], '')).toBeUndefined()
  // Of its threads, how many each starts.
  expect(threadsOf([], '4,2')).toBe(4)
  for (const wrong of ['abc', '0'])
    expect(() => threadsOf([], wrong)).toThrow(`got "${wrong}" (OMP_NUM_THREADS)`)
  expect(parseOptions([], { TABRING_NUM_THREADS: '' }).kind).toBe('train')
})

test('checkpoints: a folder, how often, how many, and what to continue from', () => {
  expect(optionsOf('--checkpoint-dir', 'runs/a')).toMatchObject({
    checkpoints: { folder: 'runs/a', keepLast: 2 },
    config: { checkpointEvery: 0 },
  })
  expect(optionsOf('--checkpoint-dir', 'runs/a').config.resume).toBeUndefined()
  const argv = '--checkpoint_dir a --checkpoint-every 50 --keep-last 5 --resume best'
  expect(optionsOf(...argv.split(' '))).toMatchObject({
    checkpoints: { folder: 'a', keepLast: 5, resume: { which: 'best' } },
    config: { checkpointEvery: 50, resume: 'best' },
  })
  const { checkpoints, config } = optionsOf('--resume', 'runs/b/step-7.safetensors')
  expect(checkpoints).toEqual({ resume: { file: 'runs/b/step-7.safetensors' } })
  expect(config).toMatchObject({ resume: 'step-7.safetensors' })
  expect(config.checkpointEvery).toBeUndefined()
})

test('restarts: three of single tabs in an elastic run; of all ranks none unless asked for', () => {
  expect(optionsOf()).toMatchObject({ maxRestarts: 3, restartsAll: false })
  expect(optionsOf('--no-elastic')).toMatchObject({ maxRestarts: 0, restartsAll: false })
  expect(optionsOf('--parallel', 'fsdp')).toMatchObject({ maxRestarts: 0, restartsAll: false })
  expect(optionsOf('--nproc-per-node', '64')).toMatchObject({ maxRestarts: 3 })
  expect(optionsOf('--max_restarts', '2')).toMatchObject({ maxRestarts: 2, restartsAll: true })
  expect(optionsOf('--elastic', '1:2')).toMatchObject({ maxRestarts: 3, restartsAll: true })
  const none = optionsOf('--elastic', '1:2', '--max-restarts', '0')
  expect(none).toMatchObject({ maxRestarts: 0 })
})

test('--elastic MIN:MAX is a range, beside the setting that --no-elastic switches off', () => {
  const { elastic, config } = optionsOf('--elastic', '2:4')
  expect(elastic).toEqual({ min: 2, max: 4 })
  expect(config.elastic).toBe(true)
  for (const flags of [['--nproc-per-node', '4'], ['--no-elastic']]) {
    const plain = optionsOf(...flags)
    expect(plain.elastic).toBeUndefined()
    expect(plain.config.elastic).toBe(flags.length > 1)
  }
})

test('ranks on several machines, their logs, and how many tabs: the flags are those of tabring run', () => {
  const flags =
    '--nnodes 2 --node-rank 1 --master-addr alpha --log-dir logs --tee 0:1 --nproc-per-node cpu'
  expect(optionsOf(...flags.split(' '))).toMatchObject({
    nnodes: { min: 2, max: 2 },
    nodeRank: 1,
    masterAddr: 'alpha',
    logDir: 'logs',
    tee: { 0: 1 },
    nprocPerNode: 'cpu',
  })
  expect(() => optionsOf('--nnodes', '2', '--node-rank', '2')).toThrow('below --nnodes 2')
  expect(() => optionsOf('--standalone', '--master-addr', 'a')).toThrow('--master-addr: cannot be')
  // How many ranks others bring is not known yet.
  expect(optionsOf('--parallel', 'pp=4', '--nnodes', '4', '--node-rank', '0').config.parallel).toBe(
    'pp=4',
  )
})

test("torchrun's spelling with underscores is taken", () => {
  expect(optionsOf('--nproc_per_node', '4').nprocPerNode).toBe(4)
  expect(optionsOf('--nproc_per_node=4', '--data=a_b').dataFolder).toBe('a_b')
})

test('help names every option', () => {
  const parsed = parseOptions(['--help'])
  expect(parsed.kind).toBe('help')
  const text = parsed.kind === 'help' ? parsed.text : ''
  for (const name of [
    'nproc-per-node',
    'data',
    'model',
    'epochs',
    'steps',
    'batch-size',
    'optimizer',
    'lr',
    'seed',
    'out',
    'bucket-cap-mb',
    'hash-every',
    'tune',
    'device',
    'adapter',
    'json',
    'headed',
    'timeout',
    'visible-devices',
    'checkpoint-dir',
    'checkpoint-every',
    'keep-last',
    'resume',
    'max-restarts',
    'elastic',
    'no-elastic',
  ])
    expect(text).toContain(`--${name}`)
})

test.each([
  ['--epochs 0', '--epochs: expected a whole number of 1 or more, got "0".'],
  ['--epochs 1.5', 'got "1.5"'],
  ['--seed -1', '--seed: expected a whole number of 0 or more, got "-1".'],
  ['--lr abc', '--lr: expected a number of 0 or more, got "abc".'],
  ['--lr Infinity', 'expected a number of 0 or more'],
  ['--bucket-cap-mb 0', '--bucket-cap-mb: expected a number above 0, got "0".'],
  ['--nproc-per-node 65', 'from 1 to 64, or one of auto, cpu, gpu, got "65"'],
  ['--visible-devices 0;1', 'visibleDevices must be distinct device numbers'],
  ['--checkpoint-every 5', '--checkpoint-every: needs --checkpoint-dir.'],
  ['--checkpoint-every 0 --checkpoint-dir a', 'of 1 or more, got "0"'],
  ['--keep-last 0 --checkpoint-dir a', 'of 1 or more, got "0"'],
  ['--resume latest', '--resume: needs --checkpoint-dir.'],
  ['--resume=', '--resume: its value is empty.'],
  ['--device gpu', '--device: expected auto, webgpu, cpu or reference, got "gpu".'],
  ['--model transformer', 'model: expected mlp, cnn, or cnn-bn, got transformer.'],
  ['--demo chess', '--demo: expected digits, playground'],
  ['--demo playground --data some/dir', 'data: expected spiral, circles, xor, moons, or given'],
  ['--demo playground --data-file a --data spiral', '--data-file: cannot be combined with --data.'],
  [
    '--strategy alone --checkpoint-dir a',
    "checkpointEvery: not available with the strategy 'alone'",
  ],
  ['--exact --strategy alone', 'strategy: not available with exact, got alone'],
  ['--exact --parallel fsdp', 'parallel: not available with exact, got fsdp'],
  ['--exact --partition own-slice', 'partition: not available with exact, got own-slice'],
  ['--exact --trust strangers', 'trust: not available with exact, the strategy'],
  ['--strategy alone --aggregation median', 'aggregation: not available with exact, the strategy'],
  ['--parallel fsdp --aggregation clipped', 'aggregation: not available with exact, the strategy'],
  ['--trust nobody', '--trust: expected members or strangers, got "nobody".'],
  ['--parallel pp=2 --clip-norm 1', 'clipNorm: not available with pipelines, got 1'],
  ['--clip-norm 0', '--clip-norm: '],
  ['--exact --tune', 'tune: not available with exact, got true'],
  ['--parallel tp', 'settings: parallel: expected dp, fsdp, pp=N or pp=N,dp=M, got'],
  ['--epoch 3', '--epoch: there is no such flag. Did you mean --epochs?'],
  ['--steps', '--steps: the value is missing.'],
  ['surplus', 'expected 0 arguments, got 1.'],
  ['--parallel pp=2', '--nproc-per-node: --parallel pp=2 needs a multiple of 2 ranks, got 1.'],
  ['--parallel pp=3 --nproc-per-node 4', 'pp=3 needs a multiple of 3 ranks, got 4.'],
  ['--parallel pp=2,dp=2 --nproc-per-node 3', 'pp=2,dp=2 needs 4 ranks, got 3. Start that number'],
  ...['3', '3:', '0:2', '3:2', '1:65', '1:2:3', '1.5:2', 'a:b'].map((text) => [
    `--elastic ${text}`,
    `--elastic: expected MIN:MAX, numbers of ranks from 1 to 64, got "${text}".`,
  ]),
  ['--elastic', '--elastic: the value is missing.'],
  ['--elastic 1:3 --no-elastic', '--elastic: cannot be combined with --no-elastic. Pass one of'],
  ['--epochs 2 --steps 7', '--steps: cannot be combined with --epochs. Pass one of them.'],
  ['--strategy alone --hash-every 5', '--hash-every: cannot be combined with --strategy alone, wh'],
  ['--strategy alone --bucket-cap-mb 5', '--bucket-cap-mb: cannot be combined with --strategy'],
  ['--naive --tune', '--tune: cannot be combined with --naive, which fixes the variants.'],
  ['--device=cpu --adapter auto', '--adapter: cannot be combined with --device cpu, which uses no'],
  ['--device cpu --visible-devices 0', '--visible-devices: cannot be combined with --device cpu'],
  ['--stall-rank 2 --nproc-per-node 2', '--stall-rank: expected a rank below 2, the number of r'],
  ['--turn-secret-file a', '--turn-secret-file: needs --ice-servers. Name the TURN server.'],
  ['--virtual-workers 4', '--virtual-workers: needs --exact. Add it, or omit --virtual-workers.'],
  ['--run-log a', '--run-log: needs --exact. Only such a run can be computed again.'],
  ['--run-log a --exact --nnodes 2', '--run-log: cannot be combined with --nnodes: it has what'],
  ['--keep-last 3', '--keep-last: needs --checkpoint-dir.'],
  ['--aggregation median --nproc-per-node 2', '--aggregation: median needs 3 ranks or more'],
  ['--aggregation trimmedMean --elastic 1:2', 'outvote a wrong one, got 2. Start 3, or omit it.'],
  ['--relay --nproc-per-node 1', '--relay: one rank sends to nobody. Start more'],
  ['--elastic 1:2 --nproc-per-node 2', '--nproc-per-node: cannot be combined with --elastic'],
  ['--elastic 2:4 --parallel fsdp', '--elastic: needs --parallel dp and --strategy ddp'],
  ['--elastic 2:4 --strategy alone', 'got dp and alone. Omit it.'],
  ['--elastic 1:4 --batch-size 3', 'or more for 4 ranks, got 3. Raise it, or lower MAX of --ela'],
  ['--nproc-per-node 4 --batch-size 3', '--batch-size: expected 4 or more for 4 ranks, got 3.'],
])('%s is refused in one line', (argv, text) => {
  let error: unknown
  try {
    parseOptions(argv.split(' '))
  } catch (thrown) {
    error = thrown
  }
  expect(error).toMatchObject({ code: 'config.invalid' })
  expect((error as Error).message).toContain(text)
  expect((error as Error).message).not.toContain('\n')
})

test('--relay and --ice-servers are those of tabring run and npm start', () => {
  expect(optionsOf().ice).toBeUndefined()
  const parsed = parseOptions(
    [
      ...'--nproc-per-node 2 --relay'.split(' '),
      '--ice-servers',
      'stun:stun.example:3478,turn:turn.example',
      '--turn_lifetime',
      '60',
    ],
    { TABRING_TURN_SECRET: 'secret' },
  )
  expect(parsed).toMatchObject({
    options: {
      relay: true,
      ice: {
        iceServers: [{ urls: 'stun:stun.example:3478' }, { urls: 'turn:turn.example' }],
        turnSecret: 'secret',
        turnLifetimeMs: 60_000,
      },
    },
  })
  expect(() => optionsOf('--turn-lifetime', '60')).toThrow('--turn-lifetime: needs --ice-servers.')
  expect(() => optionsOf('--ice-servers', 'http://no')).toThrow('--ice-servers')
  const help = parseOptions(['--help'], {})
  expect(help.kind === 'help' && help.text).toMatch(/--relay[\s\S]*--ice-servers <urls\|file>/)
})
