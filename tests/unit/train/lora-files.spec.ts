import { readFileSync } from 'node:fs'
import { gguf } from '@huggingface/gguf'
import { describe, expect, test } from 'vitest'
import { readSafetensors } from '../../../src/data/safetensors.ts'
import { loadAdapter, saveAdapter, saveMerged } from '../../../src/ddp/checkpoint/adapter-file.ts'
import { saveGgufAdapter } from '../../../src/ddp/checkpoint/gguf-adapter.ts'
import { ModuleDict, ModuleList } from '../../../src/nn/containers.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { getPeftModel, type PeftModel } from '../../../src/nn/lora/peft-model.ts'
import { type Module, Sequential } from '../../../src/nn/module.ts'
import golden from '../../golden/lora.json'
import { expectGolden } from '../../support/golden.ts'
import {
  adapted,
  baseOf,
  caseOf,
  cases,
  factorsOf,
  makeLoraFiles,
  probe,
} from '../../support/golden-lora.ts'
import { testRuntime } from '../../support/run-op.ts'

const names = ['adapter_config.json', 'adapter_model.safetensors'] as const
type Files = Awaited<ReturnType<typeof saveAdapter>>

const golds = (name: string) =>
  Object.fromEntries(
    names.map((file) => [
      file,
      new Uint8Array(readFileSync(new URL(`../../golden/lora/${name}/${file}`, import.meta.url))),
    ]),
  ) as unknown as Files

const configIn = (files: Files) =>
  JSON.parse(new TextDecoder().decode(files['adapter_config.json'])) as Record<string, unknown>
const withConfig = (files: Files, more: object): Files => ({
  ...files,
  'adapter_config.json': new TextEncoder().encode(JSON.stringify({ ...configIn(files), ...more })),
})
const tensorsIn = (files: Files) => readSafetensors(files['adapter_model.safetensors'])

describe("PEFT's files", () => {
  test.each(cases)('of $name load and are written again as Python wrote them', async (given) => {
    const files = golds(given.name)
    const runtime = await testRuntime()
    const model = await loadAdapter(baseOf(given), files)
    const got = await probe(given, (x) => model.forward(x), runtime)
    expectGolden({ unmerged: got }, { unmerged: given.outputs.unmerged })
    expect(model.parameters().some(({ requiresGrad }) => requiresGrad)).toBe(false)
    const written = await saveAdapter(model)
    expect(tensorsIn(written)).toEqual(tensorsIn(files))
    const {
      auto_mapping: _,
      layers_pattern: __,
      layers_to_transform: ___,
      revision: ____,
      ...known
    } = configIn(files)
    expect(configIn(written)).toEqual(known)
  })

  test('of an rsLoRA adapter, written without use_rslora, compute the same in Python', async () => {
    const files = await makeLoraFiles()
    for (const name of names) expect(files[name]).toEqual(golds('ours')[name])
    expect(configIn(files)).toMatchObject({ use_rslora: false, lora_alpha: 2 * Math.sqrt(4) })
    const model = await loadAdapter(baseOf(caseOf('rslora')), files)
    const got = await probe(caseOf('rslora'), (x) => model.forward(x), await testRuntime())
    expectGolden({ logits: got }, golden.ours!)
    expectGolden({ first: got }, { first: caseOf('rslora').outputs.first })
  })

  test('load beside an adapter, and to be trained', async () => {
    const model = adapted(caseOf('mlp'))
    await loadAdapter(model, golds('rslora'), { adapterName: 'other', isTrainable: true })
    expect(model.activeAdapter).toBe('default')
    model.setAdapter('other')
    expect(factorsOf(model, 'other').every(([, factor]) => factor.requiresGrad)).toBe(true)
  })

  test('hold biases and modules that are trained too', async () => {
    const make = () => new Sequential(new Linear(2, 3), new Linear(3, 3), new Linear(3, 2))
    const model = getPeftModel(make(), {
      targetModules: ['0'],
      bias: 'lora_only',
      modulesToSave: ['2'],
    })
    for (const [, parameter] of model.alsoTrained('default'))
      parameter.assign(new Float32Array(parameter.count).fill(7))
    const files = await saveAdapter(model)
    expect([...tensorsIn(files).tensors.keys()].sort()).toEqual(
      ['0.base_layer.bias', '0.lora_A.weight', '0.lora_B.weight', '2.bias', '2.weight'].map(
        (key) => `base_model.model.${key}`,
      ),
    )
    const again = await loadAdapter(make(), files)
    const values = await Promise.all(
      again.alsoTrained('default').map(([, parameter]) => parameter.read()),
    )
    expect(values.flatMap((all) => [...all])).toEqual(new Array(3 + 2 + 6).fill(7))
    expect(again.parameters().some(({ requiresGrad }) => requiresGrad)).toBe(false)
  })

  test('of an adapter do not hold what another one trains', async () => {
    const make = () => new Sequential(new Linear(2, 3), new Linear(3, 2))
    const model = getPeftModel(make(), { targetModules: ['0'], modulesToSave: ['1'] }, 'first')
    model.addAdapter('second', { targetModules: ['0'] })
    const files = await saveAdapter(model, { adapterName: 'second' })
    expect([...tensorsIn(files).tensors.keys()]).toHaveLength(2)
    await loadAdapter(make(), files)
  })

  test('are refused with one sentence that says why', async () => {
    const files = golds('mlp')
    const base = () => baseOf(caseOf('mlp'))
    const refused = (given: Files, model: Module = base()) =>
      expect(loadAdapter(model, given)).rejects
    await refused(withConfig(files, { peft_type: 'IA3' })).toThrow(/peft_type LORA, got "IA3"/)
    await refused(withConfig(files, { use_dora: true })).toThrow(/use_dora, which is not supported/)
    await refused(withConfig(files, { rank_pattern: { q: 4 } })).toThrow(/rank_pattern/)
    await refused(withConfig(files, { init_lora_weights: 'pissa_niter_4' })).toThrow(
      /init_lora_weights is "pissa_niter_4", which changes the base/,
    )
    await refused(withConfig(files, { r: 5 })).toThrow(
      /"0.lora_A.weight" must be \[5, 6\] for this base and r 5, got \[3, 6\].*golden\/mlp/,
    )
    await refused({ ...files, 'adapter_config.json': new Uint8Array(3) }).toThrow(/expected JSON/)
    await refused(files, new Sequential(new Linear(6, 9))).toThrow(
      /"0.lora_B.weight" must be \[9, 3\] for this base/,
    )
    await refused(files, baseOf(caseOf('gpt'))).toThrow(
      /no linear layer "0"\. .* for golden\/mlp\./,
    )
  })
})

test('saveMerged writes the base’s keys once, with the adapter in the weights', async () => {
  const given = caseOf('gpt')
  const model = await loadAdapter(baseOf(given), golds('gpt'))
  const { tensors, metadata } = readSafetensors(await saveMerged(model))
  expect(metadata).toEqual({ format: 'pt' })
  // As transformers: a tied head is that of the table.
  expect([...tensors.keys()].sort()).toEqual(given.weights.map(({ key }) => key).sort())
  const merged = baseOf(given)
  merged.loadStateDict(Object.fromEntries(tensors))
  const got = await probe(given, (x) => merged.forward(x), await testRuntime())
  expectGolden({ merged: got }, { merged: given.outputs.merged })
})

const linear = (sizes: Readonly<Record<string, number>>) =>
  new ModuleDict<Module>(
    Object.entries(sizes).map(([name, size]) => [name, new Linear(8, size, { bias: false })]),
  )

/** Layers with the names of transformers' Llama. */
function llama() {
  const block = () =>
    new ModuleDict<Module>({
      self_attn: linear({ q_proj: 8, k_proj: 4, o_proj: 8 }),
      mlp: linear({ gate_proj: 12 }),
    })
  const layers = new ModuleList([block(), block()])
  return new ModuleDict({ model: new ModuleDict({ layers }) })
}

describe('a GGUF adapter', () => {
  const heads = { numAttentionHeads: 2, numKeyValueHeads: 1 }
  const make = (config: object = {}): PeftModel => {
    const targetModules = ['q_proj', 'k_proj', 'o_proj', 'gate_proj']
    const model = getPeftModel(llama(), { targetModules, r: 2, loraAlpha: 6, ...config })
    for (const [, factor] of factorsOf(model))
      factor.assign(Float32Array.from({ length: factor.count }, (_, i) => i))
    return model
  }
  async function read(file: Uint8Array<ArrayBuffer>) {
    const fetched: typeof fetch = async (_, init) => {
      const range = /bytes=(\d+)-(\d+)/.exec(new Headers(init?.headers).get('range') ?? '')!
      return new Response(file.slice(Number(range[1]), Number(range[2]) + 1))
    }
    const url = 'https://files.example/adapter.gguf'
    const parsed = await gguf(url, { fetch: fetched })
    const { tensorInfos, tensorDataOffset } = parsed
    const metadata = parsed.metadata as Record<string, unknown>
    const data = (name: string) => {
      const { offset, shape, dtype } = tensorInfos.find((one) => one.name === name)!
      const [count, at] = [
        Number(shape.reduce((a, b) => a * b, 1n)),
        Number(tensorDataOffset + offset),
      ]
      const words = file.slice(at, at + count * (dtype === 1 ? 2 : 4)).buffer
      return [...(dtype === 1 ? new Uint16Array(words) : new Float32Array(words))]
    }
    return { metadata, tensorInfos, data }
  }

  test('has llama.cpp’s names, and shapes from the inside out, as another reader sees them', async () => {
    const file = await saveGgufAdapter(make(), { architecture: 'LlamaForCausalLM', ...heads })
    const { metadata, tensorInfos, data } = await read(file)
    expect(metadata).toMatchObject({
      version: 3,
      'general.architecture': 'llama',
      'general.type': 'adapter',
      'adapter.type': 'lora',
      'adapter.lora.alpha': 6,
    })
    const shapes = tensorInfos.slice(0, 8).map(({ name, shape }) => [name, shape.map(Number)])
    expect(Object.fromEntries(shapes)).toEqual({
      'blk.0.attn_q.weight.lora_a': [8, 2],
      'blk.0.attn_q.weight.lora_b': [2, 8],
      'blk.0.attn_k.weight.lora_a': [8, 2],
      'blk.0.attn_k.weight.lora_b': [2, 4],
      'blk.0.attn_output.weight.lora_a': [8, 2],
      'blk.0.attn_output.weight.lora_b': [2, 8],
      'blk.0.ffn_gate.weight.lora_a': [8, 2],
      'blk.0.ffn_gate.weight.lora_b': [2, 12],
    })
    expect(tensorInfos).toHaveLength(16)
    expect(data('blk.1.attn_q.weight.lora_a')).toEqual([...Array(16).keys()])
    // Of each head of 4 rows the second half goes between the first.
    const rowsOf = (name: string) =>
      data(name)
        .filter((_, i) => i % 2 === 0)
        .map((value) => value / 2)
    expect(rowsOf('blk.1.attn_q.weight.lora_b')).toEqual([0, 2, 1, 3, 4, 6, 5, 7])
    expect(rowsOf('blk.1.attn_k.weight.lora_b')).toEqual([0, 2, 1, 3])
    expect(rowsOf('blk.1.attn_output.weight.lora_b')).toEqual([...Array(8).keys()])
  })

  test('of a Qwen keeps the order of rows, has float16 where asked, and alpha for rsLoRA', async () => {
    const model = make({ useRslora: true })
    const file = await saveGgufAdapter(
      model,
      { architecture: 'Qwen2ForCausalLM' },
      { dtype: 'F16' },
    )
    const { metadata, tensorInfos, data } = await read(file)
    expect(metadata['general.architecture']).toBe('qwen2')
    expect(metadata['adapter.lora.alpha']).toBe(Math.fround(6 * Math.SQRT2))
    expect(new Set(tensorInfos.map(({ dtype }) => dtype))).toEqual(new Set([1]))
    // 0, 1, 2, 3 in halves.
    expect(data('blk.0.attn_q.weight.lora_b').slice(0, 4)).toEqual([0, 0x3c00, 0x4000, 0x4200])
  })

  test('of a GPT-2 has its names, and what llama.cpp cannot have is refused', async () => {
    const gpt = await loadAdapter(baseOf(caseOf('gpt')), golds('gpt'))
    const { tensorInfos } = await read(
      await saveGgufAdapter(gpt, { architecture: 'GPT2LMHeadModel' }),
    )
    expect(tensorInfos[0].name).toBe('blk.0.attn_qkv.weight.lora_a')
    const architecture = 'LlamaForCausalLM'
    await expect(saveGgufAdapter(make(), { architecture })).rejects.toThrow(
      /numAttentionHeads of base must be a whole number above 0, got undefined/,
    )
    await expect(saveGgufAdapter(make(), { architecture, numAttentionHeads: 2 })).rejects.toThrow(
      /numKeyValueHeads of base must be/,
    )
    await expect(
      saveGgufAdapter(adapted(caseOf('mlp')), { architecture, ...heads }),
    ).rejects.toThrow(/no name for layer "0"/)
    await expect(
      saveGgufAdapter(make({ modulesToSave: ['gate_proj'] }), {
        architecture,
        ...heads,
      }),
    ).rejects.toThrow(/holds A and B alone/)
  })
})
