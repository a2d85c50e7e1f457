import { describe, expect, test } from 'vitest'
import { TensorDataset } from '../../../src/data/datasets.ts'
import { IdxDataset } from '../../../src/data/idx-dataset.ts'
import { DataLoader } from '../../../src/data/loader/data-loader.ts'
import { restoreDataset } from '../../../src/data/loader/restore.ts'
import { readNpy, readNpz } from '../../../src/data/npy.ts'
import { writeZip } from '../../../src/data/zip.ts'
import golden from '../../golden/npy.json'

// NumPy wrote these files: tests/golden/npy.py.

type Bytes = Uint8Array<ArrayBuffer>
const bytesOf = (base64: string): Bytes => Uint8Array.from(Buffer.from(base64, 'base64'))
const fileOf = (name: string) => bytesOf(golden.cases.find((one) => one.name === name)!.file)

describe('an array of NumPy has its numbers and shape', () => {
  for (const { name, file, shape, values } of golden.cases)
    test(name, async () => {
      // A view that begins anywhere, as of a larger file.
      const shifted = new Uint8Array(bytesOf(file).length + 3)
      shifted.set(bytesOf(file), 3)
      for (const source of [bytesOf(file), new Blob([bytesOf(file)]), shifted.subarray(3)]) {
        const array = await readNpy(source)
        expect(array.shape).toEqual(shape)
        expect([...array.data]).toEqual(values.map(toNumber))
      }
    })

  const toNumber = (value: number | string) =>
    typeof value === 'number'
      ? value
      : Number(value.replace('inf', 'Infinity').replace('nan', 'NaN'))

  test.each([
    ['|b1', Uint8Array],
    ['|i1', Int8Array],
    ['>i2', Int16Array],
    ['<i4', Int32Array],
    ['<i8', Int32Array],
    ['|u1', Uint8Array],
    ['<u2', Uint16Array],
    ['>u4', Uint32Array],
    ['>u8', Uint32Array],
    ['<f2', Float32Array],
    ['<f4', Float32Array],
    ['>f8', Float64Array],
  ])('%s comes in its own type, or the nearest there is', async (name, type) => {
    expect((await readNpy(fileOf(name))).data).toBeInstanceOf(type)
  })
})

test('what is no number, or does not fit, is refused by name', async () => {
  const messages: [string, string][] = []
  for (const { name, file } of golden.refused) {
    const read = readNpy(bytesOf(file), 'a.npy')
    await expect(read).rejects.toMatchObject({ code: 'data.malformed' })
    await read.catch(({ message }) => messages.push([name, message.replace(/^a\.npy: /, '')]))
  }
  const numbers = 'expected numbers (bool, int, uint or float of 16 to 64 bits), got'
  const labels = 'Save numbers, for example those of np.unique(array, return_inverse=True).'
  expect(messages).toEqual([
    ['complex', `${numbers} complex numbers (<c8). Save array.real and array.imag.`],
    [
      'objects',
      `${numbers} Python objects (|O). Save numbers, for example array.astype('float32').`,
    ],
    ['texts', `${numbers} texts (<U3). ${labels}`],
    ['bytes', `${numbers} texts (|S3). ${labels}`],
    [
      'dates',
      `${numbers} dates (<M8[D]). Save it as another type, for example array.astype('float32').`,
    ],
    [
      'records',
      "expected numbers, got records of several fields. Save each field, for example array['name'].",
    ],
    [
      'raw bytes',
      `${numbers} raw bytes (|V2). Save it as another type, for example array.astype('float32').`,
    ],
    [
      'i8 that does not fit',
      "expected 64-bit whole numbers that fit into int32, got 2147483648 as element 1. Save smaller numbers, or array.astype('float64').",
    ],
    [
      'negative i8 that does not fit',
      "expected 64-bit whole numbers that fit into int32, got -2147483649 as element 1. Save smaller numbers, or array.astype('float64').",
    ],
    [
      'u8 that does not fit',
      "expected 64-bit whole numbers that fit into uint32, got 18446744073709551615 as element 0. Save smaller numbers, or array.astype('float64').",
    ],
    [
      'long doubles',
      `${numbers} floats of this width (<f16). Save it as another type, for example array.astype('float32').`,
    ],
  ])
})

describe('a malformed file names what is wrong', () => {
  const prefix = Uint8Array.from([0x93, ...Buffer.from('NUMPY'), 1, 0])
  /** A file with this header and `dataBytes` zeros. */
  const fileWith = (header: string, dataBytes = 0): Bytes => {
    const text = Buffer.from(header)
    const length = Uint8Array.of(text.length & 255, text.length >> 8)
    return Uint8Array.from([...prefix, ...length, ...text, ...new Uint8Array(dataBytes)])
  }
  const header = (shape: string, descr = "'<f4'", order = 'False') =>
    `{'descr': ${descr}, 'fortran_order': ${order}, 'shape': ${shape}, }\n`
  const whole = fileOf('version 1')
  const cases: [string, Bytes, string][] = [
    ['nothing of a header', prefix, 'expected a header of 12 bytes, got 8 (truncated)'],
    ['half a header', whole.slice(0, 60), 'expected a header of 128 bytes, got 60 (truncated)'],
    [
      'missing elements',
      whole.slice(0, -1),
      'expected 96 bytes for 2 x 3 x 4 elements, got 95 (truncated)',
    ],
    ['surplus bytes', Uint8Array.from([...whole, 0]), 'got 97 (surplus bytes)'],
    ['version 4', whole.with(6, 4), 'expected version 1, 2 or 3 of the format, got 4'],
    [
      'a header beyond any',
      Uint8Array.from([...prefix.with(6, 2), 0, 0, 2, 0]),
      'expected a header of at most 65536 bytes, got 131072',
    ],
    ['no dict', fileWith('numpy'), `expected a header with 'descr': a type, got "numpy"`],
    ['no order', fileWith(header('(1,)', "'<f4'", 'Maybe'), 4), "'fortran_order': True or False"],
    ['no shape', fileWith(header('-1'), 4), "expected a header with 'shape': whole numbers"],
    ['a negative shape', fileWith(header('(-1,)'), 4), "'shape': whole numbers"],
    ['a shape beyond numbers', fileWith(header('(99999999999999999999,)')), 'at most 64 sizes'],
    ['many dimensions', fileWith(header(`(${'1,'.repeat(65)})`), 4), 'at most 64 sizes'],
    [
      'a shape beyond any file',
      fileWith(header('(9999999, 99999999)')),
      'bytes for 9999999 x 99999999 elements, got ',
    ],
    ['an unknown type', fileWith(header('(1,)', "'<x4'"), 4), 'got another type (<x4)'],
    ['an inherited name for a type', fileWith(header('(1,)', "'constructor'")), 'got complex'],
  ]
  test.each(cases)('%s', async (_, bytes, wanted) => {
    const read = readNpy(bytes, 'a.npy')
    await expect(read).rejects.toMatchObject({ code: 'data.malformed' })
    await expect(read).rejects.toThrow('a.npy: expected ')
    await expect(read).rejects.toThrow(wanted)
  })

  test('a header in the style of other writers is read', async () => {
    const other = fileWith(`{"shape":(2L,),"fortran_order":False,"descr":"=i4"}`, 8)
    expect(await readNpy(other)).toEqual({ shape: [2], data: new Int32Array(2) })
  })
})

describe('an npz archive', () => {
  const [x, y] = [Uint8Array.from({ length: 32 }, (_, i) => i), Int32Array.of(7, 3)]

  test.each(Object.entries(golden.npz))('%s gives its arrays by name', async (_, file) => {
    const arrays = ['x_train', 'y_train']
    const wanted = { x_train: { shape: [2, 4, 4], data: x }, y_train: { shape: [2], data: y } }
    expect(await readNpz(bytesOf(file), 'a.npz', { arrays })).toEqual(wanted)
    expect(await readNpz(new File([bytesOf(file)], 'a.npz'), 'a', { arrays })).toEqual(wanted)
    await expect(readNpz(bytesOf(file), 'a.npz')).rejects.toThrow(
      'a.npz, array "names": expected numbers (bool, int, uint or float of 16 to 64 bits), got texts (<U1).',
    )
    await expect(readNpz(bytesOf(file), 'a.npz', { arrays: ['y'] })).rejects.toThrow(
      'a.npz: expected an array "y", got x_train, y_train, names. Correct the name.',
    )
  })

  test('names an entry that is no array, and one that is larger than its array', async () => {
    const text = writeZip([['notes.txt', new Uint8Array(9)]])
    await expect(readNpz(text, 'a.npz')).rejects.toThrow(
      'a.npz, array "notes.txt": expected the first bytes 0x93 NUMPY, got others.',
    )
    const larger = new Uint8Array(10_000)
    larger.set(fileOf('version 1'))
    await expect(readNpz(writeZip([['x.npy', larger]]), 'a.npz')).rejects.toThrow(
      'a.npz, array "x": expected 96 bytes for 2 x 3 x 4 elements, got 9872 (surplus bytes).',
    )
  })

  test('refuses a misspelt option', async () => {
    const read = readNpz(bytesOf(golden.npz.stored), 'a.npz', { array: ['y'] } as never)
    await expect(read).rejects.toMatchObject({ code: 'config.invalid' })
  })

  test('becomes a data set of images, and one of tensors', async () => {
    const arrays = ['x_train', 'y_train']
    const { x_train, y_train } = await readNpz(bytesOf(golden.npz.deflated), 'a', { arrays })
    const images = new IdxDataset(x_train, y_train)
    expect(images.get(1, { seed: 1, epoch: 0, index: 1 })).toEqual({
      x: { shape: [1, 4, 4], data: Float32Array.from(x.slice(16), (byte) => byte / 255) },
      y: 3,
    })
    const tensors = new TensorDataset({ x: x_train, y: y_train })
    expect(tensors.get(1)).toEqual({
      x: { shape: [4, 4], data: Int32Array.from(x.slice(16)) },
      y: 3,
    })
    const copy = restoreDataset(structuredClone(tensors.describe())) as typeof tensors
    for await (const batch of new DataLoader(copy, { batchSize: 2 }))
      expect(batch).toEqual({
        x: { shape: [2, 4, 4], data: Int32Array.from(x) },
        y: { shape: [2], data: y },
      })
  })

  test('float64 becomes f32 row by row, and short whole numbers labels', () => {
    const x = { shape: [2, 2], data: Float64Array.of(0.1, 1, 2, 1e-50) }
    const dataset = new TensorDataset({ x, y: { shape: [2], data: Uint16Array.of(5, 65_535) } })
    expect(dataset.get(1)).toEqual({ x: { shape: [2], data: Float32Array.of(2, 0) }, y: 65_535 })
  })
})
