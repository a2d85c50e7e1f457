/** Torch's top level: tensors and their functions, compiled steps, devices, errors. */

export {
  load,
  type Saved,
  type SavedArray,
  type SavedState,
  type SavedTensor,
  save,
} from '../data/saved-tree.ts'
export { getNumThreads, setNumThreads } from '../gpu/num-threads.ts'
export { type CompileOptions, compile } from '../graph/compile/compile.ts'
export {
  AccumulatedProgram,
  type AccumulationOptions,
  compileAccumulated,
} from '../graph/compile/compile-accumulated.ts'
export { type DeviceProperties, gpu } from '../graph/compile/gpu.ts'
export { logSoftmax, sigmoid, softmax, tanh } from '../graph/functions/activations.ts'
export { conv1d, conv2d, convTranspose2d } from '../graph/functions/convolution.ts'
export { einsum } from '../graph/functions/einsum.ts'
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
} from '../graph/functions/elementwise.ts'
export { gather, indexSelect, scatterAdd } from '../graph/functions/index-ops.ts'
export { relu, stepScalar } from '../graph/functions/linear.ts'
export { bmm, dot, matmul, outer } from '../graph/functions/matmul.ts'
export { adaptiveAvgPool1d, avgPool1d } from '../graph/functions/pooling.ts'
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
} from '../graph/functions/reductions.ts'
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
} from '../graph/functions/shape.ts'
export { getDefaultDevice, setDefaultDevice } from '../graph/memory/default-runtime.ts'
export type { HostData } from '../graph/memory/host-values.ts'
export type { InputTypes, Outputs, PrepareOptions, TracedFunction } from '../graph/plan/prepare.ts'
export type { RunInput, RunInputs, RunOutputs, StepProgram } from '../graph/plan/step-program.ts'
export type { StoredTensor } from '../graph/trace/stored-tensor.ts'
export { type Axes, type Operand, Tensor, type ValuesAndIndices } from '../graph/trace/tensor.ts'
export { getRngState, manualSeed, type RngState, setRngState } from '../nn/init.ts'
export {
  type Device,
  type DeviceChoice,
  type DeviceSpec,
  type DeviceType,
  device,
  type PlacedDevice,
} from '../util/device.ts'
export {
  ArgumentTypeError,
  DataError,
  type ErrorCode,
  GpuError,
  PeerError,
  ShapeError,
  TabringError,
} from '../util/errors.ts'
export {
  type DType,
  type HostDType,
  type Shape,
  type TensorType,
  tensorType,
} from '../util/shape.ts'
