/** Checkpoints, and files of weights. */

export type { SafetensorsDtype } from '../data/elements.ts'
export {
  type ArrayOf as SafetensorsArray,
  readSafetensors,
  type SafeTensor,
  type SafetensorsFile,
  writeSafetensors,
} from '../data/safetensors.ts'
export { readTorch, type TorchValue } from '../data/torch/read-torch.ts'
export { writeTorch } from '../data/torch/write-torch.ts'
export {
  type CheckpointOptions,
  type LoadCheckpointOptions,
  loadCheckpoint,
  type SaveCheckpointOptions,
  saveCheckpoint,
} from '../ddp/checkpoint/checkpoint.ts'
export {
  type CheckpointState,
  type Parts as CheckpointParts,
  packCheckpoint,
  type Stateful,
  type UnpackOptions as UnpackCheckpointOptions,
  unpackCheckpoint,
} from '../ddp/checkpoint/checkpoint-file.ts'
export { launcherFolder } from '../ddp/checkpoint/launcher-folder.ts'
export { loadModel, type SaveModelOptions, saveModel } from '../ddp/checkpoint/model-file.ts'
export type { GenerationConfig } from '../pretrained/generation.ts'
export {
  loadPretrained,
  type Pretrained,
  type PretrainedOptions,
  type PretrainedSource,
} from '../pretrained/load-pretrained.ts'
export type { WeightOptions, WeightProgress } from '../pretrained/load-weights.ts'
