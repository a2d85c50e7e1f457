import { writeZip } from '../../src/data/zip.ts'
import { GradBucket } from '../../src/ddp/hooks/grad-bucket.ts'
import { Bucket } from '../../src/graph/trace/bucket.ts'
import type { BucketPlace } from '../../src/graph/trace/exchange.ts'
import { Pipe } from '../../src/parallel/pipeline/pipe.ts'
import numpy from '../golden/npy.json'
import { hiddenMethods } from './class-members.ts'
import * as api from './library.ts'
import { folderOf, goldenTokenizers, smallFiles } from './pretrained-folder.ts'

/** What the spec of arguments calls: every exported function and class, and arguments with which each works. */

export const isClass = (value: Callable): boolean =>
  /^class\b/.test(Function.prototype.toString.call(value))

const hidden = hiddenMethods()

/** Static methods as their source has them. */
export const unbound = new WeakMap<Callable, Callable>()

function* exportsOf(members: object): Iterable<[name: string, value: Callable]> {
  for (const [name, value] of Object.entries(members)) {
    if (typeof value !== 'function') continue
    yield [name, value as Callable]
    if (isClass(value as Callable)) yield* staticMethods(value, name)
  }
}

/** Own static methods of a class, as `Class.method`. */
function* staticMethods(owner: object, name: string): Iterable<[name: string, value: Callable]> {
  for (const [key, { value }] of Object.entries(Object.getOwnPropertyDescriptors(owner)))
    if (typeof value === 'function' && !hidden.has(`${name}.${key}`)) {
      const bound = value.bind(owner)
      unbound.set(bound, value)
      yield [`${name}.${key}`, bound]
    }
}

export type Callable = (...args: unknown[]) => unknown

const madeInside = 'the library makes it and hands it out'
const isError = 'the library makes it, of any text'

/** Exports that are not called, and why. */
export const leftOut: Readonly<Record<string, string>> = {
  spawn: 'starts workers',
  serveRank: "takes the worker's message handler",
  serveSamples: "takes the worker's message handler",
  lendPage: 'opens a port that is never closed',
  AccumulatedProgram: madeInside,
  ChannelLink: madeInside,
  CollectiveGroup: madeInside,
  PortLink: madeInside,
  PretrainedTokenizer: madeInside,
  ProcessContext: madeInside,
  ProcessGroup: madeInside,
  Runtime: madeInside,
  StagedTensor: madeInside,
  StagedUploads: madeInside,
  WebSocketStore: madeInside,
  'WebSocketStore.open': 'openStore calls it, with a link that it has checked',
  Work: madeInside,
  Sent: madeInside,
  Optimizer: 'is abstract',
  DeviceMesh: 'initDeviceMesh makes it',
  ReplicaCheck: 'ReplicaCheck.create makes it',
  OpfsStore: 'OpfsStore.open makes it',
  Float16Bits: "a typed array, whose constructor is the platform's",
  resnet18: 'gives its options to ResNet, and is large',
  resnet34: 'gives its options to ResNet, and is large',
  resnet50: 'gives its options to ResNet, and is large',
  ArgumentTypeError: isError,
  DataError: isError,
  GpuError: isError,
  PeerError: isError,
  ProcessException: isError,
  ProcessExitedException: isError,
  ProcessRaisedException: isError,
  ShapeError: isError,
  SignalError: isError,
  TabringError: isError,
}

/** Exports that Node cannot call with right arguments, and why: their errors may be about that. */
export const withoutRight: Readonly<Record<string, string>> = {
  decodeImage: 'needs a browser',
  defaultRuntime: 'needs a GPU',
  openGpu: 'needs a GPU',
  'OpfsStore.open': 'needs a browser',
  openStore: 'needs a server',
  recv: 'needs a second rank',
  send: 'needs a second rank',
  'parallel.recv': 'needs a second rank',
  'parallel.send': 'needs a second rank',
  runElastic: 'needs a launcher',
  runTimesOf: 'takes what a program returned',
}

/** Exports that make the default group, which the others need. */
export const makesGroup: readonly string[] = ['initProcessGroup', 'runElastic']

/** What `entry` exports under a name that an earlier entry point has for something else, as `entry.name`. */
const namesakes = (entry: string, members: object): [name: string, value: Callable][] => {
  const own = Object.entries(members).filter(([name, value]) => Reflect.get(api, name) !== value)
  return [...exportsOf(Object.fromEntries(own))].map(([name, value]) => [`${entry}.${name}`, value])
}

export const exported: readonly [name: string, value: Callable][] = [
  // In the order of a module's names, which those of a module runner are not in.
  ...[...exportsOf(api)].sort(([a], [b]) => (a < b ? -1 : 1)),
  ...namesakes('distributed', api.distributed),
  ...namesakes('parallel', api.parallel),
]

export const called = exported.filter(([name]) => !Object.hasOwn(leftOut, name))

export const call = (value: Callable, args: readonly unknown[]): unknown =>
  isClass(value) ? Reflect.construct(value, args) : value(...args)

const parameter = () => new api.Parameter([2, 2], Float32Array.of(1, 2, 3, 4))

const longText = 'x'.repeat(10_000)
const longList = <Item>(item: Item) => new Array<Item>(10_000).fill(item)

/** Values that an error must not quote whole: made once, because that takes long. */
const longValues = (
  [
    ['a long text', () => longText],
    ['a list with a long text', () => [longText]],
    ['a long list', () => longList(7)],
    ['a long list of texts', () => longList('seven')],
    ['a long name', () => ({ [longText]: 1 })],
    ['many names', () => Object.fromEntries(longList(0).map((_, n) => [`name${n}`, n]))],
    ['a long bigint', () => 10n ** 9_999n],
    ['a long symbol', () => Symbol(longText)],
    ['a long function', () => new Function(`return '${longText}'`)],
  ] as const
).map(([name, make]): [name: string, make: () => unknown] => {
  const value = make()
  return [name, () => value]
})

/** Values of which each is wrong for most arguments. */
export const wrongValues: readonly [name: string, make: () => unknown][] = [
  ['undefined', () => undefined],
  ['null', () => null],
  ['true', () => true],
  ['false', () => false],
  ['0', () => 0],
  ['-1', () => -1],
  ['1.5', () => 1.5],
  ['NaN', () => Number.NaN],
  ['Infinity', () => Number.POSITIVE_INFINITY],
  ['1e30', () => 1e30],
  ["''", () => ''],
  ["'abc'", () => 'abc'],
  ['{}', () => ({})],
  ['{ x: 1 }', () => ({ x: 1 })],
  ['[]', () => []],
  ['[1, 4]', () => [1, 4]],
  ['[[1]]', () => [[1]]],
  ["['a']", () => ['a']],
  ['[symbol]', () => [Symbol('s')]],
  ['a function', () => () => 0],
  ['a symbol', () => Symbol('s')],
  ['10n', () => 10n],
  ['a Float32Array', () => Float32Array.of(1, 2)],
  ['a detached Float32Array', () => detached()],
  ['detached bytes', () => detached(Uint8Array.of(1, 2))],
  ['a detached ArrayBuffer', () => detached(Uint8Array.of(1, 2)).buffer],
  ['a Date', () => new Date(0)],
  ['no prototype', () => Object.create(null)],
  ['a circular object', circular],
  ['a tensor', parameter],
  ['a module', () => new api.Linear(2, 2)],
  ...longValues,
]

/** An array whose buffer was transferred away, as to a worker. */
export function detached<A extends Float32Array | Uint8Array = Float32Array>(
  array = Float32Array.of(1, 2) as A,
): A {
  structuredClone(array.buffer, { transfer: [array.buffer] })
  return array
}

function circular(): object {
  const object: Record<string, unknown> = {}
  object.self = object
  return object
}

/** Makes a tensor of a shape: one of the function that is traced, or else a parameter. */
export type Make = (shape: api.Shape, dtype?: api.HostDType) => api.Tensor

const square: api.Shape = [2, 2]

const causalLmConfig: api.CausalLmConfig = {
  architecture: 'LlamaForCausalLM',
  ...{ vocabSize: 4, hiddenSize: 2, intermediateSize: 2, numHiddenLayers: 1 },
  ...{ numAttentionHeads: 1, numKeyValueHeads: 1, headDim: 2, maxPositionEmbeddings: 4 },
  ...{ rmsNormEps: 1e-5, ropeTheta: 1e4, tieWordEmbeddings: true },
}

/** Functions of tensors: arguments with which each works. The others of the same files take one tensor. */
const ofTensors: Readonly<Record<string, (make: Make) => unknown[]>> = {
  softmax: (make) => [make(square), 1],
  logSoftmax: (make) => [make(square), 1],
  scaledDotProductAttention: (make) => [make(square), make(square), make(square), {}],
  packedAttention: (make) => [make([4, 12]), { batch: 2, heads: 2 }, {}],
  batchNorm: (make) => [make(square), make([2]), make([2]), { training: true }],
  checkpoint: (make) => [(x: api.Tensor) => api.exp(x), make(square)],
  checkpointSequential: (make) => [[{ forward: (x: api.Tensor) => x }], 1, make(square)],
  conv1d: (make) => [make([1, 2, 4]), make([2, 2, 3]), make([2]), {}],
  conv2d: (make) => [make([1, 2, 4, 4]), make([2, 2, 3, 3]), make([2]), {}],
  convTranspose2d: (make) => [make([1, 2, 4, 4]), make([2, 2, 3, 3]), make([2]), {}],
  einsum: (make) => ['ij,jk', make(square), make(square)],
  clamp: (make) => [make(square), 0, 1],
  where: (make) => [make(square), make(square), make(square)],
  embedding: (make) => [make([2], 'i32'), make(square), {}],
  gather: (make) => [make(square), 0, make(square, 'i32')],
  indexSelect: (make) => [make(square), 0, make([2], 'i32')],
  oneHot: (make) => [make([2], 'i32'), 3],
  scatterAdd: (make) => [make(square), 0, make(square, 'i32'), make(square)],
  linear: (make) => [make(square), make(square), make([2])],
  sampleCount: () => [],
  stepScalar: () => ['scale', 1],
  topKCorrect: (make) => [make(square), make([2], 'i32'), 1],
  accuracy: (make) => [make(square), make([2], 'i32'), {}],
  crossEntropy: (make) => [make(square), make([2], 'i32'), {}],
  chunkedCrossEntropy: (make) => [make(square), (x: api.Tensor) => x, make([2], 'i32'), {}],
  nllLoss: (make) => [make(square), make([2], 'i32'), {}],
  dot: (make) => [make([2]), make([2])],
  outer: (make) => [make([2]), make([2])],
  bmm: (make) => [make([1, 2, 2]), make([1, 2, 2])],
  groupNorm: (make) => [make(square), 1, make([2])],
  layerNorm: (make) => [make(square), [2], make([2])],
  rmsNorm: (make) => [make(square), [2], make([2])],
  pad: (make) => [make(square), [1, 1], 'constant'],
  adaptiveAvgPool1d: (make) => [make([1, 2, 4]), 2],
  adaptiveAvgPool2d: (make) => [make([1, 2, 4, 4]), 2],
  avgPool1d: (make) => [make([1, 2, 4]), 2, {}],
  avgPool2d: (make) => [make([1, 2, 4, 4]), 2, {}],
  maxPool1d: (make) => [make([1, 2, 4]), 2, {}],
  maxPool2d: (make) => [make([1, 2, 4, 4]), 2, {}],
  norm: (make) => [make(square), 2, 1],
  topk: (make) => [make(square), 1, 1],
  rotaryEmbedding: (make) => [make([2, 4]), make([2, 2, 2]), {}],
  packedRotaryEmbedding: (make) => [make([2, 12]), make([2, 2, 2]), { positions: 2, heads: 1 }, {}],
  arange: () => [0, 4, 1],
  full: () => [[2], 1, {}],
  zeros: () => [[2], {}],
  ones: () => [[2], {}],
  cast: (make) => [make(square), 'i32'],
  cat: (make) => [[make(square)], 0],
  stack: (make) => [[make(square)], 0],
  chunk: (make) => [make(square), 2, 0],
  split: (make) => [make(square), 1, 0],
  cumsum: (make) => [make(square), 0],
  expand: (make) => [make(square), [2, 2]],
  flatten: (make) => [make(square), 0, 1],
  flip: (make) => [make(square), [0]],
  narrow: (make) => [make(square), 0, 0, 1],
  permute: (make) => [make(square), [1, 0]],
  repeat: (make) => [make(square), [1, 2]],
  reshape: (make) => [make(square), [4]],
  roll: (make) => [make(square), 1, 0],
  select: (make) => [make(square), 0, 0],
  slice: (make) => [make(square), 0, 0, 1],
  squeeze: (make) => [make([1, 2]), 0],
  transpose: (make) => [make(square), 0, 1],
  tril: (make) => [make(square), 0],
  triu: (make) => [make(square), 0],
  unsqueeze: (make) => [make(square), 0],
  'parallel.gather': (make) => [[make(square)], 'reference', 0],
  parallelApply: (make) => [[linear()], [[make(square)]], 0],
  'parallel.recv': () => [square, 1, {}],
  'parallel.replicate': () => [linear(), ['reference']],
  'parallel.scatter': (make) => [[make(square)], ['reference'], 0],
  'parallel.send': (make) => [make(square), 1],
  clipGradNorm: () => [parameters(), 1, {}],
  clipGradValue: () => [parameters(), 1],
  autocast: () => [{}, () => 0],
  dataParallel: (make) => [linear(), [make(square)], { deviceIds: ['reference'] }],
  packPaddedSequence: (make) => [make([2, 2, 2]), [2, 1], {}],
  padPackedSequence: (make) => [{ data: make([2, 2, 2]), lengths: [2, 1], batchFirst: false }, {}],
}

const ofOneTensor = `relu sigmoid tanh silu leakyRelu gelu softplus abs erf exp floor log neg rsqrt sign
  sqrt square amax amin argmax argmin logsumexp max mean min std sum variance varMean dropout`
const ofTwoTensors = `add div eq ge gt le lt maximum minimum mul ne pow sub matmul binaryCrossEntropy
  binaryCrossEntropyWithLogits huberLoss klDiv l1Loss mseLoss smoothL1Loss`
const namesIn = (text: string) => new Set(text.split(/\s+/))
const [one, two] = [ofOneTensor, ofTwoTensors].map(namesIn)

/** Arguments with which a function of tensors works; undefined for other functions. */
export function tensorArguments(name: string, make: Make): unknown[] | undefined {
  if (one.has(name)) return [make(square)]
  if (two.has(name)) return [make(square), make(square)]
  return Object.hasOwn(ofTensors, name) ? ofTensors[name](make) : undefined
}

const linear = () => new api.Linear(2, 2)
/** With the key of a layer that GGUF files have a name for. */
const feedForward = () =>
  ['up_proj', 'mlp', '0', 'layers', 'model'].reduce<api.Module>(
    (inner, name) => new api.ModuleDict({ [name]: inner }),
    linear(),
  )
const adapted = () => api.getPeftModel(feedForward(), { targetModules: ['up_proj'] })
const adapterFiles = await api.saveAdapter(adapted())
const parameters = () => linear().parameters()
const sgd = () => new api.SGD(parameters(), { lr: 0.1 })
const exponential = () => new api.lrScheduler.ExponentialLR(sgd(), 0.9)
const dataset = () =>
  new api.TensorDataset({ x: api.hostTensor([2, 2], Float32Array.of(1, 2, 3, 4)) })
const batch = () => ({ x: api.hostTensor([2, 2], Float32Array.of(1, 2, 3, 4)) })
const step = (inputs: Record<string, api.Tensor>) => ({ y: Object.values(inputs)[0]?.exp() })
const types = () => ({ x: api.tensorType([2, 2]) })
const layer =
  (...sizes: unknown[]) =>
  () => [...sizes, {}]

const floats = () => Float32Array.of(1, 2)
const idxFile = (...shape: number[]) =>
  Uint8Array.of(0, 0, 8, shape.length, ...shape.flatMap((length) => [0, 0, 0, length]), 5)
const modelFile = () =>
  api.writeSafetensors([
    ['weight', { dtype: 'F32', shape: [2, 2], data: new Float32Array(4) }],
    ['bias', { dtype: 'F32', shape: [2], data: new Float32Array(2) }],
  ])
const checkpointFile = await api.packCheckpoint({ epoch: 1 })
/** A folder without files. */
const folder: api.FileFolder = {
  read: async () => undefined,
  write: async () => undefined,
  remove: async () => undefined,
}
const groupOptions = () => [{ rank: 0, worldSize: 1, links: new Map() }]
const slurm = {
  SLURM_PROCID: '0',
  SLURM_NTASKS: '1',
  SLURM_NODEID: '0',
  SLURM_LOCALID: '0',
  SLURM_NODELIST: 'a',
  SLURM_STEP_NODELIST: 'a',
  SLURM_JOB_ID: '1',
  SLURM_TASKS_PER_NODE: '1',
}
const block = () =>
  class Block extends api.Module {
    static expansion = 1
    constructor(..._: unknown[]) {
      super()
    }
    forward(x: api.Tensor) {
      return x
    }
  }
export const deviceMesh = () =>
  new api.DeviceMesh('reference', [{ name: 'dp', group: api.getProcessGroup() }])
const bucket = () => {
  const one = new Bucket(0, [parameter()])
  const group = api.getProcessGroup()
  const turn = { sequence: group.takeSequence() }
  const place = { index: 0, isLast: true } as BucketPlace
  return new GradBucket(group, one, place, new Float32Array(one.elements), turn)
}
const schedule = () => [new Pipe(linear(), [stage], [stage.device]), { microBatches: 1 }]
const stage = {
  index: 0,
  device: { type: 'reference', index: 0, rank: 0 } as api.PlacedDevice,
  path: '',
  layers: [],
  keys: [],
}

const pretrainedFiles = await smallFiles()
const npyFile = Uint8Array.from(atob(numpy.cases[0].file), (character) => character.charCodeAt(0))

/** Arguments with which the others work: as many of the first as there is an obvious one for. */
const ofOthers: Readonly<Record<string, () => unknown[]>> = {
  Softmax: () => [1],
  LogSoftmax: () => [1],
  Flatten: () => [0, 1],
  defaultCollate: () => [[{ x: 1 }], {}],
  padBatch: () => [batch(), 4],
  CsvTable: () => ['table', ['a'], [['1']]],
  readCsv: () => [new Blob(['a\n1\n']), 'table', {}],
  CharTokenizer: () => [['a', 'b']],
  ConcatDataset: () => [[dataset()]],
  Subset: () => [dataset(), [0]],
  TensorDataset: () => [batch()],
  randomSplit: () => [dataset(), [1, 1], {}],
  download: () => [new URL('https://example.invalid/'), {}],
  forgetDownload: () => [new URL('https://example.invalid/'), api.memoryFileStore()],
  readNpy: () => [npyFile, 'file'],
  readNpz: () => [writeZip([['x.npy', npyFile]]), 'file', {}],
  readIdx: () => [new Uint8Array([0, 0, 8, 1, 0, 0, 0, 1, 5]), 'file'],
  idxDataset: () => [idxFile(1, 1, 1), idxFile(1), {}],
  IdxDataset: () => [
    { shape: [1, 1, 1], data: Uint8Array.of(1) },
    { shape: [1], data: Uint8Array.of(1) },
    {},
  ],
  decodeImage: () => [new Blob(), 'image'],
  normalize: () => [[0], [1]],
  randomResizedCrop: () => [4, {}],
  ImageFolder: () => [[{ path: 'a/b.png', file: new Blob() }], {}],
  DataLoader: () => [dataset(), {}],
  writeSafetensors: () => [[], {}],
  readSafetensors: () => [api.writeSafetensors([]), 'file'],
  readTorch: () => [api.writeTorch(null), 'file'],
  writeTorch: () => [null],
  DistributedSampler: () => [dataset(), { numReplicas: 2, rank: 0 }],
  hostTensor: () => [[2], Float32Array.of(1, 2)],
  load: () => [api.save({}), 'file'],
  batchShares: () => [4, 2],
  filesFolder: () => [[new File([], 'config.json')]],
  urlFolder: () => [new URL('https://example.invalid/'), {}],
  readTokenizer: () => [{ tokenizer: goldenTokenizers.tokenizer }],
  readTextTable: () => [new File(['a'], 'a.txt'), {}],
  tokenizeTexts: () => [
    { name: 'a', form: 'text', rows: [{ text: 'a b c' }], lines: [1], unit: 'line' },
    { encode: () => Int32Array.of(1, 2), applyChatTemplate: () => '' },
    { blockSize: 4 },
  ],
  TextDataset: () => [
    {
      tokens: Int32Array.of(1),
      learned: Uint8Array.of(1),
      parts: Uint32Array.of(0, 1),
      rows: Uint32Array.of(0, 1),
      blockSize: 1,
      padToken: 0,
    },
  ],
  loadPretrained: () => [folderOf(pretrainedFiles), {}],
  TokenDataset: () => [Int32Array.of(1, 2, 3), { blockSize: 1 }],
  saveCheckpoint: () => [{ epoch: 1 }, { folder }],
  loadCheckpoint: () => [{}, { folder }],
  packCheckpoint: () => [{ epoch: 1 }],
  unpackCheckpoint: () => [checkpointFile, {}],
  getPeftModel: () => [feedForward(), { targetModules: ['up_proj'] }, 'default'],
  loadAdapter: () => [feedForward(), adapterFiles, {}],
  loadModel: () => [linear(), modelFile(), {}],
  saveAdapter: () => [adapted(), {}],
  saveGgufAdapter: () => [adapted(), { architecture: 'Qwen2ForCausalLM' }, {}],
  saveMerged: () => [adapted()],
  saveModel: () => [linear(), {}],
  DistributedDataParallel: () => [linear(), {}],
  paramDigest: () => [parameters(), new api.ReferenceRuntime()],
  evaluate: () => [
    linear(),
    dataset(),
    { batchSums: ({ x }: { x: api.Tensor }) => ({ x: x.sum() }) },
  ],
  AverageMeter: () => ['loss', ':f'],
  ProgressMeter: () => [1, []],
  compile: () => [step, types(), { device: 'reference' }],
  compileAccumulated: () => [step, types(), { steps: 2, device: 'reference' }],
  detectAnomaly: () => [new api.ReferenceRuntime(), step, types(), batch()],
  runEagerly: () => [new api.ReferenceRuntime(), step, types(), batch()],
  Parameter: () => [[2], Float32Array.of(1, 2)],
  ModuleBuffer: () => [[2], Float32Array.of(1, 2)],
  rotaryTable: () => [4, 2],
  MultiheadAttention: layer(4, 2),
  RotaryEmbedding: layer(4),
  CharRnn: layer(4),
  charRnn: layer(4),
  Conv1d: layer(2, 2, 3),
  Conv2d: layer(2, 2, 3),
  ConvTranspose2d: layer(2, 2, 3),
  Embedding: layer(4, 2),
  Linear: layer(2, 2),
  GroupNorm: layer(1, 2),
  GRU: layer(2, 2),
  GRUCell: layer(2, 2),
  LSTM: layer(2, 2),
  LSTMCell: layer(2, 2),
  RNN: layer(2, 2),
  RNNCell: layer(2, 2),
  SyncBatchNorm: layer(2),
  BatchNorm1d: layer(2),
  BatchNorm2d: layer(2),
  LayerNorm: layer(2),
  RMSNorm: layer(2),
  AdaptiveAvgPool1d: () => [2],
  AdaptiveAvgPool2d: () => [2],
  httpFolder: () => ['https://example.invalid/'],
  AvgPool1d: layer(2),
  AvgPool2d: layer(2),
  MaxPool1d: layer(2),
  MaxPool2d: layer(2),
  CausalLm: () => [causalLmConfig],
  Gpt: () => [{ vocabSize: 4, blockSize: 2, layers: 1, heads: 1, width: 2 }],
  ResNet: () => [block(), [1, 1, 1, 1], { numClasses: 2, smallInputs: true, width: 2 }],
  spectralNorm: () => [linear(), {}],
  addModulePrefix: () => [{}, 'module.'],
  ExponentialMovingAverage: () => [parameters(), {}],
  LRScheduler: () => [sgd()],
  ChainedScheduler: () => [[exponential()]],
  SequentialLR: () => {
    const scheduler = exponential()
    return [scheduler.optimizer, [scheduler], []]
  },
  CosineAnnealingLR: () => [sgd(), 2, {}],
  CosineAnnealingWarmRestarts: () => [sgd(), 2, {}],
  ConstantLR: () => [sgd(), {}],
  ExponentialLR: () => [sgd(), 0.9],
  LambdaLR: () => [sgd(), () => 1],
  LinearLR: () => [sgd(), {}],
  MultiStepLR: () => [sgd(), [1], {}],
  StepLR: () => [sgd(), 1, {}],
  OneCycleLR: () => [sgd(), 1, { totalSteps: 4 }],
  ReduceLROnPlateau: () => [sgd(), {}],
  DataParallel: () => [linear(), { deviceIds: ['reference'] }],
  initDeviceMesh: () => ['reference', [1], {}],
  layersOf: () => [linear(), ''],
  layerTimes: () => [new api.Sequential(linear()), api.tensorType([2, 2]), {}],
  pipeline: () => [new api.Sequential(linear()), { stages: 1, devices: ['reference'] }],
  Schedule1F1B: schedule,
  ScheduleGPipe: schedule,
  ScheduleInterleaved1F1B: schedule,
  bubbleOf: () => [[{ device: 0, startMs: 0, endMs: 1 }]],
  replicate: () => [linear(), {}],
  fullyShard: () => [linear(), {}],
  parallelizeModule: () => [linear(), deviceMesh(), {}],
  OpfsStore: () => ['name'],
  'CharTokenizer.of': () => ['ab'],
  'Float16Bits.encode': () => [floats()],
  'ReplicaCheck.create': () => [new api.ReferenceRuntime(), [new Bucket(0, [parameter()])]],
  'SyncBatchNorm.convert': () => [new api.BatchNorm1d(2)],
  'SyncBatchNorm.convertSyncBatchnorm': () => [new api.BatchNorm1d(2)],
  'OpfsStore.open': () => ['name'],
  PrefixStore: () => ['prefix', new api.HashStore()],
  openStore: () => [api.newRoomUrl('wss://example.invalid/'), {}],
  device: () => ['webgpu', 0],
  runtimeOf: () => ['reference'],
  setDefaultDevice: () => ['reference'],
  setNumThreads: () => [1],
  setSwitches: () => [{}],
  newRoomUrl: () => ['wss://example.invalid/'],
  measureLinks: () => [api.getProcessGroup(), {}],
  batchSizeOf: () => [batch()],
  listDirectory: () => [{ kind: 'directory', name: 'a', entries: () => [] }],
  listDropped: () => [[]],
  listEntries: () => [[]],
  listServed: () => ['https://example.invalid/'],
  centerCrop: () => [4],
  compose: () => [[api.toTensor()]],
  resize: () => [4],
  randomStreamOf: () => [{ seed: 1, epoch: 0, index: 0 }],
  save: () => [{ epoch: 1 }],
  stripModulePrefix: () => [{}, 'module.'],
  generate: () => [new api.CausalLm(causalLmConfig), [1], { maxNewTokens: 1 }],
  gpt: () => [{ vocabSize: 4, blockSize: 2, layers: 1, heads: 1, width: 2 }],
  manualSeed: () => [1],
  setRngState: () => [api.getRngState()],
  reportProgress: () => [{ step: 1 }],
  expandNodeList: () => ['a[1-2]'],
  rankFromSlurm: () => [slurm],
  runElastic: () => [async () => undefined, {}],
  createProcessGroup: groupOptions,
  initProcessGroup: groupOptions,
  serveRank: () => [() => undefined],
  allreduceHook: () => [undefined, bucket()],
  bf16CompressHook: () => [undefined, bucket()],
  fp16CompressHook: () => [undefined, bucket()],
  int8CompressHook: () => [new api.Int8State(), bucket()],
  powerSgdHook: () => [new api.PowerSgdState(), bucket()],
  bf16CompressWrapper: () => [api.allreduceHook],
  fp16CompressWrapper: () => [api.allreduceHook],
  allToAll: () => [[floats()], [floats()], {}],
  allToAllSingle: () => [floats(), floats(), [2], [2], {}],
  allGather: () => [[floats()], floats(), {}],
  allGatherIntoTensor: () => [floats(), floats(), {}],
  allReduce: () => [floats(), {}],
  barrier: () => [{}],
  monitoredBarrier: () => [{}],
  broadcast: () => [floats(), 0, {}],
  'distributed.gather': () => [floats(), [floats()], 0, {}],
  reduce: () => [floats(), 0, {}],
  reduceScatter: () => [floats(), [floats()], {}],
  reduceScatterTensor: () => [floats(), floats(), {}],
  scatter: () => [floats(), [floats()], 0, {}],
  send: () => [floats(), 0, {}],
  recv: () => [floats(), 0, {}],
  isend: () => [floats(), 0, {}],
  irecv: () => [floats(), 0, {}],
  P2POp: () => [api.distributed.isend, floats(), 0, {}],
  batchIsendIrecv: () => [[new api.distributed.P2POp(api.distributed.isend, floats(), 0)]],
  allGatherObject: () => [[undefined], 'object', {}],
  broadcastObjectList: () => [['object'], 0, {}],
  gatherObject: () => ['object', [undefined], 0, {}],
  scatterObjectList: () => [[undefined], ['object'], 0, {}],
  newGroup: () => [[0], {}],
  newSubgroups: () => [1, api.getProcessGroup(), {}],
  newSubgroupsByEnumeration: () => [[[0]], api.getProcessGroup(), {}],
  getRank: () => [api.getProcessGroup()],
  getWorldSize: () => [api.getProcessGroup()],
  getBackend: () => [api.getProcessGroup()],
  getProcessGroupRanks: () => [api.getProcessGroup()],
  getGroupRank: () => [api.getProcessGroup(), 0],
  getGlobalRank: () => [api.getProcessGroup(), 0],
  destroyProcessGroup: () => [api.getProcessGroup()],
  tensorType: () => [[2], 'f32'],
}

/** The same of an export that is no function of tensors. */
export function otherArguments(name: string): unknown[] {
  if (Object.hasOwn(ofOthers, name)) return ofOthers[name]()
  return optimizers.includes(name) ? [parameters(), { lr: 0.1 }] : []
}

const optimizers = exported.flatMap(([name, value]) =>
  value.prototype instanceof api.Optimizer ? [name] : [],
)

/** Exports that work without their arguments. */
const withoutArguments = `bytePairTokenizer opfsFileStore randomHorizontalFlip launcherFolder Int8State
  PowerSgdState isBackendAvailable getProcessGroup HashStore GELU LeakyReLU Softplus
  ModuleDict ModuleList Dropout BCELoss BCEWithLogitsLoss CrossEntropyLoss HuberLoss KLDivLoss L1Loss
  MSELoss NLLLoss SmoothL1Loss cnn mlp Sequential GradScaler ColwiseParallel
  RowwiseParallel exportTrace`

/** Those of which arguments are known. */
export const namesWithArguments: readonly string[] = [
  ...namesIn(withoutArguments),
  ...one,
  ...two,
  ...Object.keys(ofTensors),
  ...Object.keys(ofOthers),
  ...optimizers,
]
