import { readFileSync } from 'node:fs'
import { expect, test, vi } from 'vitest'
import { readSafetensors, writeSafetensors } from '../../../src/data/safetensors.ts'
import { readTorch, type TorchValue } from '../../../src/data/torch/read-torch.ts'
import { writeTorch } from '../../../src/data/torch/write-torch.ts'
import { loadModel, saveModel } from '../../../src/ddp/checkpoint/model-file.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { resnet18 } from '../../../src/nn/resnet.ts'
import { AdamW } from '../../../src/optim/adam.ts'
import type { OptimizerStateDict } from '../../../src/optim/state-dict.ts'
import { tensorType } from '../../../src/util/shape.ts'
import golden from '../../golden/batch-norm.json'
import { formulaUniform } from '../../support/formula-data.ts'
import {
  allowedDistance,
  type GoldenTensor,
  largestDistance,
  valuesOf,
} from '../../support/golden.ts'
import { models } from '../../support/models.ts'

const fileOf = (name: string) =>
  new Uint8Array(
    readFileSync(new URL(`../../golden/batch-norm-${name}.safetensors`, import.meta.url)),
  )
const makeModel = () =>
  new Sequential(new Linear(6, 8), new BatchNorm1d(8), new ReLU(), new Linear(8, 3)).eval()
const single = (tensor: GoldenTensor) => Float32Array.from(valuesOf(tensor))

test.each(golden.files)('a model that torch wrote in $name', async ({ name, state, logits }) => {
  const model = makeModel()
  expect(await loadModel(model, fileOf(name))).toEqual({ missingKeys: [], unexpectedKeys: [] })
  const loaded = await model.stateDict()
  expect(loaded['1.num_batches_tracked'].data).toEqual(Int32Array.of(golden.batches))
  for (const [key, tensor] of Object.entries(state as Record<string, GoldenTensor>))
    expect(loaded[key]).toEqual({ shape: tensor.shape, data: single(tensor) })
  expect(Object.keys(loaded)).toHaveLength(Object.keys(state).length + 1)

  const program = await compile(
    ({ x }) => ({ logits: model.forward(x) }),
    { x: tensorType(golden.x.shape) },
    { device: 'reference' },
  )
  const wanted = valuesOf(logits as GoldenTensor)
  const got = (await program.run({ x: single(golden.x as GoldenTensor) })).logits
  expect(largestDistance(got, wanted)).toBeLessThanOrEqual(allowedDistance(logits.distance, wanted))
  program.destroy()
})

test('saveModel writes what torch writes', async () => {
  const model = makeModel()
  await loadModel(model, fileOf('f32'))
  const torch = readSafetensors(fileOf('f32'))
  const ours = readSafetensors(await saveModel(model))
  expect(Object.fromEntries(ours.tensors)).toEqual(Object.fromEntries(torch.tensors))
  expect(ours.metadata).toEqual({ format: 'pt' })
  const named = readSafetensors(await saveModel(model, { metadata: { run: 'seven' } }))
  expect(named.metadata).toEqual({ run: 'seven' })
})

test('a shared table is written once and comes back in both places', async () => {
  const make = () => models.gpt({ vocabSize: 5, blockSize: 4, layers: 1, heads: 1, width: 2 })
  const model = make()
  const { tensors, metadata } = readSafetensors(await saveModel(model))
  expect(metadata).toEqual({ format: 'pt', 'transformer.wte.weight': 'lm_head.weight' })
  expect(tensors.has('lm_head.weight')).toBe(true)
  expect(tensors.has('transformer.wte.weight')).toBe(false)
  const copy = make()
  expect((await loadModel(copy, await saveModel(model))).missingKeys).toEqual([])
  expect(await copy.stateDict()).toEqual(await model.stateDict())
})

test.each(['F16', 'BF16'] as const)('%s: bits mean what torch makes of them', async (dtype) => {
  const { bits, values } = golden.halves[dtype]
  const wanted = values.map((text) => Number(text.replace('inf', 'Infinity').replace('nan', 'NaN')))
  const model = new Linear(bits.length, 1, { bias: false })
  const shape = [1, bits.length]
  await loadModel(
    model,
    writeSafetensors([['weight', { dtype, shape, data: Uint16Array.from(bits) }]]),
  )
  expect((await model.stateDict())['weight'].data).toEqual(Float32Array.from(wanted))
})

test('every other type of numbers is converted', async () => {
  const model = new Linear(2, 1, { bias: false })
  const shape = [1, 2]
  for (const [tensor, wanted] of [
    [{ dtype: 'F64', shape, data: Float64Array.of(0.1, -1e-3) }, [0.1, -1e-3]],
    [{ dtype: 'I64', shape, data: BigInt64Array.of(2n ** 40n, -3n) }, [2 ** 40, -3]],
    [{ dtype: 'U64', shape, data: BigUint64Array.of(2n ** 63n, 3n) }, [2 ** 63, 3]],
    [{ dtype: 'U16', shape, data: Uint16Array.of(65535, 1) }, [65535, 1]],
    [{ dtype: 'I8', shape, data: Int8Array.of(-128, 1) }, [-128, 1]],
    [{ dtype: 'BOOL', shape, data: Uint8Array.of(0, 1) }, [0, 1]],
  ] as const) {
    await loadModel(model, writeSafetensors([['weight', tensor]]))
    expect((await model.stateDict())['weight'].data).toEqual(Float32Array.from(wanted))
  }
})

test('strict and not; other files and numbers are refused by name', async () => {
  const tensors = readSafetensors(fileOf('f32')).tensors
  const bias = tensors.get('0.bias')!
  tensors.delete('0.bias')
  tensors.set('extra', bias)
  const file = writeSafetensors(tensors)
  const model = makeModel()
  const before = (await model.stateDict())['0.bias']
  await expect(loadModel(model, file)).rejects.toThrow(/missing \[0\.bias\] and unknown \[extra\]/)
  expect(await loadModel(model, file, { strict: false })).toEqual({
    missingKeys: ['0.bias'],
    unexpectedKeys: ['extra'],
  })
  expect((await model.stateDict())['0.bias']).toEqual(before)
  expect((await model.stateDict())['1.num_batches_tracked'].data).toEqual(Int32Array.of(4321))

  tensors.set('1.num_batches_tracked', {
    dtype: 'I64',
    shape: [],
    data: BigInt64Array.of(2n ** 31n),
  })
  await expect(loadModel(model, writeSafetensors(tensors), { strict: false })).rejects.toThrow(
    'loadModel: "1.num_batches_tracked": expected whole numbers of 32 bits, got 2147483648.',
  )
  tensors.set('0.bias', {
    dtype: 'F64',
    shape: bias.shape,
    data: new Float64Array(bias.data.length).fill(1e300),
  })
  await expect(loadModel(model, writeSafetensors(tensors), { strict: false })).rejects.toThrow(
    'loadModel: "0.bias": expected numbers that float32 holds, got 1e+300.',
  )
  await expect(
    loadModel(model, file.subarray(0, 99), { where: 'cat.safetensors' }),
  ).rejects.toThrow(/^cat.safetensors: expected/)
})

const torchFileOf = (name: string) =>
  new Uint8Array(readFileSync(new URL(`../../golden/torch-files/${name}`, import.meta.url)))

test("loadModel takes a .pth with torchvision's keys from an address", async () => {
  const { resnet18: torch } = JSON.parse(
    readFileSync(new URL('../../golden/torch-files.json', import.meta.url), 'utf8'),
  )
  vi.stubGlobal('fetch', async (address: string) => {
    expect(address).toBe('https://example.org/resnet18.pth')
    return new Response(torchFileOf('resnet18.pth'))
  })
  const model = resnet18({ width: 1, numClasses: 3 }).eval()
  try {
    const result = await loadModel(model, 'https://example.org/resnet18.pth')
    expect(result).toEqual({ missingKeys: [], unexpectedKeys: [] })
  } finally {
    vi.unstubAllGlobals()
  }
  const program = await compile(
    ({ x }) => ({ logits: model.forward(x) }),
    { x: tensorType(torch.shape) },
    { device: 'reference' },
  )
  const x = formulaUniform(torch.seed, 2 * 3 * 32 * 32, 1)
  const wanted = valuesOf(torch.logits)
  const got = (await program.run({ x })).logits
  expect(largestDistance(got, wanted)).toBeLessThanOrEqual(
    allowedDistance(torch.logits.distance, wanted),
  )
  program.destroy()
})

test('saveModel writes a .pt that holds the same, and a tied tensor once', async () => {
  const model = makeModel()
  await loadModel(model, fileOf('f32'))
  const file = await saveModel(model, { format: 'pt' })
  expect(await readTorch(file)).toEqual(Object.fromEntries(readSafetensors(fileOf('f32')).tensors))
  const copy = makeModel()
  await loadModel(copy, new File([file], 'copy.pt'))
  expect(await copy.stateDict()).toEqual(await model.stateDict())

  const tied = models.gpt({ vocabSize: 5, blockSize: 4, layers: 1, heads: 1, width: 2 })
  const read = (await readTorch(await saveModel(tied, { format: 'pt' }))) as Record<
    string,
    { data: unknown }
  >
  expect(read['lm_head.weight']!.data).toBe(read['transformer.wte.weight']!.data)

  await expect(saveModel(model, { format: 'pt', metadata: { a: 'b' } })).rejects.toThrow(
    "saveModel: metadata must be left out with the format 'pt'",
  )
  await expect(saveModel(model, { format: 'onnx' as never })).rejects.toThrow(
    "saveModel: format must be one of 'safetensors', 'pt', got \"onnx\".",
  )
})

test('the state dict of a checkpoint is found, whatever else is in the file', async () => {
  const torch = (await readTorch(torchFileOf('checkpoint.pth'))) as Record<string, never>
  const wanted = torch['state_dict']!['weight']!['data']
  const load = async (file: Uint8Array<ArrayBuffer>) => {
    const model = new Linear(2, 1)
    await loadModel(model, file, { where: 'a.pth' })
    return (await model.stateDict())['weight'].data
  }
  for (const name of ['checkpoint.pth', 'checkpoint-with-args.pth'])
    expect(await load(torchFileOf(name))).toEqual(wanted)
  const state = torch['state_dict'] as TorchValue
  const other = { weight: torch['best_acc1'] } as TorchValue
  for (const whole of [
    { model: state },
    { model_state_dict: state, optimizer: torch['optimizer'] },
    { generator: state, epoch: 3 },
    { generator: state, loss: torch['best_acc1'] },
  ] as TorchValue[])
    expect(await load(writeTorch(whole))).toEqual(wanted)

  for (const [whole, message] of [
    [
      { generator: state, ema: other },
      /^a\.pth: expected one state dict.*keys generator, ema\. Save/,
    ],
    [{ model: state, ema: other }, /expected one state dict.*keys model, ema/],
    [{ model: state, state_dict: other }, /expected one state dict.*keys model, state_dict/],
    [{ epoch: 3 }, /^a\.pth: expected a state dict.*got the keys epoch\..*readTorch/],
    [[1], /^a\.pth: expected a state dict.*got another value/],
  ] as [TorchValue, RegExp][])
    await expect(load(writeTorch(whole))).rejects.toThrow(message)
  await expect(load(new TextEncoder().encode('Not Found'))).rejects.toThrow(
    /^a\.pth: expected a file of safetensors or torch\.save, got other bytes/,
  )
  await expect(load(torchFileOf('whole-model.pt'))).rejects.toThrow(
    /^a\.pth: holds an object of class __main__\.Odd\./,
  )
})

test("an optimizer continues from PyTorch's checkpoint", async () => {
  const torch = (await readTorch(torchFileOf('checkpoint.pth'))) as unknown as {
    optimizer: OptimizerStateDict
  }
  const optimizer = new AdamW(new Linear(2, 1).parameters(), { lr: 1 })
  optimizer.loadStateDict(torch.optimizer)
  const { state, param_groups: groups } = await optimizer.stateDict()
  const { exp_avg: average } = torch.optimizer.state[0] as Record<string, { data: unknown }>
  expect(state[0]).toMatchObject({ step: 1, exp_avg: { shape: [1, 2], data: average!.data } })
  expect(groups[0]).toMatchObject({ lr: 0.01, betas: [0.9, 0.999] })
})
