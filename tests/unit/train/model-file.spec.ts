import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { readSafetensors, writeSafetensors } from '../../../src/data/safetensors.ts'
import { loadModel, saveModel } from '../../../src/ddp/checkpoint/model-file.ts'
import { compile } from '../../../src/graph/compile/compile.ts'
import { BatchNorm1d } from '../../../src/nn/batch-norm.ts'
import { Linear, ReLU } from '../../../src/nn/layers.ts'
import { models } from '../../../src/nn/models.ts'
import { Sequential } from '../../../src/nn/module.ts'
import { tensorType } from '../../../src/util/shape.ts'
import golden from '../../golden/batch-norm.json'
import {
  allowedDistance,
  type GoldenTensor,
  largestDistance,
  valuesOf,
} from '../../support/golden.ts'

const fileOf = (name: string) =>
  new Uint8Array(
    readFileSync(new URL(`../../golden/batch-norm-${name}.safetensors`, import.meta.url)),
  )
const makeModel = () =>
  new Sequential(new Linear(6, 8), new BatchNorm1d(8), new ReLU(), new Linear(8, 3)).eval()
const single = (tensor: GoldenTensor) => Float32Array.from(valuesOf(tensor))

test.each(golden.files)('a model that torch wrote in $name', async ({ name, state, logits }) => {
  const model = makeModel()
  expect(loadModel(model, fileOf(name))).toEqual({ missingKeys: [], unexpectedKeys: [] })
  const loaded = await model.stateDict()
  expect(loaded['1.num_batches_tracked'].data).toEqual(Int32Array.of(golden.batches))
  for (const [key, tensor] of Object.entries(state as Record<string, GoldenTensor>))
    expect(loaded[key]).toEqual({ shape: tensor.shape, data: single(tensor) })
  expect(Object.keys(loaded)).toHaveLength(Object.keys(state).length + 1)

  const program = await compile(
    ({ x }) => ({ logits: model.forward(x) }),
    { x: tensorType(golden.x.shape) },
    { device: 'cpu' },
  )
  const wanted = valuesOf(logits as GoldenTensor)
  const got = (await program.run({ x: single(golden.x as GoldenTensor) })).logits
  expect(largestDistance(got, wanted)).toBeLessThanOrEqual(allowedDistance(logits.distance, wanted))
  program.destroy()
})

test('saveModel writes what torch writes', async () => {
  const model = makeModel()
  loadModel(model, fileOf('f32'))
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
  expect(loadModel(copy, await saveModel(model)).missingKeys).toEqual([])
  expect(await copy.stateDict()).toEqual(await model.stateDict())
})

test.each(['F16', 'BF16'] as const)('%s: bits mean what torch makes of them', async (dtype) => {
  const { bits, values } = golden.halves[dtype]
  const wanted = values.map((text) => Number(text.replace('inf', 'Infinity').replace('nan', 'NaN')))
  const model = new Linear(bits.length, 1, { bias: false })
  const shape = [1, bits.length]
  loadModel(model, writeSafetensors([['weight', { dtype, shape, data: Uint16Array.from(bits) }]]))
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
    loadModel(model, writeSafetensors([['weight', tensor]]))
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
  expect(() => loadModel(model, file)).toThrow(/missing \[0\.bias\] and unknown \[extra\]/)
  expect(loadModel(model, file, { strict: false })).toEqual({
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
  expect(() => loadModel(model, writeSafetensors(tensors), { strict: false })).toThrow(
    'loadStateDict: "1.num_batches_tracked": expected whole numbers of 32 bits, got 2147483648.',
  )
  expect(() => loadModel(model, file.subarray(0, 99), { where: 'cat.safetensors' })).toThrow(
    /^cat.safetensors: expected/,
  )
})
