import { writeZip } from '../../src/data/zip.ts'
import * as api from '../../src/index.ts'
import numpy from '../golden/npy.json'

/** What the spec of arguments calls: every exported function and class, and arguments with which each works. */

/** Whether it is an object that `export * as name` makes. */
const isNamespace = (value: unknown): value is Record<string, unknown> =>
  Object.prototype.toString.call(value) === '[object Module]'

function* exportsOf(members: object, prefix = ''): Iterable<[name: string, value: Callable]> {
  for (const [name, value] of Object.entries(members)) {
    if (typeof value === 'function') yield [prefix + name, value as Callable]
    else if (isNamespace(value)) yield* exportsOf(value, `${name}.`)
  }
}

export type Callable = (...args: unknown[]) => unknown

const madeInside = 'the library makes it and hands it out'
const takesBucket = 'DistributedDataParallel calls it with a bucket and a state'
const isError = 'the library makes it, of any text'

/** Exports that are not called, and why. */
export const leftOut: Readonly<Record<string, string>> = {
  spawn: 'starts workers',
  serveRank: "takes the worker's message handler",
  serveSamples: "takes the worker's message handler",
  lendPage: 'opens a port that is never closed',
  allreduceHook: takesBucket,
  bf16CompressHook: takesBucket,
  fp16CompressHook: takesBucket,
  int8CompressHook: takesBucket,
  powerSgdHook: takesBucket,
  AccumulatedProgram: madeInside,
  ChannelLink: madeInside,
  CollectiveGroup: madeInside,
  PortLink: madeInside,
  ProcessContext: madeInside,
  ProcessGroup: madeInside,
  Runtime: madeInside,
  StagedTensor: madeInside,
  StagedUploads: madeInside,
  WebSocketStore: madeInside,
  Work: madeInside,
  'parallel.Sent': madeInside,
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

const isLeftOut = (name: string): boolean =>
  Object.hasOwn(leftOut, name) || Object.hasOwn(leftOut, name.replace(/^distributed\./, ''))

export const exported: readonly [name: string, value: Callable][] = [...exportsOf(api)]

export const called = exported.filter(([name]) => !isLeftOut(name))

export const isClass = (value: Callable): boolean =>
  /^class\b/.test(Function.prototype.toString.call(value))

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
  ['a detached Float32Array', detached],
  ['a Date', () => new Date(0)],
  ['no prototype', () => Object.create(null)],
  ['a circular object', circular],
  ['a tensor', parameter],
  ['a module', () => new api.Linear(2, 2)],
  ...longValues,
]

/** An array whose buffer was transferred away, as to a worker. */
export function detached(): Float32Array {
  const array = Float32Array.of(1, 2)
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
  packPaddedSequence: (make) => [make([2, 2, 2]), [2, 1], {}],
  padPackedSequence: (make) => [{ data: make([2, 2, 2]), lengths: [2, 1], batchFirst: false }, {}],
}

const ofOneTensor = `relu sigmoid tanh silu leakyRelu gelu softplus abs erf exp floor log neg rsqrt sign
  sqrt square amax amin argmax argmin logsumexp max mean min std sum variance varMean dropout`
const ofTwoTensors = `add div eq ge gt le lt maximum minimum mul ne pow sub matmul binaryCrossEntropy
  binaryCrossEntropyWithLogits huberLoss klDiv l1Loss mseLoss smoothL1Loss`
const namesIn = (text: string) => new Set(text.split(/\s+/))
const [one, two] = [ofOneTensor, ofTwoTensors].map(namesIn)

/** Arguments with which a function of tensors works; undefined for what is none. */
export function tensorArguments(name: string, make: Make): unknown[] | undefined {
  if (one.has(name)) return [make(square)]
  if (two.has(name)) return [make(square), make(square)]
  return Object.hasOwn(ofTensors, name) ? ofTensors[name](make) : undefined
}

const linear = () => new api.Linear(2, 2)
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

const npyFile = Uint8Array.from(atob(numpy.cases[0].file), (character) => character.charCodeAt(0))

/** Arguments with which the others work: as many of the first as there is an obvious one for. */
const ofOthers: Readonly<Record<string, () => unknown[]>> = {
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
  idxDataset: () => [new Uint8Array(), new Uint8Array(), {}],
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
  TokenDataset: () => [Int32Array.of(1, 2, 3), { blockSize: 1 }],
  saveCheckpoint: () => [{}, {}],
  loadCheckpoint: () => [{}, {}],
  unpackCheckpoint: () => [new Uint8Array(), {}],
  loadModel: () => [linear(), new Uint8Array(), {}],
  saveModel: () => [linear(), {}],
  DistributedDataParallel: () => [linear(), {}],
  paramDigest: () => [parameters()],
  ReplicaCheck: () => [parameters(), {}],
  evaluate: () => [linear(), dataset(), {}],
  AverageMeter: () => ['loss', ':f'],
  ProgressMeter: () => [1, []],
  compile: () => [step, types(), { device: 'cpu' }],
  compileAccumulated: () => [step, types(), { steps: 2, device: 'cpu' }],
  detectAnomaly: () => [new api.CpuRuntime(), step, types(), batch()],
  runEagerly: () => [new api.CpuRuntime(), step, types(), batch()],
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
  AvgPool1d: layer(2),
  AvgPool2d: layer(2),
  MaxPool1d: layer(2),
  MaxPool2d: layer(2),
  Gpt: () => [{ vocabSize: 4, blockSize: 2, layers: 1, heads: 1, width: 2 }],
  ResNet: () => ['basic', [1], { numClasses: 2, smallInputs: true, width: 2 }],
  spectralNorm: () => [linear(), {}],
  addModulePrefix: () => [{}, 'module.'],
  Adagrad: () => [parameters(), { lr: 0.1 }],
  Adam: () => [parameters(), { lr: 0.1 }],
  AdamW: () => [parameters(), { lr: 0.1 }],
  Lion: () => [parameters(), { lr: 0.1 }],
  RMSprop: () => [parameters(), { lr: 0.1 }],
  SGD: () => [parameters(), { lr: 0.1 }],
  clipGradNorm: () => [parameters(), 1, {}],
  clipGradValue: () => [parameters(), 1],
  ExponentialMovingAverage: () => [parameters(), {}],
  'lrScheduler.ChainedScheduler': () => [[exponential()]],
  'lrScheduler.SequentialLR': () => {
    const scheduler = exponential()
    return [scheduler.optimizer, [scheduler], []]
  },
  'lrScheduler.CosineAnnealingLR': () => [sgd(), 2, {}],
  'lrScheduler.CosineAnnealingWarmRestarts': () => [sgd(), 2, {}],
  'lrScheduler.ConstantLR': () => [sgd(), {}],
  'lrScheduler.ExponentialLR': () => [sgd(), 0.9],
  'lrScheduler.LambdaLR': () => [sgd(), () => 1],
  'lrScheduler.LinearLR': () => [sgd(), {}],
  'lrScheduler.MultiStepLR': () => [sgd(), [1], {}],
  'lrScheduler.StepLR': () => [sgd(), 1, {}],
  'lrScheduler.OneCycleLR': () => [sgd(), 1, { totalSteps: 4 }],
  'lrScheduler.ReduceLROnPlateau': () => [sgd(), {}],
  DataParallel: () => [linear(), { deviceIds: ['cpu'] }],
  dataParallel: () => [linear(), [parameter()], { deviceIds: ['cpu'] }],
  'parallel.replicate': () => [linear(), ['cpu']],
  'parallel.scatter': () => [[parameter()], ['cpu']],
  'parallel.gather': () => [[parameter()], 'cpu'],
  'parallel.parallelApply': () => [[linear()], [[parameter()]]],
  'parallel.send': () => [parameter(), 'rank:0/cpu'],
  'parallel.recv': () => [api.tensorType([2]), 'rank:0/cpu'],
  'amp.autocast': () => [() => 0, true],
  DeviceMesh: () => ['cpu', [1]],
  initDeviceMesh: () => ['cpu', [1], {}],
  layersOf: () => [linear(), ''],
  layerTimes: () => [linear(), api.tensorType([2, 2]), {}],
  pipeline: () => [linear(), {}],
  replicate: () => [linear(), {}],
  fullyShard: () => [linear(), {}],
  parallelizeModule: () => [linear(), undefined, {}],
  memoryPair: () => [api.systemEnv, {}],
  OpfsStore: () => ['name'],
  PrefixStore: () => ['prefix', new api.HashStore()],
  openStore: () => ['wss://example.invalid/'],
  device: () => ['webgpu', 0],
  tensorType: () => [[2], 'f32'],
}

/** The same of an export that is no function of tensors. */
export function otherArguments(name: string): unknown[] {
  const own = name.replace(/^distributed\./, '')
  return Object.hasOwn(ofOthers, own) ? ofOthers[own]() : []
}

/** Those of which arguments are known. */
export const namesWithArguments: readonly string[] = [
  ...one,
  ...two,
  ...Object.keys(ofTensors),
  ...Object.keys(ofOthers),
]
