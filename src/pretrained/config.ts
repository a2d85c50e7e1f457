import { malformed } from '../data/malformed.ts'
import type { CausalLmConfig } from '../nn/causal-lm-config.ts'
import { clipped } from '../util/clipped.ts'
import { DataError } from '../util/errors.ts'
import { isPlain, quoted } from '../util/kind-of.ts'
import { isCount } from '../util/options.ts'

/** What a file leaves out, by transformers' class of its configuration. */
interface Defaults {
  readonly maxPositionEmbeddings: number
  readonly headDim?: number
}

/** By the name of the class, in the order in which errors list them. */
const architectures: Readonly<Record<CausalLmConfig['architecture'], Defaults>> = {
  LlamaForCausalLM: { maxPositionEmbeddings: 2048 },
  Qwen2ForCausalLM: { maxPositionEmbeddings: 32768 },
  Qwen3ForCausalLM: { maxPositionEmbeddings: 32768, headDim: 128 },
}

const isArchitecture = (name: unknown): name is CausalLmConfig['architecture'] =>
  typeof name === 'string' && Object.hasOwn(architectures, name)

const file = 'config.json'

/** Parts that models of these architectures may have, and `CausalLm` has not; with the values that mean none of it. */
const absent: readonly (readonly [key: string, none: readonly unknown[]])[] = [
  ['quantization_config', []],
  ['attention_bias', [false]],
  ['mlp_bias', [false]],
  ['use_sliding_window', [false]],
  ['hidden_act', ['silu', 'swish']],
  ['partial_rotary_factor', [1]],
]

/**
 * Returns what a config.json says of a model, as transformers 4 and 5 write it.
 *
 * errors: `data.malformed` for another architecture, which is named, and for one with parts that are not here: quantized weights, other
 * activations, sliding windows, scalings of positions other than `llama3`.
 */
export function readModelConfig(json: unknown): CausalLmConfig {
  if (!isPlain(json)) throw malformed(file, 'an object', quoted(json))
  const architecture = architectureOf(json)
  const defaults = architectures[architecture]
  // transformers 5 has all that concerns positions in one object; 4 has the base beside the scaling.
  const rope = json['rope_parameters'] ?? json['rope_scaling'] ?? {}
  if (!isPlain(rope)) throw malformed(file, 'rope_parameters with values by name', quoted(rope))
  for (const [key, none] of absent) {
    const value = rope[key] ?? json[key] ?? undefined
    const isBiased = key === 'attention_bias' && architecture === 'Qwen2ForCausalLM'
    if (value === undefined || none.includes(value) || isBiased) continue
    throw unsupported(key, value)
  }
  const count = (key: string, otherwise?: number) => {
    const value = json[key] ?? otherwise
    if (typeof value === 'number' && isCount(value)) return value
    throw malformed(file, `${key}, a whole number above 0`, quoted(value))
  }
  const number = (from: Readonly<Record<string, unknown>>, key: string, otherwise?: number) => {
    const value = from[key] ?? otherwise
    if (typeof value === 'number' && value > 0) return value
    throw malformed(file, `${key}, a number above 0`, quoted(value))
  }
  const hiddenSize = count('hidden_size')
  const numAttentionHeads = count('num_attention_heads')
  const ropeScaling = ropeScalingOf(rope, number)
  const tied = json['tie_word_embeddings'] ?? false
  if (typeof tied !== 'boolean')
    throw malformed(file, 'tie_word_embeddings, true or false', quoted(tied))
  const base = rope['rope_theta'] === undefined ? json : rope
  return {
    architecture,
    vocabSize: count('vocab_size'),
    hiddenSize,
    intermediateSize: count('intermediate_size'),
    numHiddenLayers: count('num_hidden_layers'),
    numAttentionHeads,
    numKeyValueHeads: count('num_key_value_heads', numAttentionHeads),
    headDim: count('head_dim', defaults.headDim ?? hiddenSize / numAttentionHeads),
    maxPositionEmbeddings: count('max_position_embeddings', defaults.maxPositionEmbeddings),
    rmsNormEps: number(json, 'rms_norm_eps', 1e-6),
    ropeTheta: number(base, 'rope_theta', 10_000),
    ...(ropeScaling && { ropeScaling }),
    tieWordEmbeddings: tied,
  }
}

const unsupported = (key: string, value: unknown) =>
  new DataError(
    'data.malformed',
    `${file}: ${key} is ${clipped(JSON.stringify(value) ?? 'nothing')}, which is not supported. Choose a model without it.`,
  )

/** The first one that is known, or the one of its model_type. */
function architectureOf(json: Readonly<Record<string, unknown>>): CausalLmConfig['architecture'] {
  const { architectures: given, model_type: type } = json
  const named = Array.isArray(given) ? given.find(isArchitecture) : undefined
  const all = Object.keys(architectures)
  const ofType = all.find((name) => name.toLowerCase() === `${String(type)}forcausallm`)
  const found = named ?? ((given ?? undefined) === undefined ? ofType : undefined)
  if (isArchitecture(found)) return found
  const got = Array.isArray(given) ? clipped(given.join(', ')) : quoted(given ?? type)
  throw malformed(
    file,
    `one of the architectures ${all.join(', ')}`,
    got,
    'Choose a model of one of these.',
  )
}

function ropeScalingOf(
  rope: Readonly<Record<string, unknown>>,
  number: (from: Readonly<Record<string, unknown>>, key: string) => number,
): CausalLmConfig['ropeScaling'] {
  const type = rope['rope_type'] ?? rope['type'] ?? 'default'
  if (type === 'default') return undefined
  if (type !== 'llama3') throw unsupported('rope_type', type)
  return {
    factor: number(rope, 'factor'),
    lowFreqFactor: number(rope, 'low_freq_factor'),
    highFreqFactor: number(rope, 'high_freq_factor'),
    originalMaxPositionEmbeddings: number(rope, 'original_max_position_embeddings'),
  }
}
