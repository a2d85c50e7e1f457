/** Modules, as torch.nn. */

export { generate } from '../generation/generate.ts'
export type { GenerateOptions } from '../generation/generate-options.ts'
export {
  checkpoint,
  checkpointSequential,
  type Layer as CheckpointLayer,
} from '../graph/functions/checkpoint.ts'
export type { RopeScaling } from '../graph/functions/rotary.ts'
export type { HookHandle } from '../graph/trace/gradient-hooks.ts'
export { ModuleBuffer } from '../graph/trace/module-buffer.ts'
export { Parameter } from '../graph/trace/parameter.ts'
export {
  GELU,
  LeakyReLU,
  LogSoftmax,
  Sigmoid,
  SiLU,
  Softmax,
  Softplus,
  Tanh,
} from '../nn/activations.ts'
export {
  MultiheadAttention,
  type MultiheadAttentionInputs,
  type MultiheadAttentionOptions,
  RotaryEmbedding,
  type RotaryEmbeddingOptions,
} from '../nn/attention.ts'
export { BatchNorm1d, BatchNorm2d, type BatchNormLayerOptions } from '../nn/batch-norm.ts'
export { CausalLm, type CausalLmLossOptions, type CausalLmOptions } from '../nn/causal-lm.ts'
export type { CausalLmConfig } from '../nn/causal-lm-config.ts'
export { CharRnn, type CharRnnOptions, charRnn } from '../nn/char-rnn.ts'
export { type CnnOptions, cnn } from '../nn/cnn.ts'
export { ModuleDict, ModuleList } from '../nn/containers.ts'
export {
  Conv1d,
  type Conv1dOptions,
  Conv2d,
  type Conv2dOptions,
  ConvTranspose2d,
  type ConvTranspose2dOptions,
} from '../nn/convolution.ts'
export { Dropout } from '../nn/dropout.ts'
export { Embedding, type EmbeddingOptions } from '../nn/embedding.ts'
export { Gpt, type GptConfig, gpt } from '../nn/gpt.ts'
export { Flatten, Linear, ReLU } from '../nn/layers.ts'
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
} from '../nn/losses.ts'
export { mlp } from '../nn/mlp.ts'
export {
  type LoadOptions,
  type LoadResult,
  Module,
  Sequential,
  type StateDict,
} from '../nn/module.ts'
export type { BackwardHook, ForwardHook, ForwardPreHook, GradientList } from '../nn/module-hooks.ts'
export { addModulePrefix, stripModulePrefix } from '../nn/module-prefix.ts'
export { GroupNorm, LayerNorm, type LayerNormOptions, RMSNorm } from '../nn/normalization.ts'
export {
  type Lengths,
  type PackedSequence,
  type PadOptions,
  packPaddedSequence,
  padPackedSequence,
} from '../nn/packed-sequence.ts'
export {
  AdaptiveAvgPool1d,
  AdaptiveAvgPool2d,
  AvgPool1d,
  AvgPool2d,
  MaxPool1d,
  MaxPool2d,
} from '../nn/pooling.ts'
export {
  type CellOptions,
  GRU,
  GRUCell,
  LSTM,
  LSTMCell,
  RNN,
  RNNCell,
  type RnnOptions,
} from '../nn/recurrent.ts'
export type { FirstStates, LastStates, RecurrentLayerOptions } from '../nn/recurrent-base.ts'
export { ResNet, type ResNetOptions, resnet18, resnet34, resnet50 } from '../nn/resnet.ts'
export { type SpectralNormOptions, spectralNorm } from '../nn/spectral-norm.ts'
export type { LoadableState, LoadableTensor } from '../nn/state-values.ts'
export { SyncBatchNorm, type SyncBatchNormOptions } from '../nn/sync-batch-norm.ts'
export {
  type ClipGradNormOptions,
  clipGradNorm,
  clipGradValue,
  type Limit as ClipLimit,
} from '../optim/clip.ts'
