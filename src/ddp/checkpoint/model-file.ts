import { readSafetensors, type SafeTensor, writeSafetensors } from '../../data/safetensors.ts'
import type { LoadOptions, LoadResult, Module, StateDict } from '../../nn/module.ts'
import { checkModule } from '../../nn/module.ts'
import { checkOptions, checkRecord } from '../../util/options.ts'

/** Options of `saveModel`. */
export interface SaveModelOptions {
  /** Strings by name for the file's header. Default `{ format: 'pt' }`, which PyTorch users expect. */
  metadata?: Readonly<Record<string, string>>
}

/**
 * Returns a .safetensors file with a model's parameters and buffers, as `safetensors.torch.save_model`: F32, and I64 for whole numbers.
 *
 * A tensor with several keys is written once, under the alphabetically first key; the metadata map the other keys to it.
 */
export const saveModel = async (
  model: Module,
  options: SaveModelOptions = {},
): Promise<Uint8Array<ArrayBuffer>> => {
  checkModule('saveModel', model)
  return writeStateDict(await model.stateDict(), options)
}

/** The file of a state dict, as `saveModel`. */
export function writeStateDict(
  state: StateDict,
  options: SaveModelOptions = {},
): Uint8Array<ArrayBuffer> {
  const { metadata = { format: 'pt' } } = checkOptions('saveModel', options, { metadata: true })
  const keyOf = new Map<StateDict[string]['data'], string>()
  for (const key of Object.keys(state).sort()) {
    const { data } = state[key]
    if (!keyOf.has(data)) keyOf.set(data, key)
  }
  const entries = Object.entries(state)
  const shared = entries
    .map(([key, { data }]) => [key, keyOf.get(data)!])
    .filter(([key, kept]) => key !== kept)
  const tensors = entries
    .filter(([key, { data }]) => keyOf.get(data) === key)
    .map(([key, { shape, data }]): [string, SafeTensor] => [
      key,
      data instanceof Int32Array
        ? // PyTorch's whole numbers are 64 bits wide.
          { dtype: 'I64', shape, data: BigInt64Array.from(data, BigInt) }
        : { dtype: 'F32', shape, data },
    ])
  return writeSafetensors(tensors, { ...Object.fromEntries(shared), ...metadata })
}

/**
 * Loads the tensors of a .safetensors file into a model, as `safetensors.torch.load_model`; returns the keys that did not match.
 *
 * F16, BF16, F64 and integers of any width become the model's f32 and i32. `strict` (default true): missing and unknown keys are
 * errors. `where` names the file in errors.
 * errors: `data.malformed` for bytes that are not such a file; those of `Module.loadStateDict`.
 */
export function loadModel(
  model: Module,
  file: Uint8Array,
  given: LoadOptions & { where?: string } = {},
): LoadResult {
  checkRecord('loadModel', 'options', given)
  const { where = 'loadModel', ...options } = given
  checkModule('loadModel', model)
  return model.loadStateDict(Object.fromEntries(readSafetensors(file, where).tensors), options)
}
