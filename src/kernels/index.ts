import { accumulate, takeAccumulated } from './accumulate/accumulate.ts'
import { addInto } from './accumulate/add-into.ts'
import { adagrad } from './adagrad/adagrad.ts'
import { adam, adamAmsgrad } from './adam/adam.ts'
import { alias } from './alias/alias.ts'
import { attention, attentionGrad } from './attention/attention.ts'
import { runningAverage } from './average/average.ts'
import { avgPool2d, avgPool2dGrad } from './avg-pool2d/avg-pool2d.ts'
import { barrier } from './barrier/barrier.ts'
import { batchNorm, batchNormEval, batchNormTracked } from './batch-norm/batch-norm.ts'
import { batchNormGrad } from './batch-norm/batch-norm-grad.ts'
import { trackStatistics } from './batch-norm/track-statistics.ts'
import { cast } from './cast/cast.ts'
import { cat, split } from './cat/cat.ts'
import { constant } from './constant/constant.ts'
import { convTranspose2d } from './conv2d/conv-transpose2d.ts'
import { conv2d } from './conv2d/conv2d.ts'
import { conv2dGradInput } from './conv2d/conv2d-grad-input.ts'
import { conv2dGradWeight } from './conv2d/conv2d-grad-weight.ts'
import {
  crossEntropy,
  crossEntropyGrad,
  crossEntropyWithGrad,
} from './cross-entropy/cross-entropy.ts'
import { crossEntropyRows, crossEntropyRowsGrad } from './cross-entropy-rows/cross-entropy-rows.ts'
import { cumsum } from './cumsum/cumsum.ts'
import { detach } from './detach/detach.ts'
import { dropout } from './dropout/dropout.ts'
import { encode } from './encode/encode.ts'
import { amax, amin } from './extreme/extreme.ts'
import { fromScalar } from './from-scalar/from-scalar.ts'
import { gather, scatterAdd } from './gather/gather.ts'
import { clipFactor, joinStats, withoutFactor } from './grad-clip/clip-factor.ts'
import { clipValue } from './grad-clip/clip-value.ts'
import { gradStats } from './grad-clip/grad-stats.ts'
import { scalerUpdate, unscale } from './grad-scaler/grad-scaler.ts'
import { settle } from './grad-scaler/settle.ts'
import { halfCopies } from './half-copies/half-copies.ts'
import { paramHash } from './hash/param-hash.ts'
import { indexSelect, indexSelectGrad } from './index-select/index-select.ts'
import { integerMap } from './integers/integer-map.ts'
import { lion } from './lion/lion.ts'
import { map } from './map/map.ts'
import { matmul } from './matmul/matmul.ts'
import { maxPool2d, maxPool2dGrad } from './max-pool2d/max-pool2d.ts'
import { norm, normGrad } from './norm/norm.ts'
import { oneHot } from './one-hot/one-hot.ts'
import type { Op } from './op.ts'
import { powerIteration } from './power-iteration/power-iteration.ts'
import { recurrent } from './recurrent/recurrent.ts'
import { recurrentGrad } from './recurrent/recurrent-grad.ts'
import { reshape } from './reshape/reshape.ts'
import {
  rmsprop,
  rmspropCentered,
  rmspropCenteredMomentum,
  rmspropMomentum,
} from './rmsprop/rmsprop.ts'
import { rotary } from './rotary/rotary.ts'
import { topK, topKGrad } from './select/select.ts'
import { sgd, sgdMomentum, sgdNesterov } from './sgd/sgd.ts'
import { logSoftmax, logSumExp, softmax, softmaxGrad } from './softmax/softmax.ts'
import { expand, sum } from './sum/sum.ts'
import { sumOf } from './sum-of/sum-of.ts'
import { syncRanks } from './sync-ranks/sync-ranks.ts'
import { table } from './table/table.ts'
import { topKCorrect } from './top-k/top-k.ts'
import { transfer } from './transfer/transfer.ts'
import { triangle } from './triangle/triangle.ts'
import { place, strided, view } from './view/view.ts'
import { writeRows } from './write-rows/write-rows.ts'

/** Every op. A new op is its folder and its line here; tests/gpu/every-op.spec.ts then checks it. */
export const ops: readonly Op[] = [
  map,
  integerMap,
  halfCopies,
  matmul,
  sum,
  expand,
  sumOf,
  amax,
  amin,
  table,
  topK,
  topKGrad,
  softmax,
  logSoftmax,
  softmaxGrad,
  logSumExp,
  reshape,
  barrier,
  alias,
  syncRanks,
  transfer,
  recurrent,
  recurrentGrad,
  detach,
  fromScalar,
  crossEntropy,
  crossEntropyGrad,
  crossEntropyWithGrad,
  crossEntropyRows,
  crossEntropyRowsGrad,
  topKCorrect,
  sgd,
  sgdMomentum,
  sgdNesterov,
  adam,
  adamAmsgrad,
  rmsprop,
  rmspropCentered,
  rmspropMomentum,
  rmspropCenteredMomentum,
  adagrad,
  lion,
  runningAverage,
  accumulate,
  takeAccumulated,
  addInto,
  gradStats,
  joinStats,
  clipFactor,
  clipValue,
  withoutFactor,
  unscale,
  settle,
  scalerUpdate,
  paramHash,
  conv2d,
  conv2dGradInput,
  conv2dGradWeight,
  maxPool2d,
  maxPool2dGrad,
  convTranspose2d,
  avgPool2d,
  avgPool2dGrad,
  batchNorm,
  batchNormTracked,
  batchNormEval,
  batchNormGrad,
  trackStatistics,
  view,
  place,
  strided,
  cat,
  split,
  gather,
  scatterAdd,
  indexSelect,
  indexSelectGrad,
  oneHot,
  cumsum,
  triangle,
  constant,
  cast,
  norm,
  normGrad,
  dropout,
  encode,
  attention,
  attentionGrad,
  rotary,
  powerIteration,
  writeRows,
]
