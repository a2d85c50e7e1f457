/** Adapters, as peft with LoRA: fine-tuning of a model that stays as it is. */

export type { GgufDtype } from '../data/gguf.ts'
export {
  type AdapterFiles,
  type LoadAdapterOptions,
  loadAdapter,
  type SaveAdapterOptions,
  saveAdapter,
  saveMerged,
} from '../ddp/checkpoint/adapter-file.ts'
export {
  type GgufBase,
  type SaveGgufOptions,
  saveGgufAdapter,
} from '../ddp/checkpoint/gguf-adapter.ts'
export type { LoraConfig, LoraSettings } from '../nn/lora/config.ts'
export { getPeftModel, type PeftModel } from '../nn/lora/peft-model.ts'
