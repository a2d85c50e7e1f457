/** Tabring's public face: models, training steps, process groups. Everything else is internal. */

export type { ByteSource } from './data/byte-source.ts'
export { type Batch, countOf, defaultCollate, padBatch } from './data/collate.ts'
export { type CsvColumns, type CsvOptions, CsvTable, readCsv } from './data/csv.ts'
export { ConcatDataset, randomSplit, Subset, TensorDataset } from './data/datasets.ts'
export {
  type DownloadOptions,
  type DownloadProgress,
  download,
  forgetDownload,
} from './data/download.ts'
export { type FileStore, memoryStore, privateFileStore } from './data/file-store.ts'
export {
  type FolderFile,
  listDirectory,
  listDropped,
  listEntries,
  listServed,
} from './data/folder.ts'
export { type IdxArray, type IdxNumbers, readIdx } from './data/idx.ts'
export {
  IdxDataset,
  type IdxDatasetOptions,
  type IdxSample,
  idxDataset,
} from './data/idx-dataset.ts'
export { decodeImage } from './data/image/decode.ts'
export type { PixelImage } from './data/image/pixels.ts'
export {
  centerCrop,
  compose,
  normalize,
  randomHorizontalFlip,
  randomResizedCrop,
  resize,
  type Transform,
  toTensor,
} from './data/image/transforms.ts'
export { ImageFolder, type ImageSample } from './data/image-folder.ts'
export { DataLoader, type DataLoaderOptions, type Sampler } from './data/loader/data-loader.ts'
export type { DataLoaderState } from './data/loader/loader-state.ts'
export { type ServeOptions, serveSamples } from './data/loader/serve-samples.ts'
export { readSafetensors, writeSafetensors } from './data/safetensors.ts'
export { DistributedSampler, type DistributedSamplerOptions } from './data/sampler.ts'
export {
  type Dataset,
  drawsOf,
  type HostTensor,
  hostTensor,
  type Sample,
  type SampleKey,
} from './data/samples.ts'
export { load, type Saved, type SavedState, save } from './data/saved-tree.ts'
export {
  type BytePairEncoding,
  bytePairTokenizer,
  CharTokenizer,
  TokenDataset,
  type Tokenizer,
} from './data/text.ts'
export { openGpu } from './gpu/device.ts'
export { StagedTensor, StagedUploads } from './gpu/staging.ts'
export { type CompileOptions, compile } from './graph/compile.ts'
export {
  AccumulatedProgram,
  type AccumulationOptions,
  compileAccumulated,
} from './graph/compile-accumulated.ts'
export { detectAnomaly } from './graph/detect-anomaly.ts'
export { type EagerOptions, runEagerly } from './graph/eager.ts'
export {
  gelu,
  leakyRelu,
  logSoftmax,
  sigmoid,
  silu,
  softmax,
  softplus,
  tanh,
} from './graph/functions/activations.ts'
export {
  type AttentionOptions,
  packedAttention,
  scaledDotProductAttention,
} from './graph/functions/attention.ts'
export { type BatchNormOptions, batchNorm } from './graph/functions/batch-norm.ts'
export { checkpoint, checkpointSequential } from './graph/functions/checkpoint.ts'
export {
  type ConvOptions,
  type ConvPadding,
  type ConvTransposeOptions,
  conv1d,
  conv2d,
  convTranspose2d,
} from './graph/functions/convolution.ts'
export { type DropoutOptions, dropout } from './graph/functions/dropout.ts'
export { einsum } from './graph/functions/einsum.ts'
export {
  abs,
  add,
  clamp,
  div,
  eq,
  erf,
  exp,
  floor,
  ge,
  gt,
  le,
  log,
  lt,
  maximum,
  minimum,
  mul,
  ne,
  neg,
  pow,
  rsqrt,
  sign,
  sqrt,
  square,
  sub,
  where,
} from './graph/functions/elementwise.ts'
export {
  embedding,
  gather,
  indexSelect,
  oneHot,
  scatterAdd,
} from './graph/functions/index-ops.ts'
export {
  accuracy,
  type BinaryOptions,
  bceWithLogits,
  binaryCrossEntropy,
  binaryCrossEntropyWithLogits,
  type ClassLossOptions,
  type CrossEntropyOptions,
  crossEntropy,
  huberLoss,
  klDiv,
  type LossOptions,
  l1Loss,
  mseLoss,
  nllLoss,
  type Reduction,
  smoothL1Loss,
} from './graph/functions/losses.ts'
export { bmm, dot, matmul, outer } from './graph/functions/matmul.ts'
export { groupNorm, layerNorm, rmsNorm } from './graph/functions/normalization.ts'
export { type PadMode, pad } from './graph/functions/pad.ts'
export type { Pair } from './graph/functions/pair.ts'
export {
  type AvgPoolOptions,
  adaptiveAvgPool1d,
  adaptiveAvgPool2d,
  avgPool1d,
  avgPool2d,
  type MaxPoolOptions,
  maxPool1d,
  maxPool2d,
  type PooledWithIndices,
  type PoolOptions,
} from './graph/functions/pooling.ts'
export {
  amax,
  amin,
  argmax,
  argmin,
  logsumexp,
  max,
  mean,
  min,
  norm,
  std,
  sum,
  topk,
  type VarianceOptions,
  variance,
  varMean,
} from './graph/functions/reductions.ts'
export {
  packedRotaryEmbedding,
  type RotaryOptions,
  rotaryEmbedding,
  rotaryTable,
} from './graph/functions/rotary.ts'
export {
  arange,
  cast,
  cat,
  chunk,
  cumsum,
  expand,
  flatten,
  flip,
  full,
  narrow,
  ones,
  permute,
  repeat,
  reshape,
  roll,
  select,
  slice,
  split,
  squeeze,
  stack,
  type TensorOptions,
  transpose,
  tril,
  triu,
  unsqueeze,
  zeros,
} from './graph/functions/shape.ts'
export {
  countedSamples,
  linear,
  relu,
  stepScalar,
  topKCorrect,
} from './graph/functions.ts'
export { type DeviceProperties, gpu } from './graph/gpu.ts'
export { ModuleBuffer } from './graph/module-buffer.ts'
export { Parameter } from './graph/parameter.ts'
export type { InputTypes, Outputs, PrepareOptions, TracedFunction } from './graph/prepare.ts'
export { randomScalarNames } from './graph/random.ts'
export {
  CpuRuntime,
  defaultRuntime,
  getDefaultDevice,
  Runtime,
  runtimeOf,
  setDefaultDevice,
} from './graph/runtime.ts'
export type {
  ProgramMemory,
  RunInputs,
  RunOutputs,
  RunTimes,
  StepProgram,
  StepTimes,
} from './graph/step-program.ts'
export { timesOf } from './graph/step-program.ts'
export { type HookHandle, Tensor } from './graph/tensor.ts'
export { gradientWeight } from './graph/trace.ts'
export type { ScalarSlot } from './kernels/op.ts'
export {
  GELU,
  LeakyReLU,
  LogSoftmax,
  Sigmoid,
  SiLU,
  Softmax,
  Softplus,
  Tanh,
} from './nn/activations.ts'
export {
  MultiheadAttention,
  type MultiheadAttentionOptions,
  RotaryEmbedding,
  type RotaryEmbeddingOptions,
} from './nn/attention.ts'
export { BatchNorm1d, BatchNorm2d, type BatchNormLayerOptions } from './nn/batch-norm.ts'
export { CharRnn, type CharRnnOptions, charRnn } from './nn/char-rnn.ts'
export { ModuleDict, ModuleList } from './nn/containers.ts'
export {
  Conv1d,
  type Conv1dOptions,
  Conv2d,
  type Conv2dOptions,
  ConvTranspose2d,
  type ConvTranspose2dOptions,
} from './nn/convolution.ts'
export { Dropout } from './nn/dropout.ts'
export { Embedding, type EmbeddingOptions } from './nn/embedding.ts'
export { Gpt, type GptConfig } from './nn/gpt.ts'
export { getRngState, manualSeed, type RngState, setRngState } from './nn/init.ts'
export { Flatten, Linear, ReLU } from './nn/layers.ts'
export {
  BCELoss,
  BCEWithLogitsLoss,
  CrossEntropyLoss,
  HuberLoss,
  KLDivLoss,
  type KLDivOptions,
  L1Loss,
  MSELoss,
  NLLLoss,
  SmoothL1Loss,
} from './nn/losses.ts'
export { type CnnOptions, cnn, type ModelRecipe, mlp, models } from './nn/models.ts'
export {
  type LoadOptions,
  type LoadResult,
  Module,
  Sequential,
  type StateDict,
} from './nn/module.ts'
export type { BackwardHook, ForwardHook, ForwardPreHook, GradientList } from './nn/module-hooks.ts'
export { GroupNorm, LayerNorm, type LayerNormOptions, RMSNorm } from './nn/normalization.ts'
export {
  type Lengths,
  type PackedSequence,
  type PadOptions,
  packPaddedSequence,
  padPackedSequence,
} from './nn/packed-sequence.ts'
export {
  AdaptiveAvgPool1d,
  AdaptiveAvgPool2d,
  AvgPool1d,
  AvgPool2d,
  MaxPool1d,
  MaxPool2d,
} from './nn/pooling.ts'
export {
  type CellOptions,
  GRU,
  GRUCell,
  LSTM,
  LSTMCell,
  RNN,
  RNNCell,
  type RnnOptions,
} from './nn/recurrent.ts'
export type { FirstStates, LastStates, RecurrentLayerOptions } from './nn/recurrent-base.ts'
export { ResNet, type ResNetOptions, resnet18, resnet34, resnet50 } from './nn/resnet.ts'
export { type SpectralNormOptions, spectralNorm } from './nn/spectral-norm.ts'
export type { LoadableState, LoadableTensor } from './nn/state-values.ts'
export { Adagrad, type AdagradOptions } from './optim/adagrad.ts'
export { Adam, type AdamOptions, AdamW, type AdamWOptions } from './optim/adam.ts'
export * as amp from './optim/amp.ts'
export { type ClipGradNormOptions, clipGradNorm, clipGradValue } from './optim/clip.ts'
export { type EmaState, ExponentialMovingAverage } from './optim/ema.ts'
export { GradScaler, type GradScalerOptions, type GradScalerState } from './optim/grad-scaler.ts'
export { Lion, type LionOptions } from './optim/lion.ts'
export * as lrScheduler from './optim/lr-scheduler/index.ts'
export { Optimizer } from './optim/optimizer.ts'
export { RMSprop, type RMSpropOptions } from './optim/rmsprop.ts'
export type { ParamGroup } from './optim/settings.ts'
export { SGD, type SGDOptions } from './optim/sgd.ts'
export type { OptimizerStateDict, StateTensor } from './optim/state-dict.ts'
export { ChannelLink, type ChannelLinkOptions } from './peer/channel.ts'
export { type GroupConfig, type GroupOptions, ProcessGroup } from './peer/group.ts'
export type { Link } from './peer/link.ts'
export { type MemoryLinkOptions, memoryPair } from './peer/memory.ts'
export { PortLink } from './peer/port.ts'
export { AverageMeter, type SummaryType } from './train/average-meter.ts'
export { loadCheckpoint, type Stateful, saveCheckpoint } from './train/checkpoint-file.ts'
export {
  DistributedDataParallel,
  type DistributedDataParallelOptions,
} from './train/data-parallel.ts'
export { loadModel, type SaveModelOptions, saveModel } from './train/model-file.ts'
export {
  destroyProcessGroup,
  getProcessGroup,
  getRank,
  getWorldSize,
  type InitProcessGroupOptions,
  initProcessGroup,
} from './train/process-group.ts'
export { type Meter, ProgressMeter } from './train/progress-meter.ts'
export { ReplicaCheck } from './train/verify.ts'
export { type Device, type DeviceSpec, device, formatDevice } from './util/device.ts'
export { systemEnv } from './util/env.ts'
export { type ErrorCode, errorCodes, TabringError } from './util/errors.ts'
export { type DType, type Shape, tensorType } from './util/shape.ts'
export { exportTrace } from './util/spans.ts'
export { type SwitchInputs, setSwitches } from './util/switches.ts'
