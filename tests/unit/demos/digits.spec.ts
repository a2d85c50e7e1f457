import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { afterEach, expect, test, vi } from 'vitest'
import { task } from '../../../demos/digits/demo.ts'
import {
  givenOf,
  type IdxFile,
  noFiles,
  problemsOf,
  withFiles,
} from '../../../demos/digits/idx-files.ts'
import { packIdx, unpackIdx } from '../../../demos/digits/idx-pack.ts'
import { readIdxFile } from '../../../demos/digits/read-idx-file.ts'
import { parseTrainConfig } from '../../../demos/experiments.ts'
import { loadIdxFolder, readUrlFolder } from '../../../src/data/dataset.ts'
import { pieceBytes } from '../../../src/ddp/committed/share-bytes.ts'
import { ReferenceRuntime } from '../../../src/graph/memory/runtime.ts'
import { RandomStream } from '../../../src/util/random.ts'
import { type Files, gzip, idxFile, smallFolder } from '../../support/idx-files.ts'
import { testOnRealData } from '../../support/real-data.ts'
import { startTask } from '../../support/task-ranks.ts'

afterEach(() => {
  vi.restoreAllMocks()
})

const files = (all: Files): Promise<IdxFile[]> =>
  Promise.all(Object.entries(all).map(([name, bytes]) => readIdxFile(new File([bytes], name))))
const config = parseTrainConfig({ demo: 'digits', data: 'given' })
const loaded = (given: Uint8Array<ArrayBuffer>) =>
  task.load({ config, given, baseUrl: 'https://x.example/' })

test('four files, plain or gzip, in any order and in two goes, are the data that they hold', async () => {
  const folder = smallFolder()
  const expected = await loadIdxFolder(async (name) => folder[name])
  const mixed: Files = {}
  for (const [i, [name, bytes]] of Object.entries(folder).reverse().entries())
    mixed[i % 2 ? `${name}.gz` : name] = i % 2 ? gzip(bytes) : bytes
  const all = await files(mixed)
  const half = withFiles(noFiles, all.slice(0, 3))
  expect(givenOf(half)).toBeNull()
  expect(problemsOf(half)).toEqual([])
  expect(await loaded(givenOf(withFiles(half, all.slice(3)))!)).toMatchObject(expected)
})

test('the larger of two files is for training when their names do not say', async () => {
  const folder = smallFolder(12, 5)
  const renamed = Object.fromEntries(
    Object.values(folder).map((bytes, i) => [`download (${i})`, bytes]),
  )
  const all = await files(renamed)
  const { train, test: heldOut } = await loaded(givenOf(withFiles(noFiles, all))!)
  expect([train.count, heldOut.count]).toEqual([12, 5])
  // One of them alone waits, and is not guessed at.
  const [one] = withFiles(noFiles, all.slice(2, 3)).unplaced
  expect(one).toMatchObject({ kind: 'images', count: 5 })
  // Where only one place is free it is that one's.
  const named = await files({
    'train-images': folder['train-images-idx3-ubyte'],
    'train-labels': folder['train-labels-idx1-ubyte'],
  })
  const set = withFiles(withFiles(noFiles, named), all.slice(2))
  expect(problemsOf(set)).toEqual([])
  expect((await loaded(givenOf(set)!)).test.count).toBe(5)
})

test('files whose numbers differ, or that cannot be identified, are named', async () => {
  const mixed = await files({
    ...smallFolder(),
    'train-labels-idx1-ubyte': idxFile([11], () => 3),
  })
  const set = withFiles(noFiles, mixed)
  expect(problemsOf(set)).toEqual([
    'train-labels-idx1-ubyte: expected 12 labels for the 12 images of train-images-idx3-ubyte, got 11. Choose the two files of one data set.',
  ])
  expect(givenOf(set)).toBeNull()
  // The right one takes the wrong one's place.
  const right = await files({
    'train-labels-idx1-ubyte': smallFolder()['train-labels-idx1-ubyte'],
  })
  expect(givenOf(withFiles(set, right))).not.toBeNull()

  const twins = await files({ 'a.bin': idxFile([4], () => 0), 'b.bin': idxFile([4], () => 0) })
  expect(problemsOf(withFiles(noFiles, twins))).toEqual([
    expect.stringContaining('a.bin: cannot tell whether its 4 labels are for training or held out'),
    expect.stringContaining('b.bin: cannot tell whether its 4 labels are for training or held out'),
  ])
})

test.each<[string, Uint8Array<ArrayBuffer>, string]>([
  [
    'a picture',
    Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 1, 2),
    'it begins with 0x89 0x50 0x4e 0x47; an IDX file begins with 0x00 0x00 0x08 0x03 (images) or 0x00 0x00 0x08 0x01 (labels)',
  ],
  ['an empty file', new Uint8Array(0), 'expected an IDX file, got an empty file. '],
  [
    'a page in the place of a file',
    new Uint8Array(Buffer.from('<!doctype html>')),
    'expected an IDX file, got an HTML page. ',
  ],
  ['a matrix', idxFile([2, 784]), 'begins with 0x00 0x00 0x08 0x02; '],
  [
    'numbers of another type',
    idxFile([1, 28, 28], undefined, 13),
    'begins with 0x00 0x00 0x0d 0x03; ',
  ],
  ['other pixels', idxFile([2, 32, 32]), 'expected images of 28 x 28, got 32 x 32'],
  ['letters', idxFile([27], (i) => i), 'expected labels from 0 to 9, got 10 at index 10'],
  ['half a file', idxFile([2, 28, 28]).slice(0, 900), 'got 884 (truncated)'],
  [
    'half a gzip file',
    gzip(idxFile([2, 28, 28])).slice(0, 300),
    'the gzip stream is truncated or damaged',
  ],
])('%s is refused by name', async (_, bytes, text) => {
  const reading = readIdxFile(new File([bytes], 'mine.gz'))
  await expect(reading).rejects.toMatchObject({ code: 'data.malformed' })
  await expect(reading).rejects.toThrow(/^mine\.gz: /)
  await expect(reading).rejects.toThrow(text)
})

test('bytes that are no four files are refused', async () => {
  const part = Uint8Array.of(1, 2, 3)
  const packed = packIdx({
    'train-images-idx3-ubyte': part,
    'train-labels-idx1-ubyte': part,
    't10k-images-idx3-ubyte': part,
    't10k-labels-idx1-ubyte': part,
  })
  expect(await unpackIdx(packed)('t10k-labels-idx1-ubyte')).toEqual(part)
  expect(() => unpackIdx(packed.slice(0, -1))).toThrow('expected 32 bytes, as its header says')
  expect(() => unpackIdx(new Uint8Array(40))).toThrow('its 40 bytes do not begin with TIDX')
  await expect(loaded(packed)).rejects.toThrow('train-images-idx3-ubyte: expected an IDX header')
})

test('given files reach all ranks in pieces, with progress events', async () => {
  const random = new RandomStream(1, 0, 'general')
  const folder = {
    ...smallFolder(),
    // Noise, which gzip does not make smaller.
    'train-images-idx3-ubyte': idxFile([1600, 28, 28], () => random.below(256)),
    'train-labels-idx1-ubyte': idxFile([1600], (i) => i % 10),
  }
  const given = givenOf(withFiles(noFiles, await files(folder)))!
  expect(given.length).toBeGreaterThan(pieceBytes)
  const { ranks, close } = await startTask(
    3,
    { demo: 'digits', data: 'given', steps: 1, batchSize: 3, bucketCapMb: 1 },
    () => new ReferenceRuntime(),
    (rank) => (rank === 0 ? { given } : {}),
  )
  const results = await Promise.all(ranks.map(({ end }) => end))
  expect(new Set(results.map(({ paramHash }) => paramHash)).size).toBe(1)
  for (const { events, trainer } of ranks) {
    const received = events.flatMap((event) => (event.event === 'given' ? [event] : []))
    expect(received.map(({ doneBytes }) => doneBytes)).toEqual([pieceBytes, given.length])
    expect(received[0].totalBytes).toBe(given.length)
    expect(await trainer.query('mistakes', null)).toMatchObject({ checked: 5 })
  }
  close()
})

test('a folder behind an address that nothing answers, or that may not be read, is named', async () => {
  vi.spyOn(globalThis, 'fetch').mockRejectedValue(new TypeError('Failed to fetch'))
  await expect(loadIdxFolder(readUrlFolder('https://x.example/mnist'))).rejects.toThrow(
    'https://x.example/mnist/train-images-idx3-ubyte: this page cannot read from the server (Failed to fetch)',
  )
})

testOnRealData('real files, as a person chooses them', 'mnist-9k', async (folder) => {
  const names = (await readdir(folder)).filter((name) => name.includes('ubyte'))
  expect(names).toHaveLength(4)
  const all: Files = {}
  for (const name of names) all[name] = new Uint8Array(await readFile(join(folder, name)))
  const { train, test: heldOut } = await loaded(givenOf(withFiles(noFiles, await files(all)))!)
  expect([train.count, heldOut.count]).toEqual([8000, 1000])
  expect([...train.labels.subarray(0, 5)]).toEqual([7, 2, 1, 0, 4])
})
