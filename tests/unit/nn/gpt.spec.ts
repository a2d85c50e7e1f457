import { describe, expect, test } from 'vitest'
import { type SafeTensor, writeSafetensors } from '../../../src/data/safetensors.ts'
import { loadModel } from '../../../src/ddp/checkpoint/model-file.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { checkpointSequential } from '../../../src/graph/functions/checkpoint.ts'
import { ScalarBlock } from '../../../src/graph/trace/trace.ts'
import { MultiheadAttention, RotaryEmbedding } from '../../../src/nn/attention.ts'
import { Dropout } from '../../../src/nn/dropout.ts'
import type { Module, Sequential } from '../../../src/nn/module.ts'
import { tensorType } from '../../../src/util/shape.ts'
import { models } from '../../support/models.ts'

const keysOf = (module: Module) => [...module.namedParameters()].map(([key]) => key)
const small = { vocabSize: 11, blockSize: 8, layers: 2, heads: 2, width: 4 }

describe("state-dict keys are PyTorch's", () => {
  test('gpt: those of GPT-2, in its order, the output layer under the token table', () => {
    const blocks = [0, 1].flatMap((n) =>
      ['ln_1', 'attn.c_attn', 'attn.c_proj', 'ln_2', 'mlp.c_fc', 'mlp.c_proj'].flatMap((layer) => [
        `transformer.h.${n}.${layer}.weight`,
        `transformer.h.${n}.${layer}.bias`,
      ]),
    )
    expect(keysOf(models.gpt(small))).toEqual([
      'transformer.wte.weight',
      'transformer.wpe.weight',
      ...blocks,
      'transformer.ln_f.weight',
      'transformer.ln_f.bias',
    ])
  })

  test("gpt: weights are [in, out], and files with GPT-2's constant masks and both keys of the table load", async () => {
    const model = models.gpt(small)
    const state = await model.stateDict()
    expect(state['transformer.h.0.attn.c_attn.weight'].shape).toEqual([4, 12])
    expect(state['transformer.h.1.mlp.c_proj.weight'].shape).toEqual([16, 4])
    const table = state['transformer.wte.weight']
    const other = models.gpt(small)
    other.loadStateDict({
      ...state,
      'lm_head.weight': table,
      'transformer.h.0.attn.bias': { shape: [1, 1, 8, 8], data: new Float32Array(64) },
      'transformer.h.0.attn.masked_bias': { shape: [], data: new Float32Array(1) },
    })
    expect(await other.stateDict()).toEqual(state)
  })

  test('gpt: a file as published for GPT-2 loads: no prefix, masks, no output layer', async () => {
    const model = models.gpt(small)
    const state = await model.stateDict()
    const published = Object.entries(state)
      .filter(([key]) => key !== 'lm_head.weight')
      .map(([key, tensor]): [string, SafeTensor] => [
        key.slice('transformer.'.length),
        { dtype: 'F32', ...tensor } as SafeTensor,
      ])
    expect(published.map(([key]) => key)).toContain('h.0.attn.c_attn.weight')
    const masks = [0, 1].map((n): [string, SafeTensor] => [
      `h.${n}.attn.bias`,
      { dtype: 'F32', shape: [1, 1, 8, 8], data: new Float32Array(64) },
    ])
    const other = models.gpt(small)
    const loaded = await loadModel(other, writeSafetensors([...published, ...masks]))
    expect(loaded).toEqual({ missingKeys: [], unexpectedKeys: [] })
    expect(await other.stateDict()).toEqual(state)
  })

  test('MultiheadAttention, and a rotary table that is no part of the state', async () => {
    expect(keysOf(new MultiheadAttention(6, 2))).toEqual([
      'in_proj_weight',
      'in_proj_bias',
      'out_proj.weight',
      'out_proj.bias',
    ])
    expect(await new RotaryEmbedding(4, { maxPositions: 3 }).stateDict()).toEqual({})
  })
})

test('blocks refuse rows without the number of samples in them', async () => {
  // The compiler refuses them; JavaScript does not.
  const h = models.gpt(small).transformer.h as unknown as Sequential
  const refused = compile(
    ({ x }) => ({ y: checkpointSequential(h, 2, x) }),
    { x: tensorType([16, 4]) },
    { device: 'reference' },
  )
  await expect(refused).rejects.toThrow(
    /number of samples in its rows \[16, 4\], got undefined.*checkpoint: true/,
  )
})

test('eval() and train() reach every module', () => {
  const model = models.gpt({ ...small, dropout: 0.1 })
  const modes = (module: Module): boolean[] => [
    ...(module instanceof Dropout ? [module.training] : []),
    ...module.children().flatMap(([, child]) => modes(child)),
  ]
  expect(modes(model.eval())).toEqual(Array(5).fill(false))
  expect(modes(model.train())).toEqual(Array(5).fill(true))
})

test('integers are step scalars in exact halves of 16 bits', () => {
  const block = new ScalarBlock()
  block.add(() => 7)
  const { slot } = block.integer('seed', 2 ** 53 - 1, 4)
  expect(slot).toEqual({ slot: 1 })
  const values = new Float32Array(block.size)
  block.fill(values)
  expect([...values]).toEqual([7, 0xffff, 0xffff, 0xffff, 0x1f])
  block.begin({ seed: 65_537 })
  block.fill(values)
  expect([...values]).toEqual([7, 1, 1, 0, 0])
  for (const wrong of [-1, 0.5, 2 ** 53, Number.NaN]) {
    expect(() => block.begin({ seed: wrong })).toThrow(/"seed" must be an integer from 0/)
  }
})
