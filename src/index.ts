/** Tabring's public face: models, training steps, process groups. Everything else is internal. */

export {
  type BytePairEncoding,
  type BytePairTokenizer,
  bytePairTokenizer,
  type EncodeOptions,
} from './data/byte-pairs.ts'
export type { ByteSource } from './data/byte-source.ts'
export {
  type Batch,
  batchSizeOf,
  type CollateOptions,
  defaultCollate,
  type FieldDTypes,
  padBatch,
} from './data/collate.ts'
export { type CsvColumns, type CsvOptions, CsvTable, readCsv } from './data/csv.ts'
export type { CsvNumbers } from './data/csv-numbers.ts'
export { ConcatDataset, randomSplit, Subset, TensorDataset } from './data/datasets.ts'
export type {
  DatasetDescription,
  FileArray,
  FileNumbers,
  HostNumbers,
  HostTensor,
} from './data/descriptions.ts'
export {
  type DownloadOptions,
  type DownloadProgress,
  download,
  forgetDownload,
} from './data/download.ts'
export type { SafetensorsDtype } from './data/elements.ts'
export {
  type FileFolder,
  type FileStore,
  memoryFileStore,
  opfsFileStore,
  type PartFolder,
} from './data/file-store.ts'
export {
  type FileSource,
  type FolderFile,
  type FolderListing,
  listDirectory,
  listDropped,
  listEntries,
  listServed,
} from './data/folder.ts'
export { httpFolder } from './data/http-folder.ts'
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
  type Size as ImageSize,
  type Transform,
  type TransformDescription,
  toTensor,
} from './data/image/transforms.ts'
export { ImageFolder, type ImageSample } from './data/image-folder.ts'
export {
  type BatchPinner,
  DataLoader,
  type DataLoaderOptions,
  type Sampler,
} from './data/loader/data-loader.ts'
export type { DataLoaderState } from './data/loader/loader-state.ts'
export { type ServeOptions, serveSamples } from './data/loader/serve-samples.ts'
export { type NpzOptions, readNpy, readNpz } from './data/npy.ts'
export {
  type ArrayOf as SafetensorsArray,
  readSafetensors,
  type SafeTensor,
  type SafetensorsFile,
  writeSafetensors,
} from './data/safetensors.ts'
export {
  DistributedSampler,
  type DistributedSamplerOptions,
  type Padding as SamplerPadding,
} from './data/sampler.ts'
export {
  type Dataset,
  hostTensor,
  type NestedNumbers,
  type NumberArray,
  randomStreamOf,
  type Sample,
  type SampleKey,
  type SampleValue,
} from './data/samples.ts'
export {
  load,
  type Saved,
  type SavedArray,
  type SavedState,
  type SavedTensor,
  save,
} from './data/saved-tree.ts'
export { type BatchShare, batchShares } from './data/shares.ts'
export { CharTokenizer, TokenDataset, type Tokenizer } from './data/text.ts'
export { readTorch, type TorchValue } from './data/torch/read-torch.ts'
export { writeTorch } from './data/torch/write-torch.ts'
export {
  type CheckpointOptions,
  type LoadCheckpointOptions,
  loadCheckpoint,
  type SaveCheckpointOptions,
  saveCheckpoint,
} from './ddp/checkpoint/checkpoint.ts'
export {
  type CheckpointState,
  type Parts as CheckpointParts,
  packCheckpoint,
  type Stateful,
  type UnpackOptions as UnpackCheckpointOptions,
  unpackCheckpoint,
} from './ddp/checkpoint/checkpoint-file.ts'
export { launcherFolder } from './ddp/checkpoint/launcher-folder.ts'
export { loadModel, type SaveModelOptions, saveModel } from './ddp/checkpoint/model-file.ts'
export {
  DistributedDataParallel,
  type DistributedDataParallelOptions,
  type VerifySyncOptions,
} from './ddp/data-parallel/data-parallel.ts'
export type { ExactOptions, ExactShare } from './ddp/data-parallel/exact-training.ts'
export type { JoinOptions } from './ddp/data-parallel/uneven-inputs.ts'
export { type ElasticOptions, type ElasticRun, runElastic } from './ddp/elastic/run-elastic.ts'
export { paramDigest } from './ddp/hashes/param-digest.ts'
export { ReplicaCheck } from './ddp/hashes/replica-check.ts'
export type { Aggregation } from './ddp/hooks/aggregate.ts'
export {
  allreduceHook,
  bf16CompressHook,
  bf16CompressWrapper,
  type CommHook,
  fp16CompressHook,
  fp16CompressWrapper,
} from './ddp/hooks/comm-hooks.ts'
export type { GradBucket } from './ddp/hooks/grad-bucket.ts'
export type { HookState, HookStateDict } from './ddp/hooks/hook-state.ts'
export { type Int8Options, Int8State, int8CompressHook } from './ddp/hooks/int8-hook.ts'
export type { LeftOut, Trust } from './ddp/hooks/left-out.ts'
export {
  type PowerSgdOptions,
  PowerSgdState,
  powerSgdHook,
} from './ddp/hooks/power-sgd.ts'
export type { WireType } from './ddp/hooks/wire-numbers.ts'
export { AverageMeter, type SummaryType } from './ddp/metrics/average-meter.ts'
export {
  type BatchSums,
  type EvaluateOptions,
  type EvaluateResult,
  evaluate,
} from './ddp/metrics/evaluate-dataset.ts'
export { type Meter, ProgressMeter } from './ddp/metrics/progress-meter.ts'
export type {
  DistributedOptions,
  DistributedResult,
  GroupOptions as DistributedGroupOptions,
  ReduceOptions,
} from './distributed/call/call.ts'
export type { Contents as DistributedTensor } from './distributed/call/contents.ts'
export type { PointToPointOptions } from './distributed/call/messages.ts'
export type { MonitoredBarrierOptions } from './distributed/call/monitored-barrier.ts'
export { Work } from './distributed/call/work.ts'
export { isBackendAvailable } from './distributed/group/backends.ts'
export type { InitProcessGroupOptions } from './distributed/group/form-group.ts'
export type { GroupArgument } from './distributed/group/group-of.ts'
export {
  createProcessGroup,
  destroyProcessGroup,
  getProcessGroup,
  initProcessGroup,
} from './distributed/group/process-group.ts'
export { getRank, getWorldSize } from './distributed/group/ranks.ts'
export type { Subgroups } from './distributed/group/subgroups.ts'
export * as distributed from './distributed/index.ts'
export { type Progress, reportProgress } from './distributed/launcher/progress.ts'
export { lendPage } from './distributed/link/lend-page.ts'
export { args, env, type RankEnvironment, type VariableName } from './distributed/rendezvous/env.ts'
export { expandNodeList } from './distributed/rendezvous/node-list.ts'
export type { Backend, RelayChoice, Topology } from './distributed/rendezvous/plan-links.ts'
export { rankFromSlurm, type SlurmRank, type Variables } from './distributed/rendezvous/slurm.ts'
export { serveRank } from './distributed/spawn/serve-rank.ts'
export { ProcessContext, type SpawnOptions, spawn } from './distributed/spawn/spawn.ts'
export { type AdapterFacts, type Gpu, type GpuCounters, openGpu } from './gpu/device.ts'
export { getNumThreads, setNumThreads } from './gpu/num-threads.ts'
export {
  type StageableArray,
  type Staged,
  StagedTensor,
  StagedUploads,
} from './gpu/staging.ts'
export { type CompileOptions, compile } from './graph/compile/compile.ts'
export {
  AccumulatedProgram,
  type AccumulationOptions,
  compileAccumulated,
} from './graph/compile/compile-accumulated.ts'
export { type AnomalyOptions, detectAnomaly } from './graph/compile/detect-anomaly.ts'
export { type EagerOptions, runEagerly } from './graph/compile/eager.ts'
export { type DeviceProperties, gpu } from './graph/compile/gpu.ts'
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
export {
  type BatchNormOptions,
  batchNorm,
  type RunningStatistics,
} from './graph/functions/batch-norm.ts'
export {
  checkpoint,
  checkpointSequential,
  type Layer as CheckpointLayer,
} from './graph/functions/checkpoint.ts'
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
  linear,
  relu,
  type SampleCount,
  sampleCount,
  stepScalar,
  topKCorrect,
} from './graph/functions/linear.ts'
export {
  accuracy,
  type BinaryOptions,
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
export type { OnNode, ReadValue } from './graph/inside/probe.ts'
export {
  defaultRuntime,
  getDefaultDevice,
  runtimeOf,
  setDefaultDevice,
} from './graph/memory/default-runtime.ts'
export type { HostData } from './graph/memory/host-values.ts'
export type { StoredData } from './graph/memory/pool.ts'
export { type AnyRuntime, ReferenceRuntime, Runtime } from './graph/memory/runtime.ts'
export type { PlanOptions } from './graph/plan/plan.ts'
export type { InputTypes, Outputs, PrepareOptions, TracedFunction } from './graph/plan/prepare.ts'
export type {
  DeviceMemory,
  ProgramMemory,
  RunInput,
  RunInputs,
  RunOutputs,
  RunTimes,
  StepProgram,
  StepTimes,
} from './graph/plan/step-program.ts'
export { runTimesOf } from './graph/plan/step-program.ts'
export type { CompilingRanks, RankGroup, RankMessages, StepKey } from './graph/trace/exchange.ts'
export type { HookHandle } from './graph/trace/gradient-hooks.ts'
export { ModuleBuffer } from './graph/trace/module-buffer.ts'
export { Parameter } from './graph/trace/parameter.ts'
export { randomScalarNames } from './graph/trace/random.ts'
export type { StageTask } from './graph/trace/stage-marks.ts'
export type { StoredTensor } from './graph/trace/stored-tensor.ts'
export { type Axes, type Operand, Tensor, type ValuesAndIndices } from './graph/trace/tensor.ts'
export { gradientWeight } from './graph/trace/trace.ts'
export type { DividedAxis } from './graph/trace/value.ts'
export type { KernelLimits, ScalarSlot } from './kernels/op.ts'
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
  type MultiheadAttentionInputs,
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
export { Gpt, type GptConfig, gpt } from './nn/gpt.ts'
export { getRngState, manualSeed, type RngState, setRngState } from './nn/init.ts'
export { Flatten, Linear, ReLU } from './nn/layers.ts'
export {
  BCELoss,
  BCEWithLogitsLoss,
  type ClassWeights,
  CrossEntropyLoss,
  HuberLoss,
  KLDivLoss,
  type KLDivOptions,
  L1Loss,
  type LossLayerOptions,
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
export { addModulePrefix, stripModulePrefix } from './nn/module-prefix.ts'
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
export { SyncBatchNorm, type SyncBatchNormOptions } from './nn/sync-batch-norm.ts'
export { Adagrad, type AdagradOptions, type AdagradSettings } from './optim/adagrad.ts'
export {
  Adam,
  type AdamOptions,
  type AdamSettings,
  AdamW,
  type AdamWOptions,
} from './optim/adam.ts'
export * as amp from './optim/amp.ts'
export {
  type ClipGradNormOptions,
  clipGradNorm,
  clipGradValue,
  type Limit as ClipLimit,
} from './optim/clip.ts'
export {
  type Averaged,
  type EmaOptions,
  type EmaState,
  ExponentialMovingAverage,
} from './optim/ema.ts'
export type { AveragedTensor } from './optim/ema-state.ts'
export { GradScaler, type GradScalerOptions, type GradScalerState } from './optim/grad-scaler.ts'
export { Lion, type LionOptions, type LionSettings } from './optim/lion.ts'
export * as lrScheduler from './optim/lr-scheduler/index.ts'
export { Optimizer } from './optim/optimizer.ts'
export { RMSprop, type RMSpropOptions, type RMSpropSettings } from './optim/rmsprop.ts'
export type { CommonSettings, ParamGroup, Params } from './optim/settings.ts'
export { SGD, type SGDOptions, type SGDSettings } from './optim/sgd.ts'
export type {
  OptimizerStateDict,
  SettingValue,
  StateEntry,
  StateTensor,
} from './optim/state-dict.ts'
export {
  DataParallel,
  type DataParallelOptions,
  dataParallel,
} from './parallel/data-parallel/data-parallel.ts'
export * as parallel from './parallel/functions.ts'
export { DeviceMesh, type DeviceMeshOptions, initDeviceMesh } from './parallel/mesh/device-mesh.ts'
export { layersOf } from './parallel/pipeline/cut.ts'
export { type LayerTimesOptions, layerTimes } from './parallel/pipeline/layer-times.ts'
export {
  type Pipe,
  type PipelineOptions,
  type PipelineStage,
  pipeline,
} from './parallel/pipeline/pipe.ts'
export {
  type MicroBatchWork,
  type Schedule,
  Schedule1F1B,
  ScheduleGPipe,
  ScheduleInterleaved1F1B,
  type ScheduleOptions,
} from './parallel/pipeline/schedule.ts'
export { bubbleOf, type TaskCosts, type TaskSpan } from './parallel/pipeline/simulate.ts'
export { type ReplicateOptions, replicate } from './parallel/replicated/replicate.ts'
export { type FullyShardOptions, fullyShard } from './parallel/sharded/fully-shard.ts'
export { type ParallelizePlan, parallelizeModule } from './parallel/tensor/parallelize-module.ts'
export {
  ColwiseParallel,
  type ColwiseParallelOptions,
  type ParallelStyle,
  RowwiseParallel,
} from './parallel/tensor/styles.ts'
export type { AlgorithmChoice } from './peer/algorithms/algorithm-choice.ts'
export type { Algorithm as CollectiveAlgorithm } from './peer/algorithms/operations.ts'
export type { ChunkRange } from './peer/algorithms/plan.ts'
export type { CollectiveCounts, CollectiveOptions } from './peer/collective/collectives.ts'
export type { CollectiveArray, ElementArray, ReduceOp } from './peer/collective/element.ts'
export { Float16Bits, type Float16Elements } from './peer/collective/float16-bits.ts'
export type { CollectiveSpan } from './peer/collective/pending-collectives.ts'
export type { MessageOptions } from './peer/group/collective-checks.ts'
export { CollectiveGroup } from './peer/group/collective-group.ts'
export {
  type GroupConfig,
  type GroupOptions,
  type GroupStats,
  type NewGroupOptions,
  ProcessGroup,
} from './peer/group/group.ts'
export { type LinkMeasurement, measureLinks } from './peer/group/measure-links.ts'
export type { NonGroupMember } from './peer/group/non-group-member.ts'
export { ChannelLink, type ChannelLinkOptions } from './peer/link/channel.ts'
export type { Link, LinkEnd, LinkKind, LinkStats } from './peer/link/link.ts'
export {
  type Fault as LinkFault,
  type FaultKind as LinkFaultKind,
  type MemoryLink,
  type MemoryLinkOptions,
  memoryPair,
} from './peer/link/memory-link.ts'
export { PortLink, type PortLinkOptions } from './peer/link/port.ts'
export { type Refusal, SignalError } from './peer/room/refusals.ts'
export type { RoomOptions, SocketConstructor, SocketLike } from './peer/room/room-options.ts'
export { newRoomUrl } from './peer/room/room-url.ts'
export type { RoomLink } from './peer/room/secret.ts'
export type { LinkPeaks, SessionConfig, SessionStats } from './peer/session/session-config.ts'
export { HashStore, type HashStoreOptions } from './peer/store/hash-store.ts'
export { OpfsStore } from './peer/store/opfs-store.ts'
export { PrefixStore } from './peer/store/prefix-store.ts'
export type { Store } from './peer/store/store.ts'
export { type OpenStoreOptions, openStore } from './peer/tab/open-store.ts'
export { WebSocketStore } from './peer/tab/web-socket-store.ts'
export {
  type Device,
  type DeviceChoice,
  type DeviceSpec,
  type DeviceType,
  device,
  formatDevice,
  type PlacedDevice,
} from './util/device.ts'
export { type Env as ProtocolEnv, systemEnv } from './util/env.ts'
export { errorCodes } from './util/error-codes.ts'
export {
  ArgumentTypeError,
  DataError,
  type ErrorCode,
  GpuError,
  PeerError,
  ProcessException,
  ProcessExitedException,
  ProcessRaisedException,
  ShapeError,
  TabringError,
} from './util/errors.ts'
export type { RandomStream } from './util/random.ts'
export {
  type DType,
  type HostDType,
  type Shape,
  type TensorType,
  tensorType,
} from './util/shape.ts'
export { exportTrace, type TraceEvent } from './util/spans.ts'
export {
  type SwitchInputs,
  type SwitchName,
  type SwitchValues,
  setSwitches,
} from './util/switches.ts'
