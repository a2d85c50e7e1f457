import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { diskModelFolder } from '../../../node/model-folder.ts'
import { writeSafetensors } from '../../../src/data/safetensors.ts'
import { CausalLm } from '../../../src/nn/causal-lm.ts'
import { Linear } from '../../../src/nn/layers.ts'
import { loadPretrained } from '../../../src/pretrained/load-pretrained.ts'
import {
  type Files,
  folderOf,
  jsonBytes,
  shardedFiles,
  smallConfig,
  smallFiles,
  smallWeights,
} from '../../support/pretrained-folder.ts'

const filesIn = (files: Files, root = '') =>
  Object.entries(files).map(([name, bytes]) => ({
    path: root + name,
    source: new File([bytes], name),
  }))

async function expectWeights(model: CausalLm, config: object = smallConfig): Promise<void> {
  const { values } = await smallWeights({ ...config })
  const state = await model.stateDict()
  expect(Object.keys(state)).toEqual([...values.keys()])
  for (const [key, { data }] of Object.entries(state)) expect([...data]).toEqual(values.get(key))
}

test.each(['F32', 'F16', 'BF16'] as const)(
  'loadPretrained gives the numbers of the file when they are %s',
  async (dtype) => {
    const { model, config, generation, tokenizer } = await loadPretrained(
      folderOf(await smallFiles(smallConfig, dtype)),
    )
    await expectWeights(model)
    expect(config.headDim).toBe(4)
    expect(generation).toEqual({ eosTokenIds: [3, 4], temperature: 0.6, topK: 20, doSample: true })
    expect(tokenizer.decode(tokenizer.encode('a tour'))).toBe('a tour')
  },
)

test('loadPretrained reads picked files, with or without the name of their folder, when they are shards', async () => {
  const files = await shardedFiles()
  await expectWeights((await loadPretrained(filesIn(files, 'SmolLM2/'))).model)
  const picked = Object.entries(files).map(([name, bytes]) => new File([bytes], name))
  await expectWeights((await loadPretrained(picked)).model)
})

test('loadPretrained reads a folder of the disk', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'tabring-pretrained-'))
  try {
    for (const [name, bytes] of Object.entries(await shardedFiles()))
      await writeFile(join(folder, name), bytes)
    await expectWeights((await loadPretrained(diskModelFolder(folder))).model)
    await rm(join(folder, 'config.json'))
    await expect(loadPretrained(diskModelFolder(folder))).rejects.toThrow(
      'config.json: the folder has no such file, but generation_config.json',
    )
  } finally {
    await rm(folder, { recursive: true })
  }
})

test('loadPretrained ignores the output layer and old angles when the layer is tied', async () => {
  const { tensors } = await smallWeights()
  const table = tensors.find(([key]) => key === 'model.embed_tokens.weight')![1]
  const angles = { dtype: 'F32', shape: [2], data: new Float32Array(2) } as const
  const file = writeSafetensors([
    ...tensors,
    ['lm_head.weight', table],
    ['model.layers.0.self_attn.rotary_emb.inv_freq', angles],
  ])
  const { model } = await loadPretrained(
    folderOf({ ...(await smallFiles()), 'model.safetensors': file }),
  )
  await expectWeights(model)
})

test('loadPretrained fills any module when its keys and shapes fit', async () => {
  const weight = { dtype: 'F32', shape: [3, 2], data: new Float32Array(6).fill(0.5) } as const
  const file = writeSafetensors([['weight', weight]])
  const { model } = await loadPretrained(
    folderOf({ ...(await smallFiles()), 'model.safetensors': file }),
    { model: () => new Linear(2, 3, { bias: false }) },
  )
  expect([...(await model.weight.read())]).toEqual(new Array(6).fill(0.5))
})

test('loadPretrained reports its progress in bytes, and reads in pieces when a tensor is large', async () => {
  const large = { dtype: 'BF16', shape: [3000, 3000], data: new Uint16Array(9e6) } as const
  const bias = { dtype: 'BF16', shape: [3000], data: new Uint16Array(3000) } as const
  const file = writeSafetensors([
    ['weight', large],
    ['bias', bias],
  ])
  const folder = folderOf({ ...(await smallFiles()), 'model.safetensors': file })
  const done: number[] = []
  const totals = new Set<number>()
  const reads: number[] = []
  const read = (name: string, offset: number, length: number) => {
    if (name === 'model.safetensors') reads.push(length)
    return folder.read(name, offset, length)
  }
  const onProgress = ({ doneBytes, totalBytes }: { doneBytes: number; totalBytes: number }) => {
    done.push(doneBytes)
    totals.add(totalBytes)
  }
  const model = () => new Linear(3000, 3000)
  await loadPretrained({ ...folder, read }, { model, onProgress })
  const piece = 16 * 2 ** 20
  expect([...totals]).toEqual([18_006_000])
  expect(done).toEqual([0, piece, 18_006_000])
  // After the head and its text.
  expect(reads.slice(2)).toEqual([piece, 18_006_000 - piece])
})

test('loadPretrained leaves the module as it was when it is aborted or fails', async () => {
  const files = await smallFiles()
  const model = new CausalLm((await loadPretrained(folderOf(files))).config)
  const before = await model.stateDict()
  const aborter = new AbortController()
  const folder = folderOf(files)
  const loading = loadPretrained(folder, {
    model: () => model,
    signal: aborter.signal,
    onProgress: ({ doneBytes }) => {
      if (doneBytes > 0) aborter.abort(new Error('enough'))
    },
  })
  await expect(loading).rejects.toThrow('enough')
  expect(await model.stateDict()).toEqual(before)
  const lost = {
    ...folder,
    read: async (name: string, offset: number, length: number) => {
      if (name === 'model.safetensors' && length > 10000) throw new Error('the disk is gone')
      return folder.read(name, offset, length)
    },
  }
  await expect(loadPretrained(lost, { model: () => model })).rejects.toThrow('the disk is gone')
  expect(await model.stateDict()).toEqual(before)
})

const shards = ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'] as const

/** A file of weights of which one number is another. */
async function fileWith(dtype: 'F32' | 'F16' | 'BF16', word: number): Promise<Files> {
  const { tensors } = await smallWeights(smallConfig, dtype)
  const [key, { shape, data }] = tensors[3]
  ;new (dtype === 'F32' ? Uint32Array : Uint16Array)(data.buffer)[5] = word
  const changed = [...tensors.filter((one) => one[0] !== key), [key, { dtype, shape, data }]]
  return { 'model.safetensors': writeSafetensors(changed as never) }
}

const renamed = (file: Uint8Array<ArrayBuffer>, from: string, to: string) => {
  const text = Buffer.from(file).toString('latin1').replace(from, to)
  return new Uint8Array(Buffer.from(text, 'latin1'))
}

test.each<[string, () => Promise<Files>, RegExp]>([
  [
    'a shard is truncated',
    async () => {
      const all = await shardedFiles()
      return { ...all, 'model.safetensors': undefined!, [shards[1]]: all[shards[1]].slice(0, -100) }
    },
    /^model-00002-of-00002.safetensors: "model.*": expected data up to byte \d+, got \d+ bytes \(truncated\)/,
  ],
  [
    'two shards have each other’s name',
    async () => {
      const all = await shardedFiles()
      return { ...all, [shards[0]]: all[shards[1]], [shards[1]]: all[shards[0]] }
    },
    /^model-00001-of-00002.safetensors: expected the tensor "model.embed_tokens.weight", which model.safetensors.index.json places there, got \d+ others, such as "model\..*"\. Two shards may have each other's name/,
  ],
  [
    'the index names a file that is not there',
    async () => ({ ...(await shardedFiles()), [shards[1]]: undefined! }),
    /^model-00002-of-00002.safetensors: the folder has no such file, but .*model.safetensors.index.json names it/,
  ],
  [
    'the index names a file outside of the folder',
    async () => ({
      ...(await shardedFiles()),
      'model.safetensors.index.json': jsonBytes({ weight_map: { a: '../a.safetensors' } }),
    }),
    /^model.safetensors.index.json: expected the name of a file for "a", got "..\/a.safetensors"/,
  ],
  [
    'weights have an unknown type',
    async () => ({
      'model.safetensors': renamed((await smallFiles())['model.safetensors'], 'BF16', 'F8_E'),
    }),
    /^model.safetensors: "model.*": expected a dtype among .*, got "F8_E"/,
  ],
  [
    'weights are whole numbers',
    async () => ({
      'model.safetensors': renamed((await smallFiles())['model.safetensors'], '"BF16"', '"I16" '),
    }),
    /^model.safetensors: "model.*": expected F32, F16 or BF16, got I16/,
  ],
  [
    'shapes contradict the configuration',
    async () => ({ 'config.json': jsonBytes({ ...smallConfig, intermediate_size: 32 }) }),
    /^model.safetensors, by config.json: "model.layers.0.mlp.gate_proj.weight" must be \[32, 16\], got \[24, 16\]/,
  ],
  [
    'the configuration has more layers',
    async () => ({ 'config.json': jsonBytes({ ...smallConfig, num_hidden_layers: 3 }) }),
    /^model.safetensors, by config.json: the keys do not match this model, missing \[model.layers.2/,
  ],
  [
    'the output layer is not tied and not there',
    async () => ({ 'config.json': jsonBytes({ ...smallConfig, tie_word_embeddings: false }) }),
    /missing \[lm_head.weight\]/,
  ],
  [
    'the tokenizer is of another model',
    async () => ({ 'config.json': jsonBytes({ ...smallConfig, vocab_size: 100 }) }),
    /^tokenizer.json: expected tokens below 100, the vocab_size of config.json, got one of number 658\. It is of another model/,
  ],
  [
    'a weight of bf16 is NaN',
    () => fileWith('BF16', 0xffc0),
    /^model.safetensors: "model.layers.0.*": expected finite numbers, got NaN as element 5/,
  ],
  [
    'a weight of f16 is infinite',
    () => fileWith('F16', 0xfc00),
    /^model.safetensors: "model.layers.0.*": expected finite numbers, got infinity as element 5/,
  ],
  [
    'a weight of f32 is NaN',
    () => fileWith('F32', 0x7f800001),
    /^model.safetensors: "model.layers.0.*": expected finite numbers, got NaN as element 5/,
  ],
  [
    'there are no safetensors',
    async () => ({ 'model.safetensors': undefined!, 'pytorch_model.bin': new Uint8Array(9) }),
    /^model.safetensors: the folder has no such file, but .*pytorch_model.bin. Save the model with save_pretrained, as safetensors/,
  ],
  [
    'a file is a Git LFS pointer',
    async () => ({
      'model.safetensors': new TextEncoder().encode('version https://git-lfs.github.com/spec/v1\n'),
    }),
    /^model.safetensors: expected a safetensors file, got a Git LFS pointer/,
  ],
  [
    'config.json is no JSON',
    async () => ({ 'config.json': new TextEncoder().encode('{"a":') }),
    /^config.json: expected JSON, got something else/,
  ],
])('loadPretrained names the place when %s', async (_, changed, message) => {
  const changes = await changed()
  const isSharded = 'model.safetensors.index.json' in changes
  const files = { ...(isSharded ? {} : await smallFiles()), ...changes }
  const there = Object.fromEntries(Object.entries(files).filter(([, bytes]) => bytes))
  await expect(loadPretrained(folderOf(there))).rejects.toThrow(message)
})
