/** Functions of networks, as torch.nn.functional. */

export {
  gelu,
  leakyRelu,
  logSoftmax,
  sigmoid,
  silu,
  softmax,
  softplus,
  tanh,
} from '../../graph/functions/activations.ts'
export {
  type AttentionOptions,
  packedAttention,
  scaledDotProductAttention,
} from '../../graph/functions/attention.ts'
export {
  type BatchNormOptions,
  batchNorm,
  type RunningStatistics,
} from '../../graph/functions/batch-norm.ts'
export { type ChunkedLossOptions, chunkedCrossEntropy } from '../../graph/functions/chunked-loss.ts'
export {
  type ConvOptions,
  type ConvPadding,
  type ConvTransposeOptions,
  conv1d,
  conv2d,
  convTranspose2d,
} from '../../graph/functions/convolution.ts'
export { type DropoutOptions, dropout } from '../../graph/functions/dropout.ts'
export { embedding, oneHot } from '../../graph/functions/index-ops.ts'
export { linear, relu } from '../../graph/functions/linear.ts'
export {
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
} from '../../graph/functions/losses.ts'
export { groupNorm, layerNorm, rmsNorm } from '../../graph/functions/normalization.ts'
export { type PadMode, pad } from '../../graph/functions/pad.ts'
export type { Pair } from '../../graph/functions/pair.ts'
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
} from '../../graph/functions/pooling.ts'
export {
  packedRotaryEmbedding,
  type RotaryOptions,
  rotaryEmbedding,
  rotaryTable,
} from '../../graph/functions/rotary.ts'
