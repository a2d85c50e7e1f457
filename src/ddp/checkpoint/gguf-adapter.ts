import { type GgufDtype, type GgufTensor, writeGguf } from '../../data/gguf.ts'
import { readAdapter } from '../../nn/lora/adapter-state.ts'
import type { PeftModel } from '../../nn/lora/peft-model.ts'
import { clipped } from '../../util/clipped.ts'
import { TabringError } from '../../util/errors.ts'
import { checkChoice, checkNumber, checkOptions, checkRecord, isCount } from '../../util/options.ts'

/** Names of llama.cpp for an architecture of transformers. */
const architectures = {
  LlamaForCausalLM: 'llama',
  Qwen2ForCausalLM: 'qwen2',
  Qwen3ForCausalLM: 'qwen3',
  GPT2LMHeadModel: 'gpt2',
} as const

/** What a GGUF file must know of the base: fields of its config.json. */
export interface GgufBase {
  readonly architecture: keyof typeof architectures
  /** Of a LlamaForCausalLM, whose queries and keys llama.cpp has in another order. */
  readonly numAttentionHeads?: number
  readonly numKeyValueHeads?: number
}

/** Options of `saveGgufAdapter`. */
export interface SaveGgufOptions {
  /** Default: the active one. */
  adapterName?: string
  /** Type of the numbers; default `F32`. */
  dtype?: GgufDtype
}

/** Layers of a block by their names in transformers and in llama.cpp. */
const layerNames = {
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.o_proj': 'attn_output',
  'mlp.gate_proj': 'ffn_gate',
  'mlp.up_proj': 'ffn_up',
  'mlp.down_proj': 'ffn_down',
  'attn.c_attn': 'attn_qkv',
  'attn.c_proj': 'attn_output',
  'mlp.c_fc': 'ffn_up',
  'mlp.c_proj': 'ffn_down',
} as const

/** errors: `graph.misuse` for a layer that llama.cpp has no name for. */
function nameOf(path: string): string {
  if (path === 'lm_head') return 'output'
  const [, number, layer = ''] = /^(?:model\.layers|transformer\.h)\.(\d+)\.(.+)$/.exec(path) ?? []
  if (Object.hasOwn(layerNames, layer))
    return `blk.${number}.${layerNames[layer as keyof typeof layerNames]}`
  throw new TabringError(
    'graph.misuse',
    `saveGgufAdapter: llama.cpp has no name for layer "${clipped(path)}". Give adapters to attention and feed-forward layers alone.`,
  )
}

/**
 * Returns an adapter as a GGUF file, which llama.cpp and what is built on it (Ollama, LM Studio, wllama) load beside the base. On several ranks
 * all call it.
 *
 * `base`: of the model that was trained, such as `model.baseModel.config`. llama.cpp multiplies by alpha / r alone, so an adapter with
 * `useRslora` gets alpha times sqrt(r). Rows of a LlamaForCausalLM's queries and keys change their order, as in llama.cpp's own files.
 * errors: `graph.misuse` for layers that llama.cpp has no name for, and for trained biases and modules, which a GGUF adapter cannot hold.
 */
export async function saveGgufAdapter(
  model: PeftModel,
  base: GgufBase,
  options: SaveGgufOptions = {},
): Promise<Uint8Array<ArrayBuffer>> {
  const where = 'saveGgufAdapter'
  checkRecord(where, 'base', base)
  const { architecture } = base
  checkChoice(where, 'architecture', architecture, Object.keys(architectures) as never[])
  const known = { adapterName: 'text', dtype: true } as const
  const { adapterName, dtype = 'F32' } = checkOptions(where, options, known)
  checkChoice(where, 'dtype', dtype, ['F32', 'F16'])
  const { settings, factors, others } = await readAdapter(where, model, adapterName)
  const [other] = Object.keys(others)
  if (other !== undefined)
    throw new TabringError(
      'graph.misuse',
      `${where}: a GGUF adapter holds A and B alone, and "${clipped(other)}" is trained too. Save the merged model by saveMerged.`,
    )
  const tensors: Record<string, GgufTensor> = {}
  for (const [path, { a, b }] of factors) {
    const name = `${nameOf(path)}.weight`
    tensors[`${name}.lora_a`] = { shape: a.shape, data: a.data as Float32Array<ArrayBuffer> }
    const isKeys = name.endsWith('.attn_k.weight')
    const isTurned = isKeys || name.endsWith('.attn_q.weight')
    const heads = isKeys ? 'numKeyValueHeads' : 'numAttentionHeads'
    const data =
      architecture === 'LlamaForCausalLM' && isTurned
        ? interleaved(b.data as Float32Array<ArrayBuffer>, b.shape, base, heads)
        : (b.data as Float32Array<ArrayBuffer>)
    tensors[`${name}.lora_b`] = { shape: b.shape, data }
  }
  const { r, loraAlpha, useRslora } = settings
  return writeGguf(
    {
      'general.architecture': architectures[architecture],
      'general.type': 'adapter',
      'adapter.type': 'lora',
      'adapter.lora.alpha': loraAlpha * (useRslora ? Math.sqrt(r) : 1),
    },
    tensors,
    dtype,
  )
}

/**
 * Rows of B in llama.cpp's order: transformers rotates element i of a head with element i + half, llama.cpp neighbours.
 *
 * shape: [heads * 2 * half, r] -> the same
 */
function interleaved(
  rows: Float32Array<ArrayBuffer>,
  [out, r]: readonly number[],
  base: GgufBase,
  field: 'numAttentionHeads' | 'numKeyValueHeads',
): Float32Array<ArrayBuffer> {
  const heads = base[field]
  checkNumber('saveGgufAdapter', `${field} of base`, heads, isCount, 'a whole number above 0', true)
  const half = out / heads! / 2
  if (!Number.isInteger(half))
    throw new TabringError(
      'config.invalid',
      `saveGgufAdapter: ${out} rows must be those of ${heads} heads of an even size. Take ${field} from the base's config.json.`,
    )
  const result = new Float32Array(rows.length)
  for (let row = 0; row < out; row++) {
    const [head, within] = [Math.floor(row / (2 * half)), row % (2 * half)]
    const to = head * 2 * half + 2 * (within % half) + Math.floor(within / half)
    result.set(rows.subarray(row * r, (row + 1) * r), to * r)
  }
  return result
}
