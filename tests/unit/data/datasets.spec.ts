import { describe, expect, test } from 'vitest'
import { ConcatDataset, randomSplit, Subset, TensorDataset } from '../../../src/data/datasets.ts'
import type { HostTensor } from '../../../src/data/descriptions.ts'
import { IdxDataset } from '../../../src/data/idx-dataset.ts'
import { DataLoader } from '../../../src/data/loader/data-loader.ts'
import { restoreDataset } from '../../../src/data/loader/restore.ts'
import { DistributedSampler } from '../../../src/data/sampler.ts'
import { randomStreamOf, type Sample } from '../../../src/data/samples.ts'
import { CharTokenizer, TokenDataset } from '../../../src/data/text.ts'
import { Parameter } from '../../../src/graph/trace/parameter.ts'

const key = (index: number) => ({ seed: 0, epoch: 0, index })
const numbered = (count: number) =>
  new TensorDataset({
    x: { shape: [count, 2], data: Float32Array.from({ length: 2 * count }, (_, i) => i) },
    y: { shape: [count], data: Int32Array.from({ length: count }, (_, i) => i) },
  })
const labelsOf = async (loader: DataLoader) => {
  const labels: number[][] = []
  for await (const batch of loader) labels.push([...(batch.y as HostTensor).data])
  return labels
}

describe('data sets', () => {
  test('TensorDataset gives rows', () => {
    expect(numbered(5).get(3)).toEqual({ x: { shape: [2], data: Float32Array.of(6, 7) }, y: 3 })
    expect(() => numbered(5).get(5)).toThrow(/from 0 to 4, got 5/)
    expect(
      () =>
        new TensorDataset({
          x: { shape: [2], data: new Float32Array(2) },
          y: { shape: [3], data: new Int32Array(3) },
        }),
    ).toThrow(/x: 2, y: 3/)
  })

  test.each([
    [[4, 3], 'x.data must have the 12 elements of shape [4, 3], got 8.'],
    [[4, -1], 'x.shape must be a list of whole numbers of at least 0, got [4,-1].'],
    [[3.2, 2.5], 'x.shape must be a list of whole numbers of at least 0, got [3.2,2.5].'],
  ])('TensorDataset and IdxDataset refuse a shape %j of 8 elements', (shape, text) => {
    const x = { shape, data: new Float32Array(8) }
    const labels = { shape: [shape[0]], data: new Uint8Array(4) }
    expect(() => new TensorDataset({ x })).toThrow(`TensorDataset: tensors.${text}`)
    expect(() => new IdxDataset(x, labels)).toThrow(`IdxDataset: ${text.replace('x.', 'images.')}`)
  })

  test('TensorDataset names hostTensor and read when it gets a tensor of the graph', () => {
    const parameter = new Parameter([2], Float32Array.of(1, 2))
    expect(() => new TensorDataset(parameter as never)).toThrow(
      'TensorDataset: tensors must be an object with host tensors by name, got a tensor [2]. Write { x: hostTensor([4, 2], array) }',
    )
    expect(() => new TensorDataset({ x: parameter } as never)).toThrow(
      'TensorDataset: tensors.x must be hostTensor(shape, array), got a tensor [2]. ',
    )
    expect(() => new TensorDataset([1, 4] as never)).toThrow(/host tensors by name, got \[1,4\]/)
  })

  test('ConcatDataset, Subset and their descriptions', () => {
    const all = new ConcatDataset<Sample>([
      numbered(3),
      numbered(0),
      new Subset(numbered(9), [8, 2]),
    ])
    const again = restoreDataset(structuredClone(all.describe()))
    for (const one of [all, again]) {
      const labels = Array.from({ length: one.length }, (_, i) => (one.get(i, key(i)) as Sample).y)
      expect(labels).toEqual([0, 1, 2, 8, 2])
    }
    expect(() => new Subset(numbered(3), [3])).toThrow(/Subset.*got 3/)
  })

  test('randomSplit cuts without overlap, by lengths and by fractions', () => {
    const [a, b] = randomSplit(numbered(10), [7, 3], { seed: 4 })
    expect([...a.indices, ...b.indices].sort((x, y) => x - y)).toEqual([...Array(10).keys()])
    expect([...a.indices]).not.toEqual([0, 1, 2, 3, 4, 5, 6])
    expect(randomSplit(numbered(10), [7, 3], { seed: 4 })[1].indices).toEqual(b.indices)
    // PyTorch's random_split(range(11), [0.5, 0.25, 0.25]) has these lengths.
    expect(randomSplit(numbered(11), [0.5, 0.25, 0.25]).map(({ length }) => length)).toEqual([
      6, 3, 2,
    ])
    expect(() => randomSplit(numbered(10), [5, 4])).toThrow(/add up to 10/)
  })

  test('TokenDataset cuts windows, y one token on', () => {
    const tokenizer = CharTokenizer.of('hello, wörld')
    const tokens = tokenizer.encode('hello, wörld')
    expect(tokenizer.vocabularySize).toBe(10)
    expect(tokenizer.decode(tokens)).toBe('hello, wörld')
    const windows = new TokenDataset(tokens, { blockSize: 4 })
    expect(windows.length).toBe(2)
    expect(tokenizer.decode(windows.get(1).x.data)).toBe('o, w')
    expect(tokenizer.decode(windows.get(1).y.data)).toBe(', wö')
    expect(new TokenDataset(tokens, { blockSize: 4, stride: 1 }).length).toBe(8)
    expect(() => tokenizer.encode('hex')).toThrow(/"x" at character 2/)
    expect(() => new TokenDataset(tokens, { blockSize: 12 })).toThrow(/more than 12 tokens, got 12/)
  })
})

describe('DataLoader without workers', () => {
  test('batches in order; the last is short or dropped', async () => {
    expect(await labelsOf(new DataLoader(numbered(5), { batchSize: 2 }))).toEqual([
      [0, 1],
      [2, 3],
      [4],
    ])
    const dropping = new DataLoader(numbered(5), { batchSize: 2, dropLast: true })
    expect(dropping.length).toBe(2)
    expect(await labelsOf(dropping)).toEqual([
      [0, 1],
      [2, 3],
    ])
    expect(await labelsOf(new DataLoader(numbered(0)))).toEqual([])
  })

  test('shuffles by seed and epoch: each loop is the next epoch', async () => {
    const loader = new DataLoader(numbered(20), { batchSize: 20, shuffle: true, seed: 3 })
    const [[first], [second]] = [await labelsOf(loader), await labelsOf(loader)]
    expect([...first].sort((a, b) => a - b)).toEqual([...Array(20).keys()])
    expect(second).not.toEqual(first)
    loader.setEpoch(0)
    expect((await labelsOf(loader))[0]).toEqual(first)
  })

  test('ranks with a DistributedSampler see disjoint parts, and equal draws as one rank', async () => {
    // A data set whose samples are one random number.
    const drawn = {
      length: 8,
      get: (_: number, sample: Parameters<typeof randomStreamOf>[0]) => ({
        x: { shape: [], data: Float32Array.of(randomStreamOf(sample).unit()) },
        y: sample.index,
      }),
    }
    const collect = async (options: object) => {
      const values = new Map<number, number>()
      const loader = new DataLoader<Sample>(drawn, { batchSize: 2, seed: 5, ...options })
      loader.setEpoch(2)
      for await (const { x, y } of loader)
        (y as HostTensor).data.forEach((index, i) => {
          values.set(index, (x as HostTensor).data[i])
        })
      return values
    }
    const alone = await collect({})
    expect(new Set(alone.values()).size).toBe(8)
    const parts = await Promise.all(
      [0, 1].map((rank) =>
        collect({ sampler: new DistributedSampler(drawn, { numReplicas: 2, rank, seed: 5 }) }),
      ),
    )
    const together = [...parts[0], ...parts[1]].sort(([a], [b]) => a - b)
    expect(together).toEqual([...alone])
  })

  test('an error names its sample and keeps its code', async () => {
    const failing = {
      length: 4,
      get: (index: number) => {
        if (index === 2) throw new Error('no such thing')
        return { y: index }
      },
    }
    await expect(labelsOf(new DataLoader<Sample>(failing, { batchSize: 4 }))).rejects.toMatchObject(
      {
        code: 'data.malformed',
        message: 'DataLoader: sample 2: no such thing',
      },
    )
  })

  test('refuses what it cannot do', async () => {
    expect(() => new DataLoader(numbered(3), { batchSize: 0 })).toThrow(/batchSize.*got 0/)
    expect(() => new DataLoader(numbered(3), { collateFn: () => 1, dtypes: { y: 'f32' } })).toThrow(
      /collateFn and dtypes cannot be combined/,
    )
    const code = { length: 1, get: () => ({ y: 0 }) }
    await expect(labelsOf(new DataLoader<Sample>(code, { numWorkers: 1 }))).rejects.toMatchObject({
      code: 'config.invalid',
    })
  })

  test('in Node workers are refused with what to do', async () => {
    const own = new DataLoader(numbered(4), { numWorkers: 2 })
    const brought = new DataLoader(numbered(4), { numWorkers: 1, worker: () => new Worker('own') })
    for (const loader of [own, brought])
      await expect(labelsOf(loader)).rejects.toMatchObject({
        name: 'DataError',
        code: 'config.invalid',
        message: expect.stringMatching(
          /numWorkers must be 0 where there are no web workers, as in Node\. Leave it out/,
        ),
      })
  })
})
