import { expect, test } from 'vitest'
import { writeZip } from '../../../src/data/zip.ts'
import {
  loadCheckpoint,
  loadModel,
  readSafetensors,
  readTorch,
  saveCheckpoint,
} from '../../../src/entries/checkpoint.ts'
import {
  ConcatDataset,
  compose,
  DataLoader,
  type Dataset,
  download,
  hostTensor,
  IdxDataset,
  normalize,
  readIdx,
  readNpy,
  resize,
  type Sampler,
  TensorDataset,
  TokenDataset,
  toTensor,
} from '../../../src/entries/data.ts'
import * as distributed from '../../../src/entries/distributed.ts'
import { spawn } from '../../../src/entries/distributed.ts'
import { load, save } from '../../../src/entries/index.ts'
import { AverageMeter, evaluate, ProgressMeter } from '../../../src/entries/metrics.ts'
import { Linear, Parameter } from '../../../src/entries/nn.ts'
import { detached } from '../../support/api-arguments.ts'

// What was taken without a word, or ended in an error of the platform.

const key = { seed: 0, epoch: 0, index: 0 }

const images = () => ({ shape: [2, 2, 2], data: Uint8Array.of(0, 51, 255, 255, 0, 0, 0, 0) })
const labels = () => ({ shape: [2], data: Uint8Array.of(3, 4) })

test('a local file as an address is refused with how to pass its bytes, where these may be passed', async () => {
  const bytes = 'or the bytes of a local file: await readFile(path) of node:fs/promises.'
  const model = new Linear(1, 1)
  for (const address of ['./sd.pt', new URL('file:///x/sd.pt')])
    await expect(loadModel(model, address)).rejects.toThrow(bytes)
  await expect(download('file:///x.bin')).rejects.toThrow(
    /^download: url must be an address that can be fetched, got "file:\/\/\/x.bin"\. Pass a URL such as https:\/\/host\/file\.$/,
  )
})

test('a sample without its key names the method that was called', async () => {
  const get = () => new IdxDataset(images(), labels()).get(0, undefined as never)
  expect(get).toThrow(/^IdxDataset\.get: key must be an object with values by name, got undefined/)
})

test('an archive of NumPy as a model says how its arrays load', async () => {
  const archive = writeZip([['weight.npy', Uint8Array.of(1)]])
  await expect(loadModel(new Linear(1, 1), archive)).rejects.toThrow(
    'Read an .npz with readNpz, and pass its arrays to model.loadStateDict.',
  )
})

test('normalize of images that are bytes is that of what toTensor makes of them', () => {
  const mnist = new IdxDataset(images(), labels(), { transform: normalize([0.5], [0.25]) })
  const long = new IdxDataset(images(), labels(), {
    transform: compose([toTensor(), normalize([0.5], [0.25])]),
  })
  expect(mnist.get(0, key)).toEqual(long.get(0, key))
  expect(mnist.get(0, key).x).toEqual({
    shape: [1, 2, 2],
    data: Float32Array.of(-2, -1.2, 2, 2),
  })
})

test('a transform of images names its place when it is given a tensor', () => {
  const transform = compose<never>([toTensor(), resize(4)])
  const wrong = new IdxDataset(images(), labels(), { transform: transform as never })
  expect(() => wrong.get(0, key)).toThrow(
    'resize: expected an image of bytes, got a tensor [1, 2, 2] of Float32Array of 4. Put resize() before toTensor()',
  )
})

const get = () => ({ x: 1 })

test.each([undefined, -1, 0.5, Number.NaN, Number.POSITIVE_INFINITY, '3'])(
  'a data set of length %s is refused where it is passed',
  async (length) => {
    const dataset = { length, get } as Dataset<{ x: number }>
    const reason = "the data set's length must be a whole number"
    expect(() => new DataLoader(dataset)).toThrow(reason)
    expect(() => new ConcatDataset([dataset])).toThrow(reason)
    await expect(evaluate(new Linear(1, 1), dataset as never)).rejects.toThrow(reason)
  },
)

test('a loader refuses what is no data set, no sampler and no function', () => {
  const loader = (dataset: unknown, options = {}) => new DataLoader(dataset as never, options)
  expect(() => loader([1, 2])).toThrow('DataLoader: dataset must be a data set')
  const four = { length: 4, get }
  for (const sampler of [4, { length: 2 }, new Set([1]), {}])
    expect(() => loader(four, { sampler })).toThrow('DataLoader: sampler must be indices')
  expect(() => loader(four, { collateFn: 'stack' })).toThrow('DataLoader: collateFn must be')
  expect(() => loader(four, { numWorkers: 1, worker: {} })).toThrow('DataLoader: worker must be')
})

test.each([
  [[0, Number.NaN], 'DataLoader: the sampler: expected an index from 0 to 3, got NaN'],
  [[0, -1], 'DataLoader: the sampler: expected an index from 0 to 3, got -1'],
  [[0, 4], 'DataLoader: the sampler: expected an index from 0 to 3, got 4'],
  [['0', 1], 'DataLoader: the sampler: expected an index from 0 to 3, got "0"'],
])('a sampler that gives %s is refused', async (indices, reason) => {
  const loader = new DataLoader({ length: 4, get }, { sampler: indices as number[] })
  await expect(loader[Symbol.asyncIterator]().next()).rejects.toThrow(reason)
})

test('a sampler whose length is not the number of its indices is refused', async () => {
  const sampler: Sampler = { length: 5, [Symbol.iterator]: () => [0, 1].values() }
  const loader = new DataLoader({ length: 4, get }, { sampler })
  await expect(loader[Symbol.asyncIterator]().next()).rejects.toThrow(
    "DataLoader: the sampler's length is 5, but it has 2 indices",
  )
})

test('a sampler whose indices never end is refused', async () => {
  const sampler: Sampler = {
    length: 4,
    *[Symbol.iterator]() {
      for (;;) yield 1
    },
  }
  const loader = new DataLoader({ length: 4, get }, { sampler })
  await expect(loader[Symbol.asyncIterator]().next()).rejects.toThrow(
    "DataLoader: the sampler's length is 4, but it has 1004 indices",
  )
})

const samplesOf = async (get: Dataset['get']) => {
  const loader = new DataLoader({ length: 3, get }, { batchSize: 3 })
  for await (const batch of loader) return batch
}

test.each([
  ['Float32Array of 2', Float32Array.of(1, 2)],
  ['a Map', new Map([['x', 1]])],
  ['a tensor [2]', hostTensor([2], Float32Array.of(1, 2))],
  ['[1,2]', [1, 2]],
])('a sample that is %s is refused', async (what, sample) => {
  const batch = samplesOf(() => sample as never)
  await expect(batch).rejects.toThrow(
    `the batch of samples 0, 1, 2: defaultCollate: samples[0] must be an object with values by name, as { x, y }, got ${what}`,
  )
})

test('a shape below 0 in a sample is refused', async () => {
  const x = { shape: [-1, -2], data: Float32Array.of(1, 2) }
  await expect(samplesOf(() => ({ x }))).rejects.toThrow(
    'collate: field "x": shape must be a list of whole numbers of at least 0, got [-1,-2]',
  )
})

test('a data set that fills one array again and again gives batches of what was in it', async () => {
  const x = new Float32Array(2)
  const sample = { x, y: 0, tensor: hostTensor([1, 2], x) }
  const batch = await samplesOf(async (i) => Object.assign(sample, { y: i, x: x.fill(i) }))
  const data = Float32Array.of(0, 0, 1, 1, 2, 2)
  expect(batch).toEqual({
    x: { shape: [3, 2], data },
    y: { shape: [3], data: Int32Array.of(0, 1, 2) },
    tensor: { shape: [3, 1, 2], data },
  })
})

test('a loop over a loader without await says how to write it', () => {
  const loader = new DataLoader({ length: 4, get }) as unknown as Iterable<never>
  expect(() => [...loader]).toThrow('DataLoader: batches come one by one as promises. Write for')
})

test.each<[string, (response: never) => unknown]>([
  ['loadModel', (response) => loadModel(new Linear(1, 1), response)],
  ['readNpy', (response) => readNpy(response, 'file')],
  ['readTorch', (response) => readTorch(response, 'file')],
  ['readIdx', (response) => readIdx(response, 'file')],
  ['readSafetensors', async (response) => readSafetensors(response, 'file')],
  ['load', async (response) => load(response, 'file')],
])('%s of a Response says how to get its bytes', async (_, read) => {
  await expect(read(new Response('abc') as never)).rejects.toThrow(
    'got a Response: await its arrayBuffer()',
  )
})

test.each(['text', new Uint8Array(1), {}])('a folder that reads %o is refused', async (found) => {
  const [read, nothing] = [async () => found, async () => undefined]
  const folder = { read, write: nothing, remove: nothing }
  const reason = 'gives must be a Blob, or undefined, got '
  for (const use of [
    saveCheckpoint({}, { folder } as never),
    loadCheckpoint({}, { folder } as never),
  ])
    await expect(use).rejects.toThrow(`folder: what read("checkpoints.json") ${reason}`)
  const store = { folder: async () => folder }
  const getting = download('https://a.example/', { store } as never)
  await expect(getting).rejects.toThrow(`folder: what read("facts.json") ${reason}`)
  await expect(download('https://a.example/', { store: folder } as never)).rejects.toThrow(
    'download: store must be a store such as opfsFileStore()',
  )
})

test('sums that are no tensors are refused by what they are', async () => {
  const dataset = new TensorDataset({ x: hostTensor([1, 1], Float32Array.of(1)) })
  const refused = (batchSums: unknown) =>
    expect(
      evaluate(new Linear(1, 1), dataset as never, { batchSums, device: 'reference' } as never),
    ).rejects
  await refused(() => ({ loss: 3 })).toThrow(
    'evaluate: "loss" must be a sum, an f32 tensor of one element, got the number 3',
  )
  await refused(() => 3).toThrow('evaluate: batchSums must return sums by name, got the number 3')
  await refused(3).toThrow('evaluate: batchSums must be a function, got 3')
})

test('meters refuse a kind of summary that they do not have, and batches that cannot be counted', () => {
  expect(() => new AverageMeter('loss', ':f', 'mean' as never)).toThrow(
    "AverageMeter: summaryType must be one of 'none', 'average', 'sum', 'count'",
  )
  for (const count of [-1, Number.NaN, 0.5])
    expect(() => new ProgressMeter(count, [])).toThrow('numBatches must be a whole number')
})

test('spawn says what a function has to return', async () => {
  for (const made of [1, undefined, {}, Promise.resolve()])
    await expect(spawn((() => made) as never)).rejects.toThrow(
      'spawn: expected a function that returns a new Worker, got one that returns',
    )
  await expect(spawn(() => 1 as never, { args: 3 as never })).rejects.toThrow('spawn: args must be')
})

test('spawn says where there are no web workers, as in Node', async () => {
  await expect(spawn(() => new Worker('rank.ts'))).rejects.toThrow(
    'spawn: this runtime has no web workers',
  )
})

const transferred = 'whose buffer was transferred away'

test('an array that was transferred away since is named', async () => {
  const x = Float32Array.of(1, 2)
  const tensors = new TensorDataset({ x: hostTensor([2, 1], x) })
  const numbers = Int32Array.of(1, 2, 3)
  const tokens = new TokenDataset(numbers, { blockSize: 1 })
  const bytes = images()
  const idx = new IdxDataset(bytes, labels())
  structuredClone(0, { transfer: [x.buffer, numbers.buffer, bytes.data.buffer] })
  expect(() => tensors.get(0)).toThrow(transferred)
  expect(() => tokens.get(0)).toThrow(transferred)
  expect(() => idx.get(0, key)).toThrow(transferred)
  expect(() => save({ x: detached() as never })).toThrow(transferred)
  expect(() => hostTensor([2], detached())).toThrow(transferred)
  expect(() => new Parameter([2], detached())).toThrow(transferred)
})

test('a collective refuses an array that was transferred away', async () => {
  await distributed.initProcessGroup({ rank: 0, worldSize: 1, links: new Map() })
  await expect(distributed.allReduce(detached())).rejects.toThrow(transferred)
  await distributed.destroyProcessGroup()
})
