import { describe, expect, test } from 'vitest'
import { bytePairTokenizer } from '../../../src/data/byte-pairs.ts'
import { defaultCollate } from '../../../src/data/collate.ts'
import { readCsv } from '../../../src/data/csv.ts'
import { randomSplit, Subset, TensorDataset } from '../../../src/data/datasets.ts'
import { download } from '../../../src/data/download.ts'
import type { FolderFile } from '../../../src/data/folder.ts'
import { IdxDataset, idxDataset } from '../../../src/data/idx-dataset.ts'
import {
  centerCrop,
  compose,
  normalize,
  randomHorizontalFlip,
  randomResizedCrop,
  resize,
  toTensor,
} from '../../../src/data/image/transforms.ts'
import { ImageFolder } from '../../../src/data/image-folder.ts'
import { DataLoader } from '../../../src/data/loader/data-loader.ts'
import { serveSamples } from '../../../src/data/loader/serve-samples.ts'
import { DistributedSampler } from '../../../src/data/sampler.ts'
import { hostTensor } from '../../../src/data/samples.ts'
import { CharTokenizer, TokenDataset } from '../../../src/data/text.ts'
import { TabringError } from '../../../src/util/errors.ts'
import { numberFormat } from '../../../src/util/number-format.ts'
import { permutation, RandomStream, uniform } from '../../../src/util/random.ts'

// Options that are misspelt or out of range: PyTorch refuses them, and JavaScript would pass them over.

const four = new TensorDataset({ x: { shape: [4, 2], data: new Float32Array(8) } })
const files: FolderFile[] = [{ path: 'cat/1.png', source: new Blob([]) }]
const images = { shape: [2, 3, 3], data: new Uint8Array(18) }
const labels = { shape: [2], data: new Uint8Array(2) }
const tokens = new Int32Array(9)
const random = new RandomStream(0, 0)

/** By call: what the error says. The calls are as JavaScript lets people write them. */
const refusals: Record<string, [call: () => unknown, message: RegExp]> = {
  'DataLoader({ prefetchFactor }) without workers': [
    () => new DataLoader(four, { prefetchFactor: 4 }),
    /DataLoader: prefetchFactor must be left out without numWorkers, got 4/,
  ],
  'ImageFolder({ transfrom })': [
    () => new ImageFolder(files, { transfrom: toTensor() } as never),
    /ImageFolder: expected options among transform, got "transfrom"/,
  ],
  'ImageFolder({ transform: [] })': [
    () => new ImageFolder(files, { transform: [toTensor()] as never }),
    /ImageFolder: expected a transform, got a plain array of 1/,
  ],
  'ImageFolder(transform)': [
    () => new ImageFolder(files, toTensor() as never),
    /ImageFolder: expected an object with options/,
  ],
  'IdxDataset({ transfrom })': [
    () => new IdxDataset(images, labels, { transfrom: toTensor() } as never),
    /IdxDataset: expected options among transform/,
  ],
  'idxDataset({ transfrom }), before anything is read': [
    () => idxDataset('nowhere://1', 'nowhere://2', { transfrom: toTensor() } as never),
    /idxDataset: expected options among transform/,
  ],
  'randomResizedCrop({ scal })': [
    () => randomResizedCrop(8, { scal: [0.5, 1] } as never),
    /randomResizedCrop: expected options among scale, ratio, got "scal"/,
  ],
  'randomResizedCrop({ scale: [1, -1] })': [
    () => randomResizedCrop(8, { scale: [1, -1] }),
    /randomResizedCrop: scale must be two numbers above 0, .*\[1,-1\]/,
  ],
  'randomResizedCrop({ ratio: 2 })': [
    () => randomResizedCrop(8, { ratio: 2 as never }),
    /randomResizedCrop: ratio must be two numbers above 0, .*got 2/,
  ],
  'randomResizedCrop()': [
    () => randomResizedCrop(undefined as never),
    /randomResizedCrop: expected a size of one or two whole numbers/,
  ],
  'resize([8])': [() => resize([8] as never), /resize: expected a size .*got \[8\]/],
  'centerCrop(0)': [() => centerCrop(0), /centerCrop: expected a size .*got 0/],
  'randomHorizontalFlip(7)': [
    () => randomHorizontalFlip(7),
    /randomHorizontalFlip: p must be a number from 0 to 1, got 7/,
  ],
  "randomHorizontalFlip('0.5')": [
    () => randomHorizontalFlip('0.5' as never),
    /randomHorizontalFlip: p must be a number from 0 to 1/,
  ],
  'normalize(0.5, 0.25)': [
    () => normalize(0.5 as never, 0.25 as never),
    /normalize: mean must be a list of finite numbers, and std of as many above 0/,
  ],
  'normalize([NaN], [1])': [() => normalize([Number.NaN], [1]), /normalize: mean must be a list/],
  'compose(toTensor())': [
    () => compose(toTensor() as never),
    /compose: expected an array of transforms, got a function/,
  ],
  'randomSplit({ sed })': [
    () => randomSplit(four, [2, 2], { sed: 1 } as never),
    /randomSplit: expected options among seed, got "sed"/,
  ],
  'randomSplit({ seed: 0.5 })': [
    () => randomSplit(four, [2, 2], { seed: 0.5 }),
    /seed must be an integer/,
  ],
  'randomSplit([1, 1])': [() => randomSplit(four, [1, 1]), /randomSplit: expected lengths/],
  'TokenDataset({ strid })': [
    () => new TokenDataset(tokens, { blockSize: 4, strid: 1 } as never),
    /TokenDataset: expected options among blockSize, stride, got "strid"/,
  ],
  'TokenDataset({ blockSize: 0 })': [
    () => new TokenDataset(tokens, { blockSize: 0 }),
    /TokenDataset: blockSize and stride must be whole numbers/,
  ],
  'TokenDataset(4)': [
    () => new TokenDataset(tokens, 4 as never),
    /TokenDataset: expected an object with options/,
  ],
  'defaultCollate({ dtype })': [
    () => defaultCollate([{ y: 1 }], { dtype: { y: 'f32' } } as never),
    /defaultCollate: expected options among dtypes, got "dtype"/,
  ],
  'serveSamples({ colate })': [
    () => serveSamples(undefined, { colate: () => 0 } as never),
    /serveSamples: expected options among collateFn, got "colate"/,
  ],
  'readCsv({ delimeter })': [
    () => readCsv('a;b', 'a.csv', { delimeter: ';' } as never),
    /readCsv: expected options among delimiter, header/,
  ],
  'download({ retrys })': [
    () => download('https://data.example/x', { retrys: 1 } as never),
    /download: expected options among /,
  ],
  'bytePairTokenizer(o200k_base)': [
    () => bytePairTokenizer('o200k_base' as never),
    /bytePairTokenizer: encoding must be one of 'gpt2', 'r50k_base', 'cl100k_base', got "o200k_base"/,
  ],
  'encode({ allowSpecial })': [
    async () => (await bytePairTokenizer()).encode('a', { allowSpecial: 'all' } as never),
    /bytePairTokenizer: encode: expected options among allowedSpecial/,
  ],
  'CharTokenizer([a, a])': [
    () => new CharTokenizer(['a', 'a']),
    /CharTokenizer: expected distinct/,
  ],
  'DataLoader({ batchSize: 0 })': [
    () => new DataLoader(four, { batchSize: 0 }),
    /DataLoader: batchSize must be a whole number of at least 1, got 0/,
  ],
  'DataLoader({ batchsize })': [
    () => new DataLoader(four, { batchsize: 2 } as never),
    /DataLoader: expected options among /,
  ],
  'DataLoader({ seed: 0.5 })': [
    () => new DataLoader(four, { seed: 0.5 }),
    /DataLoader: seed must be a whole number of at least 0/,
  ],
  "DataLoader({ shuffle: 'no' })": [
    () => new DataLoader(four, { shuffle: 'no' as never }),
    /DataLoader: shuffle must be true or false/,
  ],
  'DataLoader with shuffle and sampler': [
    () => new DataLoader(four, { shuffle: true, sampler: [0, 1] as never }),
    /DataLoader: shuffle and a sampler cannot be combined/,
  ],
  'DataLoader({ pinMemory: true })': [
    () => new DataLoader(four, { pinMemory: true as never }),
    /pinMemory must be .*got true. Write pinMemory: new StagedUploads\(\(await defaultRuntime\(\)\)\.gpu\)/,
  ],
  'a state of another seed': [
    () => new DataLoader(four, { seed: 1 }).loadStateDict(new DataLoader(four).stateDict()),
    /DataLoader: the state's seed must be 1, got 0/,
  ],
  'DistributedSampler with a rank too many': [
    () => new DistributedSampler(four, { numReplicas: 2, rank: 2 }),
    /DistributedSampler: rank must be an integer from 0 to 1, got 2/,
  ],
  'Subset([4])': [() => new Subset(four, [4]), /Subset: expected an index from 0 to 3, got 4/],
  'an index beyond the data set': [() => four.get(4), /TensorDataset: expected an index/],
  'permutation(-1)': [() => permutation(-1, 0, 2), /random: seed must be an integer/],
  'uniform of a stream that is none': [() => uniform(0, -1, 2), /random: stream must be/],
  "numberFormat('6d')": [() => numberFormat('6d'), /numberFormat: spec must be a format/],
}

describe('config.invalid', () => {
  test.each(Object.entries(refusals))('%s', async (_name, [call, message]) => {
    const thrown = await (async () => call())().then(
      () => 'nothing was thrown',
      (error: unknown) => error,
    )
    expect(thrown).toMatchObject({
      code: 'config.invalid',
      message: expect.stringMatching(message),
    })
    expect(thrown).toBeInstanceOf(TabringError)
  })
})

const mismatches: Record<string, () => unknown> = {
  'hostTensor of another shape': () => hostTensor([3], new Float32Array(2)),
  'tensors of different lengths': () =>
    new TensorDataset({
      x: hostTensor([2], new Float32Array(2)),
      y: hostTensor([3], new Float32Array(3)),
    }),
  'normalize of other channels': () =>
    normalize([0.5], [0.5])(hostTensor([3, 1, 1], new Float32Array(3)), random),
}

test.each(Object.entries(mismatches))('shape.mismatch: %s', (_name, call) => {
  expect(call).toThrow(expect.objectContaining({ name: 'ShapeError', code: 'shape.mismatch' }))
})

test('torch.utils.data without pinned memory is the default', () => {
  expect(new DataLoader(four, { pinMemory: false }).length).toBe(4)
})

test('gpt2 is the name of r50k_base, as in tiktoken', async () => {
  const tokenizer = await bytePairTokenizer('gpt2')
  expect([...tokenizer.encode('hello world')]).toEqual([31373, 995])
  expect(tokenizer.endOfText).toBe(50256)
})
