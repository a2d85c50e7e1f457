import { checkAttempts } from '../data/download.ts'
import { addressOf, type FolderFile } from '../data/folder.ts'
import { type PretrainedTokenizer, readTokenizer } from '../data/language/pretrained-tokenizer.ts'
import { malformed } from '../data/malformed.ts'
import { filesFolder, isFolderFile, type ModelFolder, missingIn } from '../data/model-folder.ts'
import { type UrlFolderOptions, urlFolder } from '../data/url-folder.ts'
import { CausalLm } from '../nn/causal-lm.ts'
import type { CausalLmConfig } from '../nn/causal-lm-config.ts'
import { checkModule, type Module } from '../nn/module.ts'
import { calledAs } from '../util/called-as.ts'
import { isIterable, isOf, isRecord, isText } from '../util/kind-of.ts'
import { checkArgument, checkOptions } from '../util/options.ts'
import { readModelConfig } from './config.ts'
import { type GenerationConfig, readGenerationConfig } from './generation.ts'
import { loadWeights, type WeightOptions } from './load-weights.ts'
import { readJson, readText } from './read-json.ts'
import { openWeights } from './weight-files.ts'

/** A folder as `save_pretrained` of transformers writes it: its address, its files, or what reads it. */
export type PretrainedSource = string | URL | Iterable<File | FolderFile> | ModelFolder

export interface PretrainedOptions<M extends Module = CausalLm>
  extends WeightOptions,
    UrlFolderOptions {
  /** Makes the module that gets the weights, with the keys of the files. Default: a `CausalLm`. */
  model?: (config: CausalLmConfig) => M
}

export interface Pretrained<M extends Module = CausalLm> {
  readonly config: CausalLmConfig
  /** With the weights of the files, as f32. */
  readonly model: M
  readonly tokenizer: PretrainedTokenizer
  readonly generation: GenerationConfig
}

/**
 * Loads a language model from a folder of Hugging Face's form: `config.json`, `model.safetensors` or shards of it, `tokenizer.json` and, if
 * they are there, `tokenizer_config.json`, `chat_template.jinja` and `generation_config.json`.
 *
 * Everything but the weights is read and checked first. Weights of bf16, f16 and f32 are read tensor by tensor; see `loadWeights` for the
 * memory. A model that ties its output layer to its table of tokens needs no `lm_head.weight`, and ignores one.
 * errors: `data.missing`, `data.malformed`, `data.interrupted` with the file, and what is wrong in it; `shape.mismatch` for tensors that
 * contradict config.json; the signal's reason. Then no module has changed.
 */
export async function loadPretrained<M extends Module = CausalLm>(
  source: PretrainedSource,
  options: PretrainedOptions<M> = {},
): Promise<Pretrained<M>> {
  const {
    model: given,
    onProgress,
    ...others
  } = checkOptions('loadPretrained', options, {
    model: 'function',
    onProgress: 'function',
    store: true,
    retries: true,
    retryDelayMs: true,
    signal: true,
  })
  const { signal } = others
  checkAttempts('loadPretrained', others)
  const folder = folderOf(source, others)
  signal?.throwIfAborted()
  const json = await readJson(folder, 'config.json')
  if (json === undefined)
    return missingIn(folder, 'config.json', 'Pass the folder of a model, with all of its files.')
  const config = readModelConfig(json)
  const generation = readGenerationConfig(await readJson(folder, 'generation_config.json'), json)
  const tokenizer = await loadTokenizer(folder)
  const { vocabularySize } = tokenizer
  if (vocabularySize > config.vocabSize)
    throw malformed(
      'tokenizer.json',
      `tokens below ${config.vocabSize}, the vocab_size of config.json`,
      `one of number ${vocabularySize - 1}`,
      'It is of another model: take both files from one folder.',
    )
  const weights = await openWeights(folder)
  signal?.throwIfAborted()
  const model = given ? given(config) : (new CausalLm(config) as Module as M)
  checkModule('loadPretrained', model, 'model')
  const isIgnored = (key: string) =>
    key.endsWith('.rotary_emb.inv_freq') || (config.tieWordEmbeddings && key === 'lm_head.weight')
  await loadWeights(model, folder, weights, isIgnored, { onProgress, signal })
  return { config, model, tokenizer, generation }
}

function folderOf(source: PretrainedSource, options: UrlFolderOptions): ModelFolder {
  const where = 'loadPretrained'
  if (isText(source) || isOf(source, URL))
    return calledAs(where, 'urlFolder', () =>
      urlFolder(addressOf(where, 'source', source), options),
    )
  if (isIterable(source)) {
    const files = [...source]
    const areFiles = files.length > 0 && files.every(isFolderFile)
    checkArgument(where, 'source', source, areFiles, 'files, one or more')
    return filesFolder(files as (File | FolderFile)[])
  }
  const isFolder = isRecord(source) && !('shape' in source) && 'size' in source && 'read' in source
  const expected = 'an address, files, or a folder with size and read'
  checkArgument(where, 'source', source, isFolder, expected)
  return source
}

async function loadTokenizer(folder: ModelFolder): Promise<PretrainedTokenizer> {
  const tokenizer = await readJson(folder, 'tokenizer.json')
  if (tokenizer === undefined)
    return missingIn(
      folder,
      'tokenizer.json',
      'Save it with AutoTokenizer.from_pretrained(…).save_pretrained(…).',
    )
  return readTokenizer({
    tokenizer,
    config: await readJson(folder, 'tokenizer_config.json'),
    chatTemplate: await readText(folder, 'chat_template.jinja'),
  })
}
