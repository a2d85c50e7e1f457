/** Tabring's public face: models, training steps, process groups. Everything else is internal. */

export { readSafetensors, writeSafetensors } from './data/safetensors.ts'
export { DistributedSampler } from './data/sampler.ts'
export { openGpu } from './gpu/device.ts'
export { compile } from './graph/compile.ts'
export { runEagerly } from './graph/eager.ts'
export {
  conv2d,
  crossEntropy,
  linear,
  maxPool2d,
  relu,
  stepScalar,
  topKCorrect,
} from './graph/functions.ts'
export { ModuleBuffer } from './graph/module-buffer.ts'
export { Parameter } from './graph/parameter.ts'
export type { InputTypes, Outputs, TracedFunction } from './graph/prepare.ts'
export type { RunInputs, RunOutputs, StepProgram } from './graph/program.ts'
export { defaultRuntime, Runtime } from './graph/runtime.ts'
export { Tensor } from './graph/tensor.ts'
export { manualSeed } from './nn/init.ts'
export { Conv2d, Flatten, Linear, MaxPool2d, ReLU } from './nn/layers.ts'
export { models } from './nn/models.ts'
export { Module, Sequential, type StateDict } from './nn/module.ts'
export { AdamW } from './optim/adamw.ts'
export { SGD } from './optim/sgd.ts'
export { ChannelLink } from './peer/channel.ts'
export { ProcessGroup } from './peer/group.ts'
export type { Link } from './peer/link.ts'
export { memoryPair } from './peer/memory.ts'
export { PortLink } from './peer/port.ts'
export { DistributedDataParallel } from './train/data-parallel.ts'
export {
  destroyProcessGroup,
  getProcessGroup,
  getRank,
  getWorldSize,
  initProcessGroup,
} from './train/process-group.ts'
export { ReplicaCheck } from './train/verify.ts'
export { systemEnv } from './util/env.ts'
export { errorCodes, TabringError } from './util/errors.ts'
export { tensorType } from './util/shape.ts'
