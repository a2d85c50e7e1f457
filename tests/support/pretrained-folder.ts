import { readFileSync } from 'node:fs'
import type { ModelFolder } from '../../src/data/model-folder.ts'
import { type SafeTensor, writeSafetensors } from '../../src/data/safetensors.ts'
import { CausalLm } from '../../src/nn/causal-lm.ts'
import { readModelConfig } from '../../src/pretrained/config.ts'

export const goldenTokenizers = JSON.parse(
  readFileSync(new URL('../golden/tokenizers.json', import.meta.url), 'utf8'),
) as {
  tokenizer: Record<string, unknown>
  cases: { text: string; ids: number[] }[]
  hash: string
}

/** Conversations as ChatML, which many models have. */
export const chatTemplate =
  "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

export const tokenizerConfig = {
  eos_token: '<|im_end|>',
  pad_token: { content: '<|endoftext|>' },
  chat_template: chatTemplate,
}

/** As transformers 4 writes it. */
export const smallConfig = {
  architectures: ['LlamaForCausalLM'],
  model_type: 'llama',
  vocab_size: 700,
  hidden_size: 16,
  intermediate_size: 24,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  max_position_embeddings: 64,
  rms_norm_eps: 1e-5,
  rope_theta: 10000,
  hidden_act: 'silu',
  tie_word_embeddings: true,
  torch_dtype: 'bfloat16',
  eos_token_id: [3, 4],
}

export type Files = Record<string, Uint8Array<ArrayBuffer>>

export const jsonBytes = (value: unknown): Uint8Array<ArrayBuffer> =>
  new TextEncoder().encode(JSON.stringify(value))

/** Numbers that bf16 and f16 hold exactly. */
const exact = (i: number) => ((i * 37) % 64) / 16 - 2

/** Bits of a number that 8 bits of mantissa hold. */
function bitsOf(value: number, dtype: 'F16' | 'BF16'): number {
  const [bits] = new Uint32Array(Float32Array.of(value).buffer)
  if (dtype === 'BF16') return bits >>> 16
  if (value === 0) return bits >>> 16
  return ((bits >>> 16) & 0x8000) | ((((bits >>> 23) & 0xff) - 112) << 10) | ((bits >>> 13) & 0x3ff)
}

/** A model's tensors as a file has them, and the same numbers. */
export async function smallWeights(
  config: Record<string, unknown> = smallConfig,
  dtype: 'F32' | 'F16' | 'BF16' = 'BF16',
  scale = 1,
): Promise<{ tensors: [string, SafeTensor][]; values: Map<string, number[]> }> {
  const state = await new CausalLm(readModelConfig(config)).stateDict()
  const values = new Map<string, number[]>()
  const tensors = Object.entries(state).map(([key, { shape, data }], at): [string, SafeTensor] => {
    const numbers = Array.from(data, (_, i) => scale * exact(i + at))
    values.set(key, numbers)
    return dtype === 'F32'
      ? [key, { dtype, shape, data: Float32Array.from(numbers) }]
      : [key, { dtype, shape, data: Uint16Array.from(numbers, (one) => bitsOf(one, dtype)) }]
  })
  return { tensors, values }
}

export async function smallFiles(
  config: Record<string, unknown> = smallConfig,
  dtype: 'F32' | 'F16' | 'BF16' = 'BF16',
): Promise<Files> {
  const { tensors } = await smallWeights(config, dtype)
  return {
    'config.json': jsonBytes(config),
    'generation_config.json': jsonBytes({ temperature: 0.6, top_k: 20, do_sample: true }),
    'tokenizer.json': jsonBytes(goldenTokenizers.tokenizer),
    'tokenizer_config.json': jsonBytes(tokenizerConfig),
    'model.safetensors': writeSafetensors(tensors, { format: 'pt' }),
  }
}

/** The same with the weights in two shards, times `scale`, a power of 2. */
export async function shardedFiles(scale = 1): Promise<Files> {
  const { 'model.safetensors': _, ...others } = await smallFiles()
  const { tensors } = await smallWeights(smallConfig, 'BF16', scale)
  const names = ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors']
  const half = Math.ceil(tensors.length / 2)
  const shards = [tensors.slice(0, half), tensors.slice(half)]
  const placed = shards.flatMap((shard, i) => shard.map(([key]) => [key, names[i]]))
  return {
    ...others,
    'model.safetensors.index.json': jsonBytes({
      metadata: { total_size: 1 },
      weight_map: Object.fromEntries(placed),
    }),
    [names[0]]: writeSafetensors(shards[0]),
    [names[1]]: writeSafetensors(shards[1]),
  }
}

export const folderOf = (files: Files): ModelFolder => ({
  size: async (name) => files[name]?.length,
  read: async (name, offset, length) => files[name].slice(offset, offset + length),
  names: async () => Object.keys(files),
})
