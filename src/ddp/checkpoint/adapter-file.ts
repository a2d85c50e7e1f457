import { type ByteSource, readBytes } from '../../data/byte-source.ts'
import { writeSafetensors } from '../../data/safetensors.ts'
import { readStateDict } from '../../data/torch/state-dict.ts'
import { addLoaded, readAdapter, type SavedAdapter } from '../../nn/lora/adapter-state.ts'
import { type LoraSettings, settingsOf } from '../../nn/lora/config.ts'
import { defaultAdapter, mustBePeft, type PeftModel } from '../../nn/lora/peft-model.ts'
import { checkModule, type Module, type StateDict } from '../../nn/module.ts'
import { clipped } from '../../util/clipped.ts'
import { DataError } from '../../util/errors.ts'
import { isOf, isPlain, isTexts, quoted } from '../../util/kind-of.ts'
import { checkArgument, checkFlag, checkOptions } from '../../util/options.ts'
import { writeStateDict } from './model-file.ts'

/** The two files of an adapter, by PEFT's names. */
export interface AdapterFiles<Contents = Uint8Array<ArrayBuffer>> {
  readonly 'adapter_config.json': Contents
  readonly 'adapter_model.safetensors': Contents
}

/** Options of `saveAdapter`. */
export interface SaveAdapterOptions {
  /** Default: the active one. */
  adapterName?: string
  /**
   * False for an adapter with `useRslora`: writes loraAlpha times sqrt(r) without `use_rslora`, which means the same to PEFT, and to programs that
   * do not know `use_rslora`, such as llama.cpp's converter. Default: as the adapter has it.
   */
  useRslora?: false
}

/** Before the base's own keys in an adapter's file. */
const adapterPrefix = 'base_model.model.'

/**
 * Returns an adapter as PEFT's two files, which peft, transformers and llama.cpp's converter read. On several ranks all call it.
 *
 * Tensors are float32. llama.cpp's converter takes an adapter without trained biases and modules, and reads the base's config from the hub by
 * `baseModelNameOrPath`.
 */
export async function saveAdapter(
  model: PeftModel,
  options: SaveAdapterOptions = {},
): Promise<AdapterFiles> {
  const known = { adapterName: 'text', useRslora: 'flag' } as const
  const { adapterName, useRslora } = checkOptions('saveAdapter', options, known)
  const adapter = await readAdapter('saveAdapter', model, adapterName)
  const config = configOf(adapter, useRslora === false)
  const named = [
    ...[...adapter.factors].flatMap(([path, { a, b }]) => [
      [`${path}.lora_A.weight`, a] as const,
      [`${path}.lora_B.weight`, b] as const,
    ]),
    ...Object.entries(adapter.others).map(
      ([key, tensor]) => [inLayer(key, adapter.factors), tensor] as const,
    ),
  ]
  const tensors = named.map(
    ([key, { shape, data }]) =>
      [
        `${adapterPrefix}${key}`,
        { dtype: 'F32', shape, data: data as Float32Array<ArrayBuffer> },
      ] as const,
  )
  return {
    'adapter_config.json': new TextEncoder().encode(`${JSON.stringify(config, null, 2)}\n`),
    'adapter_model.safetensors': writeSafetensors(tensors, { format: 'pt' }),
  }
}

/** PEFT puts a layer with an adapter into another, as its `base_layer`. */
const inLayer = (key: string, layers: ReadonlyMap<string, unknown>): string =>
  key.endsWith('.bias') && layers.has(key.slice(0, -'.bias'.length))
    ? key.replace(/bias$/, 'base_layer.bias')
    : key

/** The contents of adapter_config.json. `isPlain`: its scale without use_rslora. */
function configOf({ settings, factors, isTransposed }: SavedAdapter, isPlain: boolean) {
  const { targetModules, r, loraAlpha, useRslora, modulesToSave, baseModelNameOrPath } = settings
  const isName = typeof targetModules === 'string' || isOf(targetModules, RegExp)
  return {
    peft_type: 'LORA',
    task_type: settings.taskType,
    base_model_name_or_path: baseModelNameOrPath || null,
    inference_mode: true,
    r,
    lora_alpha: isPlain && useRslora ? loraAlpha * Math.sqrt(r) : loraAlpha,
    lora_dropout: settings.loraDropout,
    target_modules: isName ? [...factors.keys()] : targetModules,
    bias: settings.bias,
    fan_in_fan_out: isTransposed,
    use_rslora: useRslora && !isPlain,
    use_dora: false,
    init_lora_weights: settings.initLoraWeights,
    modules_to_save: modulesToSave.length > 0 ? modulesToSave : null,
    rank_pattern: {},
    alpha_pattern: {},
  }
}

/**
 * Returns the base with the active adapter added to its weights as a .safetensors file with the base's own keys: the `model.safetensors` of a
 * Hugging Face folder. The model does not change. On several ranks all call it.
 *
 * A tensor with several keys is written under the first one, as transformers does. F32.
 */
export async function saveMerged(model: PeftModel): Promise<Uint8Array<ArrayBuffer>> {
  mustBePeft('saveMerged', model)
  const seen = new Set<StateDict[string]['data']>()
  const state = Object.entries(await model.mergedState())
  const once = state.filter(([, { data }]) => seen.size < seen.add(data).size)
  return writeStateDict(Object.fromEntries(once))
}

/** Options of `loadAdapter`. */
export interface LoadAdapterOptions {
  /** Default `default`. */
  adapterName?: string
  /** True if the adapter is to be trained on. Default false: it is frozen, as in PEFT. */
  isTrainable?: boolean
}

/**
 * Loads PEFT's two files into a model, as peft.PeftModel.from_pretrained, or beside the adapters that it has, as `load_adapter`; resolves with
 * the model with the adapter, which is the active one where it is the first.
 *
 * Layers are those of which the file has A and B. F16, BF16 and F64 become f32. All checks are made before anything changes.
 * errors: `data.missing`; `data.malformed` for files that are not PEFT's, for other kinds of adapters than LoRA, and for an adapter whose layers or
 * shapes this base does not have.
 */
export async function loadAdapter<M extends Module>(
  model: M | PeftModel<M>,
  files: AdapterFiles<ByteSource>,
  options: LoadAdapterOptions = {},
): Promise<PeftModel<M>> {
  const where = 'loadAdapter'
  checkModule(where, model, 'model')
  const areBoth =
    isPlain(files) && 'adapter_config.json' in files && 'adapter_model.safetensors' in files
  const both = 'an object with adapter_config.json and adapter_model.safetensors'
  checkArgument(where, 'files', files, areBoth, both)
  const known = { adapterName: 'text', isTrainable: 'flag' } as const
  const { adapterName = defaultAdapter, isTrainable = false } = checkOptions(where, options, known)
  checkFlag(where, 'isTrainable', isTrainable)
  const config = await readBytes(files['adapter_config.json'], 'adapter_config.json')
  const settings = settingsIn(config.name, config.bytes, isTrainable)
  const file = 'adapter_model.safetensors'
  const state = Object.entries(await readStateDict(files[file], file))
  const other = state.find(([key]) => !key.startsWith(adapterPrefix))
  if (other)
    throw new DataError(
      'data.malformed',
      `${file}: expected keys that begin with ${adapterPrefix}, got "${clipped(other[0])}". Load what PEFT's save_pretrained has written.`,
    )
  const own = state.map(([key, tensor]) => [key.slice(adapterPrefix.length), tensor] as const)
  return addLoaded(where, model, adapterName, settings, Object.fromEntries(own))
}

/** Settings of PEFT that change what an adapter computes, and are not supported here. */
const unsupported = [
  'use_dora',
  'use_qalora',
  'lora_bias',
  'rank_pattern',
  'alpha_pattern',
  'layer_replication',
  'target_parameters',
  'trainable_token_indices',
  'alora_invocation_tokens',
] as const

/** Ways to begin that subtract A and B from the base's weights, as PEFT does once more when it loads the adapter. */
const changesBase = /^(pissa|olora|corda|loftq|lora_ga)/

/** Settings in an adapter_config.json. errors: `data.malformed`. */
function settingsIn(
  where: string,
  bytes: Uint8Array<ArrayBuffer>,
  isTrainable: boolean,
): Readonly<LoraSettings> {
  const refuse = (problem: string, remedy = "Load what PEFT's save_pretrained has written.") =>
    new DataError('data.malformed', `${clipped(where)}: ${problem}. ${remedy}`)
  let given: unknown
  try {
    given = JSON.parse(new TextDecoder().decode(bytes))
  } catch {
    throw refuse('expected JSON, got something else')
  }
  if (!isPlain(given)) throw refuse(`expected an object, got ${quoted(given)}`)
  if (given['peft_type'] !== 'LORA')
    throw refuse(
      `expected an adapter of peft_type LORA, got ${quoted(given['peft_type'])}`,
      'Other kinds of adapters cannot be loaded.',
    )
  const isSet = (value: unknown) =>
    isPlain(value) ? Object.keys(value).length > 0 : Boolean(value)
  const strange = unsupported.find((name) => isSet(given[name]))
  if (strange)
    throw refuse(
      `the adapter has ${strange}, which is not supported`,
      'Merge it into its base by PEFT, and load that.',
    )
  const { target_modules: targets, init_lora_weights: init } = given
  if (typeof init === 'string' && changesBase.test(init))
    throw refuse(
      `init_lora_weights is ${quoted(init)}, which changes the base`,
      'Convert it by PEFT: save_pretrained with path_initial_model_for_weight_conversion.',
    )
  const config = {
    targetModules: isTexts(targets) || typeof targets === 'string' ? targets : [],
    r: given['r'],
    loraAlpha: given['lora_alpha'],
    loraDropout: given['lora_dropout'],
    bias: given['bias'],
    useRslora: given['use_rslora'],
    initLoraWeights: typeof init === 'boolean' || init === 'gaussian' ? init : undefined,
    modulesToSave: given['modules_to_save'],
    baseModelNameOrPath: given['base_model_name_or_path'],
    taskType: given['task_type'],
  }
  const found = Object.entries(config).filter(([, value]) => value !== undefined && value !== null)
  return settingsOf(where, Object.fromEntries(found) as never, !isTrainable)
}
