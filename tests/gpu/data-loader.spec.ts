import { describe, expect, test } from 'vitest'
import type { Batch } from '../../src/data/collate.ts'
import { randomSplit, TensorDataset } from '../../src/data/datasets.ts'
import type { HostTensor } from '../../src/data/descriptions.ts'
import { listDirectory, listEntries } from '../../src/data/folder.ts'
import { type IdxSample, idxDataset } from '../../src/data/idx-dataset.ts'
import {
  compose,
  normalize,
  randomHorizontalFlip,
  randomResizedCrop,
  toTensor,
} from '../../src/data/image/transforms.ts'
import { ImageFolder } from '../../src/data/image-folder.ts'
import { DataLoader } from '../../src/data/loader/data-loader.ts'
import type { Sample } from '../../src/data/samples.ts'
import { StagedTensor, StagedUploads } from '../../src/gpu/staging.ts'
import { compile } from '../../src/graph/compile/compile.ts'
import { tensorType } from '../../src/util/shape.ts'
import { setSwitches } from '../../src/util/switches.ts'
import { testRuntime } from '../support/run-op.ts'
import { slowLoader, startSlow, toClose } from '../support/slow-loader.ts'
import { trouble } from '../support/slow-samples.ts'

// Real workers, real images, the real file system of the page.

const upTo = (count: number) => Array.from({ length: count }, (_, i) => i)
const valuesOf = (batch: Batch, field: string) => [...(batch[field] as HostTensor).data]

async function collect(loader: DataLoader): Promise<Batch[]> {
  const batches: Batch[] = []
  for await (const batch of loader) batches.push(batch)
  return batches
}

describe('workers', () => {
  test('order and random draws are those of no worker', async () => {
    const order = [7, 3, 9, 1, 0, 12, 5]
    const plain = await collect(slowLoader(0, order, { batchSize: 2 }))
    expect(plain.flatMap((batch) => valuesOf(batch, 'y'))).toEqual(order)
    expect(await collect(slowLoader(2, order, { batchSize: 2 }))).toEqual(plain)
  })

  test('the switch maxWorkers caps them; batches stay the same', async () => {
    const order = [7, 3, 9, 1, 0, 12, 5]
    let started = 0
    const worker = () => {
      started++
      return startSlow()
    }
    const free = await collect(slowLoader(2, order, { batchSize: 2, worker }))
    expect(started).toBe(2)
    setSwitches({ maxWorkers: 1 })
    try {
      started = 0
      const capped = await collect(slowLoader(2, order, { batchSize: 2, worker }))
      expect(started).toBe(1)
      expect(capped).toEqual(free)
      started = 0
      await collect(slowLoader(0, order, { worker }))
      expect(started).toBe(0)
    } finally {
      setSwitches({ maxWorkers: null })
    }
  })

  test('a loader with workers continues in the middle of an epoch where another one stopped', async () => {
    const indices = [7, 3, 9, 1, 0, 12, 5, 8]
    const whole = slowLoader(0, indices)
    const all = [await collect(whole), await collect(whole)]
    for (const [numWorkers, later] of [
      [2, 0],
      [0, 2],
    ]) {
      const first = slowLoader(numWorkers, indices)
      const seen: Batch[] = []
      for await (const batch of first) {
        if (seen.push(batch) < 3) continue
        // Those that workers have made ahead are not lost.
        const second = slowLoader(later, indices)
        second.loadStateDict(first.stateDict())
        expect([...seen, ...(await collect(second))]).toEqual(all[0])
        expect(await collect(second)).toEqual(all[1])
        break
      }
    }
  })

  test('an error names worker and sample; the loader works again in the next loop', async () => {
    const loader = slowLoader(2, [0, 1, trouble.fails, 2], { batchSize: 1 })
    const seen: number[] = []
    const loop = async () => {
      for await (const batch of loader) seen.push(...valuesOf(batch, 'y'))
    }
    await expect(loop()).rejects.toMatchObject({
      code: 'data.malformed',
      message: `DataLoader: worker 0, sample ${trouble.fails}: the picture is torn`,
    })
    expect(seen).toEqual([0, 1])
  })

  test('a worker that dies rejects with what it was making', async () => {
    await expect(
      collect(slowLoader(2, [0, trouble.dies, 2], { batchSize: 1 })),
    ).rejects.toMatchObject({
      code: 'worker.dead',
      message: expect.stringMatching(/worker 1 ended while it made samples 1001.*closed itself/),
    })
    const missing = () => new Worker('/no-such-file.js', { type: 'module' })
    await expect(collect(slowLoader(1, [0], { worker: missing }))).rejects.toMatchObject({
      code: 'worker.dead',
      message: expect.stringMatching(/its file \/no-such-file\.js, .*could not be loaded/),
    })
  })

  test('workers rebuild described data sets; collate may run on the page', async () => {
    const data = Float32Array.from({ length: 30 }, (_, i) => i)
    const [part] = randomSplit(new TensorDataset({ x: { shape: [10, 3], data } }), [6, 4], {
      seed: 1,
    })
    const plain = await collect(new DataLoader(part, { batchSize: 4 }))
    const helped = new DataLoader(part, { batchSize: 4, numWorkers: 2 })
    const joined = new DataLoader(part, {
      batchSize: 4,
      numWorkers: 1,
      collateFn: (samples: Sample[]) => samples.map(({ x }) => [...(x as HostTensor).data]),
    })
    toClose.push(helped, joined)
    expect(await collect(helped)).toEqual(plain)
    const rows: number[][][] = []
    for await (const batch of joined) rows.push(batch)
    expect(rows.flat(2)).toEqual(plain.flatMap((batch) => valuesOf(batch, 'x')))
  })
})

test('declared types hold in a worker', async () => {
  const y = { shape: [3], data: Int32Array.of(4, 5, 6) }
  const options = { batchSize: 2, numWorkers: 1, dtypes: { y: 'f32' } } as const
  const loader = new DataLoader(new TensorDataset({ y }), options)
  toClose.push(loader)
  expect((await collect(loader)).map((batch) => batch.y)).toEqual([
    { shape: [2], data: Float32Array.of(4, 5) },
    { shape: [1], data: Float32Array.of(6) },
  ])
})

test('two workers rebuild an IDX data set from an address and a file', async () => {
  const images = Uint8Array.from([0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 2, ...upTo(20)])
  const labels = Uint8Array.from([0, 0, 8, 1, 0, 0, 0, 5, 9, 8, 7, 6, 5])
  const packed = new Blob([images]).stream().pipeThrough(new CompressionStream('gzip'))
  const address = URL.createObjectURL(await new Response(packed).blob())
  const transform = compose([randomHorizontalFlip(), toTensor()])
  const dataset = await idxDataset(address, new File([labels], 'labels'), { transform })
  URL.revokeObjectURL(address)
  const options = { batchSize: 2, shuffle: true, seed: 4 }
  const helped = new DataLoader<IdxSample>(dataset, { ...options, numWorkers: 2 })
  toClose.push(helped)
  const batches: Batch[] = []
  for await (const batch of helped) batches.push(batch)
  expect(batches.flatMap((batch) => valuesOf(batch, 'y')).sort()).toEqual([5, 6, 7, 8, 9])
  expect((batches[0].x as HostTensor).shape).toEqual([2, 1, 2, 2])
  const alone: Batch[] = []
  for await (const batch of new DataLoader<IdxSample>(dataset, options)) alone.push(batch)
  expect(batches).toEqual(alone)
})

describe('images', () => {
  const png = async (red: number, width = 12, height = 8) => {
    const context = new OffscreenCanvas(width, height).getContext('2d')!
    for (let x = 0; x < width; x++) {
      context.fillStyle = `rgb(${red}, ${x * 20}, 7)`
      context.fillRect(x, 0, 1, height)
    }
    return context.canvas.convertToBlob()
  }
  const makeFolder = async () => {
    const top = await navigator.storage.getDirectory()
    const name = `images-${crypto.randomUUID()}`
    const root = await top.getDirectoryHandle(name, { create: true })
    const put = async (path: string, contents: Blob | string) => {
      const [folder, file] = path.split('/')
      const directory = await root.getDirectoryHandle(folder, { create: true })
      const stream = await (await directory.getFileHandle(file, { create: true })).createWritable()
      await stream.write(contents)
      await stream.close()
    }
    return { root, put, remove: () => top.removeEntry(name, { recursive: true }) }
  }

  test('ImageFolder: classes, exact pixels of PNG, equal samples with 0 and 2 workers', async () => {
    const { root, put, remove } = await makeFolder()
    for (let i = 0; i < 3; i++) await put(`cat/${i}.png`, await png(10 + i))
    for (let i = 0; i < 4; i++) await put(`ant/${i}.png`, await png(50 + i, 9, 20))
    await put('cat/notes.txt', 'no image')
    const files = await listDirectory(root)
    const plain = new ImageFolder(files)
    expect(plain.classes).toEqual(['ant', 'cat'])
    expect(plain.targets).toEqual([0, 0, 0, 0, 1, 1, 1])
    const sample = await plain.get(5, { seed: 0, epoch: 0, index: 5 })
    expect(sample.path).toBe('cat/1.png')
    expect(sample.x.shape).toEqual([3, 8, 12])
    expect([0, 8 * 12 + 3, 2 * 8 * 12].map((at) => Math.round(sample.x.data[at] * 255))).toEqual([
      11, 60, 7,
    ])

    const augmented = new ImageFolder(files, {
      transform: compose([
        randomResizedCrop(6),
        randomHorizontalFlip(),
        toTensor(),
        normalize([0.5, 0.5, 0.5], [0.25, 0.25, 0.25]),
      ]),
    })
    const options = { batchSize: 3, shuffle: true, seed: 8 }
    const alone = new DataLoader(augmented, options)
    const helped = new DataLoader(augmented, { ...options, numWorkers: 2 })
    toClose.push(helped)
    const runs: Batch[][] = []
    for (const loader of [alone, helped]) {
      const batches: Batch[] = []
      for await (const batch of loader) batches.push(batch)
      runs.push(batches)
    }
    expect(runs[0]).toHaveLength(3)
    expect(runs[1]).toEqual(runs[0])
    await remove()
  })

  test('an image that does not decode is named, by the worker too', async () => {
    const { root, put, remove } = await makeFolder()
    const whole = await png(1)
    await put('a/0.png', whole)
    await put('a/1.png', whole.slice(0, 40))
    const folder = new ImageFolder(await listDirectory(root))
    for (const numWorkers of [0, 1]) {
      const loader = new DataLoader(folder, { batchSize: 2, numWorkers })
      toClose.push(loader)
      const loop = async () => {
        for await (const _ of loader) expect.fail('no batch should come')
      }
      await expect(loop()).rejects.toMatchObject({
        code: 'data.malformed',
        message: expect.stringMatching(/sample 1: a\/1.png: the PNG file of 40 bytes/),
      })
    }
    await put('empty/none.txt', '')
    const files = await listDirectory(root)
    expect(() => new ImageFolder(files)).toThrow(/none in empty/)
    await remove()
  })

  test('entries as drag and drop gives them', async () => {
    // Chromium's old sandboxed file system gives the very objects that a drop gives.
    type Request = (
      type: number,
      bytes: number,
      done: (fs: FileSystem) => void,
      no: () => void,
    ) => void
    const request = (window as unknown as { webkitRequestFileSystem: Request })
      .webkitRequestFileSystem
    const { root } = await new Promise<FileSystem>((resolve, reject) => {
      request.call(window, 0, 1e6, resolve, () => reject(new Error('no file system')))
    })
    const made = (
      call: (done: (entry: FileSystemEntry) => void, no: (e: unknown) => void) => void,
    ) => new Promise<FileSystemEntry>((resolve, reject) => call(resolve, reject))
    const top = (await made((done, no) =>
      root.getDirectory(`drop-${crypto.randomUUID()}`, { create: true }, done, no),
    )) as FileSystemDirectoryEntry
    for (const name of ['b', 'a']) {
      const folder = (await made((done, no) =>
        top.getDirectory(name, { create: true }, done, no),
      )) as FileSystemDirectoryEntry
      // More than the 100 entries that one reading gives.
      for (let i = 0; i < (name === 'a' ? 120 : 1); i++) {
        await made((done, no) => folder.getFile(`${i}.png`, { create: true }, done, no))
      }
    }
    const dropped = await listEntries([top])
    expect(dropped).toHaveLength(121)
    expect(dropped[0].path).toBe('a/0.png')
    expect(dropped[120].path).toBe('b/0.png')
    expect(dropped[0].source).toBeInstanceOf(File)
    const several = await listEntries([
      top,
      await made((done, no) => top.getDirectory('a', {}, done, no)),
    ])
    expect(several.map(({ path }) => path)).toContain(`${top.name}/b/0.png`)
  })
})

describe('pinMemory', () => {
  test('staged batches give the same results, without host copies or new buffers in a step', async () => {
    const runtime = await testRuntime()
    const program = await compile(
      ({ x }) => ({ y: x.mul(x) }),
      { x: tensorType([4, 3]) },
      { runtime },
    )
    const data = Float32Array.from({ length: 240 }, (_, i) => i / 7)
    const dataset = new TensorDataset({ x: { shape: [80, 3], data } })
    const uploads = new StagedUploads(runtime.gpu)
    const results: number[][] = []
    for (const pinMemory of [undefined, uploads]) {
      const loader = new DataLoader(dataset, { batchSize: 4, pinMemory })
      const got: number[] = []
      for (let epoch = 0; epoch < 2; epoch++) {
        const { buffers, bytesUploaded } = runtime.gpu.counters
        for await (const batch of loader) got.push(...(await program.run(batch)).y)
        if (!pinMemory || epoch === 0) continue
        expect(runtime.gpu.counters.buffers).toBe(buffers)
        // The scalars block alone.
        expect(runtime.gpu.counters.bytesUploaded - bytesUploaded).toBe(20 * 4)
      }
      results.push(got)
    }
    expect(results[1]).toEqual(results[0])
    expect(results[0].slice(0, 3)).toEqual(
      [0, 1, 2].map((i) => Math.fround(Math.fround(i / 7) ** 2)),
    )
    // Leaving a loop early gives back what was made ahead.
    const { buffers } = runtime.gpu.counters
    const described = new DataLoader(dataset, { batchSize: 4, numWorkers: 1, pinMemory: uploads })
    toClose.push(described)
    for (let turn = 0; turn < 4; turn++) {
      for await (const batch of described) {
        await program.run(batch)
        break
      }
      // What was made ahead goes back in a later task.
      await new Promise((resolve) => setTimeout(resolve, 200))
    }
    // Two ahead and one in use.
    expect(runtime.gpu.counters.buffers - buffers).toBeLessThanOrEqual(2)
    const staged = await uploads.pin({ x: { shape: [4, 3], data: new Float32Array(12) } })
    expect(staged.x).toBeInstanceOf(StagedTensor)
    await program.run(staged)
    await expect(program.run(staged)).rejects.toMatchObject({ code: 'graph.misuse' })
    program.destroy()
    uploads.destroy()
  })
})
