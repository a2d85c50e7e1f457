import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { fillBatch, loadIdxFolder } from '../../../src/data/dataset.ts'
import { parseIdx, parseIdxBytes, readIdx, readIdxBytes } from '../../../src/data/idx.ts'
import { type Files, gzip, idxFile, smallFolder } from '../../support/idx-files.ts'
import { testOnRealData } from '../../support/real-data.ts'

const folderOf = (files: Files) => (name: string) => Promise.resolve(files[name])

test('an IDX file gives its dimensions and elements, plain and compressed', async () => {
  const file = idxFile([2, 3, 4], (i) => 200 + i)
  for (const bytes of [file, gzip(file)]) {
    const { shape, data } = await readIdxBytes(bytes, 'some', 3)
    expect(shape).toEqual([2, 3, 4])
    expect([...data]).toEqual(Array.from({ length: 24 }, (_, i) => 200 + i))
  }
  expect(parseIdxBytes(idxFile([0]), 'none', 1).data.length).toBe(0)
})

test('an IDX file may be a view into a larger buffer', () => {
  const file = idxFile([3])
  const larger = new Uint8Array(file.length + 7)
  larger.set(file, 5)
  expect([...parseIdxBytes(larger.subarray(5, 5 + file.length), 'view', 1).data]).toEqual([0, 1, 2])
})

/** The bytes that NumPy writes for `values` in big-endian order behind an IDX header. */
const typed = (type: number, dims: number[], elements: string) => {
  const header = new Uint8Array(4 + 4 * dims.length)
  header.set([0, 0, type, dims.length])
  const view = new DataView(header.buffer)
  dims.forEach((dim, i) => {
    view.setUint32(4 + 4 * i, dim)
  })
  const body = elements.match(/../g)?.map((pair) => Number.parseInt(pair, 16)) ?? []
  return Uint8Array.from([...header, ...body])
}

// The hexadecimal texts are NumPy's: np.array(values, dtype='>i2').tobytes().hex() and so on.
test.each([
  ['unsigned byte', typed(8, [3], '0080ff'), Uint8Array.of(0, 128, 255)],
  ['signed byte', typed(9, [3], '0080ff'), Int8Array.of(0, -128, -1)],
  ['int16', typed(11, [3], '000180007fff'), Int16Array.of(1, -32768, 32767)],
  ['int32', typed(12, [3], '00000001800000007fffffff'), Int32Array.of(1, -2147483648, 2147483647)],
  [
    'float32',
    typed(13, [4], '3fc0000000000001ff8000007fc00000'),
    Float32Array.of(1.5, 2 ** -149, Number.NEGATIVE_INFINITY, Number.NaN),
  ],
  [
    'float64',
    typed(14, [2], '3fb999999999999a0000000000000001'),
    Float64Array.of(0.1, Number.MIN_VALUE),
  ],
])('readIdx gives elements of type %s in their own array', async (_, bytes, wanted) => {
  for (const source of [bytes, new Blob([gzip(bytes)])]) {
    const { shape, data } = await readIdx(source)
    expect(shape).toEqual([wanted.length])
    expect(data).toEqual(wanted)
  }
})

test('readIdx takes any rank, and names what it cannot read', async () => {
  expect(parseIdx(typed(11, [2, 1, 1, 1, 2], '00010002ffff0004'), 'f')).toEqual({
    shape: [2, 1, 1, 1, 2],
    data: Int16Array.of(1, 2, -1, 4),
  })
  expect(parseIdx(typed(13, [], '3f800000'), 'f')).toEqual({
    shape: [],
    data: Float32Array.of(1),
  })
  expect(parseIdx(typed(14, [0, 5], ''), 'f').data).toEqual(new Float64Array(0))
  const huge = typed(14, Array(40).fill(0xffffffff), '')
  expect(() => parseIdx(huge, 'f')).toThrow(/got 0 \(truncated\)/)
  await expect(readIdx(typed(12, [2], '0000000100'))).rejects.toMatchObject({
    code: 'data.malformed',
    message: expect.stringContaining('IDX file: expected 8 bytes for 2 elements, got 5'),
  })
  await expect(readIdx(new File([wrongMagic], 'cats.idx'))).rejects.toThrow(
    'cats.idx: expected the IDX magic number 0x00 0x00, a type from 0x08 to 0x0e and a rank, got 0x3c',
  )
  await expect(readIdx('http://127.0.0.1:9/none.idx')).rejects.toMatchObject({
    code: 'data.missing',
    message: expect.stringMatching(/^http:\/\/127.0.0.1:9\/none.idx: cannot read the file/),
  })
})

const good = idxFile([2, 28, 28])
const wrongMagic = Uint8Array.from(good)
wrongMagic[0] = 0x3c
const hugeDims = Uint8Array.from(good)
hugeDims.fill(0xff, 4, 16)

test.each([
  [
    'bad magic',
    wrongMagic,
    'f: expected the IDX magic number 0x00 0x00 0x08 0x03, got 0x3c 0x00 0x08 0x03.',
  ],
  ['unknown element type', idxFile([2, 28, 28], undefined, 7), 'magic number'],
  [
    'other element type',
    idxFile([2, 28, 28], undefined, 13),
    'expected elements of type unsigned byte, got type float32',
  ],
  ['wrong rank', idxFile([2, 784]), 'expected 3 dimensions, got 2 in the header'],
  ['empty file', new Uint8Array(0), 'expected an IDX file, got an empty file. Fetch it again.'],
  [
    'cut within the magic number',
    good.slice(0, 3),
    'expected an IDX header of 4 bytes or more, got 3 bytes (truncated)',
  ],
  ['header cut', good.slice(0, 9), 'expected an IDX header of 16 bytes, got 9 bytes (truncated)'],
  [
    'elements cut',
    good.slice(0, 1000),
    'expected 1568 bytes for 2 x 28 x 28 elements, got 984 (truncated)',
  ],
  ['surplus', Uint8Array.from([...good, 0]), 'got 1569 (surplus bytes)'],
  ['dimensions beyond any file', hugeDims, '(truncated)'],
  ['truncated gzip', gzip(good).slice(0, -9), 'f: the gzip stream is truncated or damaged'],
  ['gzip header only', gzip(good).slice(0, 10), 'the gzip stream is truncated or damaged'],
  ['damaged gzip', gzip(good).fill(0x55, 12, 24), 'the gzip stream is truncated or damaged'],
  ['gzip of something else', gzip(Uint8Array.from([1, 2, 3, 4, 5])), 'magic number'],
])('%s is one clear line', async (_, bytes, text) => {
  const error = await readIdxBytes(bytes, 'f', 3).then(
    () => undefined,
    (thrown) => thrown,
  )
  expect(error).toMatchObject({ name: 'DataError', code: 'data.malformed' })
  expect(error.message).toContain(text)
  expect(error.message).not.toContain('\n')
})

test('gzip is unpacked as far as the header of the file in it says, and no further', async () => {
  const zeros = 64 * 2 ** 20
  const bomb = (header: number[]) => {
    const bytes = new Uint8Array(zeros)
    bytes.set(header)
    return gzip(bytes)
  }
  const images = [0, 0, 8, 3, 0, 0, 0, 10, 0, 0, 0, 28, 0, 0, 0, 28]
  const huge = [0, 0, 8, 3, 255, 255, 255, 255, 0, 0, 0, 28, 0, 0, 0, 28]
  let max = 0
  for (const [header, text] of [
    [images, 'bomb: expected 7856 bytes without gzip, as its header says, got more.'],
    [huge, `bomb: expected at most ${2 ** 30} bytes without gzip, got a header of 3367254359296.`],
    [[9, 9, 9, 9], 'bomb: expected the IDX magic number 0x00 0x00 0x08 0x03, got 0x09'],
  ] as const) {
    const file = bomb([...header])
    const before = process.memoryUsage().arrayBuffers
    const watch = setInterval(() => {
      max = Math.max(max, process.memoryUsage().arrayBuffers - before)
    }, 5)
    await expect(readIdxBytes(file, 'bomb', 3)).rejects.toThrow(text)
    clearInterval(watch)
  }
  expect(max).toBeLessThan(zeros / 4)
}, 30_000)

test('every cut of a gzip file is refused, none hangs or passes', async () => {
  const whole = gzip(idxFile([1, 28, 28]))
  for (let length = 2; length < whole.length; length += 3)
    await expect(readIdxBytes(whole.slice(0, length), 'cut', 3)).rejects.toMatchObject({
      code: 'data.malformed',
    })
})

test('a folder is found under each of its names', async () => {
  const files = smallFolder()
  const loaded = await loadIdxFolder(folderOf(files))
  expect(loaded.train).toMatchObject({ count: 12, height: 28, width: 28, classes: 10 })
  expect([...loaded.test.labels]).toEqual([3, 4, 5, 6, 7])

  const renamed: Files = {}
  for (const [name, bytes] of Object.entries(files))
    renamed[`${name.replace('test-', 't10k-')}.gz`] = gzip(bytes)
  const again = await loadIdxFolder(folderOf(renamed))
  expect(again.test.labels).toEqual(loaded.test.labels)
  expect(again.train.images).toEqual(loaded.train.images)
})

test.each<[string, (files: Files) => void, string, string]>([
  [
    'a missing file',
    (f) => delete f['test-images-idx3-ubyte'],
    'data.missing',
    'no file test-images-idx3-ubyte or t10k-images-idx3-ubyte (plain or .gz)',
  ],
  [
    'labels of another split',
    (f) => {
      f['t10k-labels-idx1-ubyte'] = f['test-labels-idx1-ubyte']
      delete f['test-labels-idx1-ubyte']
    },
    'data.missing',
    'test-labels-idx1-ubyte',
  ],
  [
    'fewer labels',
    (f) => {
      f['train-labels-idx1-ubyte'] = idxFile([11], () => 1)
    },
    'data.malformed',
    'expected 12 labels for the 12 images of train-images-idx3-ubyte, got 11',
  ],
  [
    'a label beyond the classes',
    (f) => {
      f['test-labels-idx1-ubyte'] = idxFile([5], (i) => i + 6)
    },
    'data.malformed',
    'test-labels-idx1-ubyte: expected labels from 0 to 9, got 10 at index 4',
  ],
  [
    'another image size',
    (f) => {
      f['train-images-idx3-ubyte'] = idxFile([12, 32, 28])
    },
    'data.malformed',
    'expected images of 28 x 28, got 32 x 28',
  ],
  [
    'no images',
    (f) => {
      f['test-images-idx3-ubyte'] = idxFile([0, 28, 28])
      f['test-labels-idx1-ubyte'] = idxFile([0])
    },
    'data.malformed',
    'expected at least one image, got 0',
  ],
])('a folder with %s is refused in one line', async (_, damage, code, text) => {
  const files = smallFolder()
  damage(files)
  const error = await loadIdxFolder(folderOf(files)).then(
    () => undefined,
    (thrown) => thrown,
  )
  expect(error).toMatchObject({ name: 'DataError', code })
  expect(error.message).toContain(text)
  expect(error.message).not.toContain('\n')
})

test('fillBatch scales pixels to 0..1 and pads with zeros', async () => {
  const { train } = await loadIdxFolder(folderOf(smallFolder()))
  const pixels = new Float32Array(3 * 784).fill(9)
  const labels = new Uint32Array(3).fill(9)
  fillBatch(train, [11, 2], pixels, labels)
  expect([...labels]).toEqual([1, 2, 0])
  expect(pixels[0]).toBe(Math.fround(train.images[11 * 784] / 255))
  expect(pixels[784 + 5]).toBe(Math.fround(train.images[2 * 784 + 5] / 255))
  expect(pixels.subarray(2 * 784).every((value) => value === 0)).toBe(true)
})

testOnRealData('the 9,000 MNIST images load', 'mnist-9k', async (folder) => {
  const read = (name: string) =>
    readFile(join(folder, name)).then(
      (bytes) => new Uint8Array(bytes),
      () => undefined,
    )
  const { train, test } = await loadIdxFolder(read)
  expect([train.count, test.count]).toEqual([8000, 1000])
  // The first labels of the MNIST test split, as published everywhere.
  expect([...train.labels.subarray(0, 10)]).toEqual([7, 2, 1, 0, 4, 1, 4, 9, 5, 9])
})
