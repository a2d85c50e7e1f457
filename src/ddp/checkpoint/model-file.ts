import type { ByteSource } from '../../data/byte-source.ts'
import { type SafeTensor, writeSafetensors } from '../../data/safetensors.ts'
import { readStateDict } from '../../data/torch/state-dict.ts'
import { writeTorch } from '../../data/torch/write-torch.ts'
import type { LoadOptions, LoadResult, Module, StateDict } from '../../nn/module.ts'
import { checkModule } from '../../nn/module.ts'
import { calledAs } from '../../util/called-as.ts'
import { isOf, isPlain } from '../../util/kind-of.ts'
import { checkArgument, checkChoice, checkOptions } from '../../util/options.ts'

const formats = ['safetensors', 'pt'] as const

/** Options of `saveModel`. */
export interface SaveModelOptions {
  /** `safetensors`, the default, or `pt`: what torch.load reads, from PyTorch 1.6 on, also with `weights_only=True`. */
  format?: (typeof formats)[number]
  /** Strings by name for the header of a safetensors file. Default `{ format: 'pt' }`, which PyTorch users expect. */
  metadata?: Readonly<Record<string, string>>
}

/**
 * Returns a file with a model's parameters and buffers: .safetensors as `safetensors.torch.save_model`, or .pt as
 * `torch.save(model.state_dict())`. F32, and I64 for whole numbers.
 *
 * A tensor with several keys is written once. A .safetensors file has it under the alphabetically first key; the metadata map the other
 * keys to it.
 */
export const saveModel = async (
  model: Module,
  options: SaveModelOptions = {},
): Promise<Uint8Array<ArrayBuffer>> => {
  checkModule('saveModel', model, 'model')
  return writeStateDict(await model.stateDict(), options)
}

/** The file of a state dict, as `saveModel`. */
export function writeStateDict(
  state: StateDict,
  options: SaveModelOptions = {},
): Uint8Array<ArrayBuffer> {
  const known = { format: true, metadata: 'object' } as const
  const { format = 'safetensors', metadata } = checkOptions('saveModel', options, known)
  checkChoice('saveModel', 'format', format, formats)
  const contents = new Map<StateDict[string]['data'], SafeTensor>()
  const keyOf = new Map<SafeTensor, string>()
  const shared: [key: string, kept: string][] = []
  for (const key of Object.keys(state).sort()) {
    const tensor = contents.get(state[key].data) ?? tensorOf(state[key])
    contents.set(state[key].data, tensor)
    const kept = keyOf.get(tensor)
    if (kept === undefined) keyOf.set(tensor, key)
    else shared.push([key, kept])
  }
  const entries = Object.entries(state).map(
    ([key, { data }]) => [key, contents.get(data)!] as const,
  )
  if (format === 'pt') {
    const isLeftOut = metadata === undefined
    checkArgument('saveModel', 'metadata', metadata, isLeftOut, "left out with the format 'pt'")
    return writeTorch(Object.fromEntries(entries))
  }
  const once = entries.filter(([key, tensor]) => keyOf.get(tensor) === key)
  return writeSafetensors(once, {
    ...Object.fromEntries(shared),
    ...(metadata ?? { format: 'pt' }),
  })
}

/** PyTorch's whole numbers are 64 bits wide. */
const tensorOf = ({ shape, data }: StateDict[string]): SafeTensor =>
  isOf(data, Int32Array)
    ? { dtype: 'I64', shape, data: BigInt64Array.from(data, BigInt) }
    : { dtype: 'F32', shape, data }

/**
 * Loads a file's tensors into a model, as `model.load_state_dict(torch.load(file))`; returns the keys that did not match.
 *
 * The file is of safetensors, or of torch.save (`.pt`, `.pth`): a state dict, or a checkpoint that has one under a key such as
 * `state_dict` or `model`. An address is fetched, and of a picked file no more is in memory than its tensors. F16, BF16, F64 and integers
 * of any width become the model's f32 and i32. `strict` (default true): missing and unknown keys are errors. `where` names bytes in errors.
 * errors: `data.missing`; `data.malformed` for other files, naming what they hold; those of `Module.loadStateDict`.
 */
export async function loadModel(
  model: Module,
  source: ByteSource,
  options: LoadOptions & { where?: string } = {},
): Promise<LoadResult> {
  checkArgument('loadModel', 'options', options, isPlain(options), 'a plain object')
  const { where = 'loadModel', ...others } = options
  checkModule('loadModel', model, 'model')
  const state = await readStateDict(source, where)
  return calledAs('loadModel', 'loadStateDict', () => model.loadStateDict(state, others))
}
