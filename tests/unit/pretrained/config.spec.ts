import { expect, test } from 'vitest'
import { readModelConfig } from '../../../src/pretrained/config.ts'
import { readGenerationConfig } from '../../../src/pretrained/generation.ts'
import { smallConfig } from '../../support/pretrained-folder.ts'

const llama3 = {
  factor: 32,
  low_freq_factor: 1,
  high_freq_factor: 4,
  original_max_position_embeddings: 8192,
}
const scaling = {
  factor: 32,
  lowFreqFactor: 1,
  highFreqFactor: 4,
  originalMaxPositionEmbeddings: 8192,
}

test('readModelConfig gives the same when transformers 4 or 5 has written the file', () => {
  const { rope_theta, torch_dtype, ...common } = smallConfig
  const four = {
    ...common,
    rope_theta,
    torch_dtype,
    rope_scaling: { ...llama3, rope_type: 'llama3' },
  }
  const five = {
    ...common,
    dtype: torch_dtype,
    rope_parameters: { ...llama3, rope_type: 'llama3', rope_theta },
  }
  const expected = {
    architecture: 'LlamaForCausalLM',
    vocabSize: 700,
    hiddenSize: 16,
    intermediateSize: 24,
    numHiddenLayers: 2,
    numAttentionHeads: 4,
    numKeyValueHeads: 2,
    headDim: 4,
    maxPositionEmbeddings: 64,
    rmsNormEps: 1e-5,
    ropeTheta: 10000,
    ropeScaling: scaling,
    tieWordEmbeddings: true,
  }
  expect(readModelConfig(four)).toEqual(expected)
  expect(readModelConfig(five)).toEqual(expected)
  const plain = { ...five, rope_parameters: { rope_type: 'default', rope_theta: 5 } }
  expect(readModelConfig(plain)).toMatchObject({ ropeTheta: 5 })
  expect(readModelConfig(plain)).not.toHaveProperty('ropeScaling')
})

test('readModelConfig takes the defaults of transformers when a file lacks a value', () => {
  const { num_key_value_heads: _, tie_word_embeddings: __, rope_theta: ___, ...least } = smallConfig
  const read = (more: object) => readModelConfig({ ...least, ...more })
  expect(read({ rope_scaling: null })).toMatchObject({
    numKeyValueHeads: 4,
    ropeTheta: 10000,
    tieWordEmbeddings: false,
  })
  expect(read({ architectures: ['Qwen3ForCausalLM'] }).headDim).toBe(128)
  expect(read({ architectures: ['Qwen3ForCausalLM'], head_dim: 8 }).headDim).toBe(8)
  expect(read({ architectures: null, model_type: 'qwen2' }).architecture).toBe('Qwen2ForCausalLM')
})

test.each([
  [
    { architectures: ['Gemma3ForCausalLM'] },
    'expected one of the architectures LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, got Gemma3ForCausalLM',
  ],
  [{ hidden_size: '16' }, 'expected hidden_size, a whole number above 0, got "16"'],
  [{ num_attention_heads: 3 }, 'expected head_dim, a whole number above 0, got 5.33'],
  [{ attention_bias: true }, 'attention_bias is true, which is not supported'],
  [{ hidden_act: 'gelu' }, 'hidden_act is "gelu", which is not supported'],
  [
    { quantization_config: { bits: 4 } },
    'quantization_config is {"bits":4}, which is not supported',
  ],
  [{ rope_scaling: { type: 'yarn', factor: 4 } }, 'rope_type is "yarn", which is not supported'],
  [
    { rope_parameters: { rope_type: 'llama3', factor: 4 } },
    'expected low_freq_factor, a number above 0, got undefined',
  ],
])('readModelConfig names what is wrong when a file has %j', (change, message) => {
  expect(() => readModelConfig({ ...smallConfig, ...change })).toThrow(message)
})

test('readGenerationConfig joins both files when one lacks the special tokens', () => {
  const config = { bos_token_id: 1, eos_token_id: [2, 3] }
  expect(readGenerationConfig(undefined, config)).toEqual({ bosTokenId: 1, eosTokenIds: [2, 3] })
  expect(readGenerationConfig({ eos_token_id: 7, top_p: 0.9, do_sample: true }, config)).toEqual({
    bosTokenId: 1,
    eosTokenIds: [7],
    topP: 0.9,
    doSample: true,
  })
  expect(() => readGenerationConfig({ eos_token_id: 'x' }, config)).toThrow('eos_token_id, a token')
})
