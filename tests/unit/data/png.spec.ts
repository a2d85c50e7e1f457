import { deflateSync } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { decodeImage } from '../../../src/data/image/decode.ts'
import { forgetOrientation } from '../../../src/data/image/orientation.ts'
import { decodePng, isPng } from '../../../src/data/image/png.ts'
import golden from '../../golden/decode.json'

// Pillow's pixels: tests/golden/decode.py writes them, and the files.

const bytesOf = (base64: string) => Uint8Array.from(Buffer.from(base64, 'base64'))

describe("as Pillow's convert('RGB'), value for value", () => {
  for (const { name, file, height, width, rgb } of golden.png)
    test(name, async () => {
      // The browser decodes these (tests/gpu/decode.spec.ts); Node cannot.
      if (/[124] bits, interlaced/.test(name)) return expect(isPng(bytesOf(file))).toBe(false)
      const image = await decodeImage(new Blob([bytesOf(file)]), 'a.png')
      expect(image).toMatchObject({ height, width, channels: 3 })
      expect(Buffer.from(image.data).toString('base64')).toBe(rgb)
    })

  test('the golden files have transparent pixels whose colours are not 0', () => {
    const { rgb } = golden.png.find(({ name }) => name === 'RGB with alpha, 8 bits')!
    // decode.py makes every fourth pixel of a row, the first among them, wholly transparent.
    expect(Math.max(...bytesOf(rgb).slice(0, 3))).toBeGreaterThan(0)
  })
})

/** One chunk; its checksum bit by bit, not by the table under test. */
function chunk(name: string, contents: Uint8Array): Buffer {
  const named = Buffer.concat([Buffer.from(name), contents])
  let crc = 0xffffffff
  for (const byte of named) {
    crc ^= byte
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1
  }
  const [length, checksum] = [Buffer.alloc(4), Buffer.alloc(4)]
  length.writeUInt32BE(contents.length)
  checksum.writeUInt32BE(~crc >>> 0)
  return Buffer.concat([length, named, checksum])
}

const signature = Buffer.from('89504e470d0a1a0a', 'hex')
function header(width: number, height: number, ...rest: number[]): Buffer {
  const size = Buffer.alloc(8)
  size.writeUInt32BE(width)
  size.writeUInt32BE(height, 4)
  return chunk('IHDR', Buffer.concat([size, Buffer.from(rest)]))
}
const end = chunk('IEND', new Uint8Array())
const data = (...rows: number[]) => chunk('IDAT', deflateSync(Uint8Array.from(rows)))
const file = (...chunks: Buffer[]) => Uint8Array.from(Buffer.concat([signature, ...chunks]))

test('16-bit grey keeps its upper byte', () => {
  const made = file(header(2, 1, 16, 0, 0, 0, 0), data(0, 0x12, 0x99, 0xfe, 0x01), end)
  expect(decodePng(made, 'grey.png').data).toEqual(
    Uint8Array.of(0x12, 0x12, 0x12, 0xfe, 0xfe, 0xfe),
  )
})

test('a large file comes back from many parts of the stream', () => {
  const side = 700
  const rows = new Uint8Array(side * (1 + side * 3))
  for (let i = 0; i < rows.length; i++)
    rows[i] = i % (1 + side * 3) === 0 ? 0 : Math.imul(i, 2654435761) >>> 24
  const packed = deflateSync(rows)
  const parts = [packed.subarray(0, 9), packed.subarray(9, 70_000), packed.subarray(70_000)]
  const made = file(
    header(side, side, 8, 2, 0, 0, 0),
    ...parts.map((part) => chunk('IDAT', part)),
    end,
  )
  const image = decodePng(made, 'large.png')
  const wanted = rows.filter((_, i) => i % (1 + side * 3) !== 0)
  expect(Buffer.compare(Buffer.from(image.data), Buffer.from(wanted))).toBe(0)
})

describe('a small file that holds far more than its pixels', () => {
  const many = deflateSync(new Uint8Array(2 ** 25), { level: 1 })
  const grey = header(2, 1, 8, 0, 0, 0, 0)

  test('is refused before it is unpacked', async () => {
    for (const packed of [many, many.with(0, many[0] ^ 0x10)]) {
      const made = file(grey, chunk('IDAT', packed), end)
      const began = process.memoryUsage().arrayBuffers
      await expect(decodeImage(new Blob([made]), 'bomb.png')).rejects.toThrow(
        /^bomb.png: the PNG file of \d+ bytes (holds more than the 3 bytes of its pixels|does not unpack)/,
      )
      expect(process.memoryUsage().arrayBuffers - began).toBeLessThan(2 ** 24)
    }
  })

  test('loses its colour profile unread', async () => {
    const profile = chunk('iCCP', Buffer.concat([Buffer.from('p\0\0'), many]))
    const made = file(grey, profile, profile, data(0, 5, 6), end)
    const began = process.memoryUsage().arrayBuffers
    const { data: rgb } = await decodeImage(new Blob([made]), 'profile.png')
    expect([...rgb]).toEqual([5, 5, 5, 6, 6, 6])
    expect(process.memoryUsage().arrayBuffers - began).toBeLessThan(2 ** 24)
  })

  test('is refused too when its data is too little for its pixels', () => {
    const made = file(header(8000, 8000, 16, 6, 0, 0, 0), data(0, 5, 6), end)
    expect(() => decodePng(made, 'less.png')).toThrow('too little data for 8000 x 8000 pixels')
  })
})

describe('damaged files are refused by name', () => {
  const grey = header(2, 1, 8, 0, 0, 0, 0)
  const whole = file(grey, data(0, 5, 6), end)
  const cases: Record<string, [file: Uint8Array<ArrayBuffer>, message: RegExp]> = {
    'cut off': [whole.slice(0, 40), /^p.png: the PNG file of 40 bytes does not decode/],
    'cut off in the header': [whole.slice(0, 30), /ends within its header/],
    'no data': [file(grey, end), /does not decode/],
    'a flipped bit': [whole.with(45, whole[45] ^ 1), /does not decode \(CRC mismatch/],
    'other data': [file(grey, chunk('IDAT', Uint8Array.of(1, 2, 3)), end), /does not decode/],
    'an unknown filter': [file(grey, data(5, 5, 6), end), /does not decode .*filter/],
    'a depth that is none': [file(header(1, 1, 3, 0, 0, 0, 0), end), /does not decode/],
    'an interlacing that is none': [
      file(header(1, 1, 8, 0, 0, 0, 2), data(0, 1), end),
      /does not decode/,
    ],
    'no palette': [file(header(1, 1, 8, 3, 0, 0, 0), data(0, 1), end), /no palette/],
    'no width': [file(header(0, 1, 8, 0, 0, 0, 0), data(0), end), /has 0 x 1 pixels/],
    'too many pixels': [file(header(60_000, 60_000, 8, 0, 0, 0, 0), data(0), end), /60000 x 60000/],
  }
  for (const [name, [bytes, message]] of Object.entries(cases))
    test(name, async () => {
      await expect(decodeImage(new Blob([bytes]), 'p.png')).rejects.toMatchObject({
        name: 'DataError',
        code: 'data.malformed',
        message: expect.stringMatching(message),
      })
    })
})

describe('the orientation of a JPEG file', () => {
  const [upright, turned] = golden.jpeg.map(({ file: base64 }) => bytesOf(base64))

  test('is forgotten and nothing else', () => {
    expect(turned).not.toEqual(upright)
    const changed = turned.slice()
    forgetOrientation(changed)
    const at = [...changed.keys()].filter((i) => changed[i] !== turned[i])
    expect(at.map((i) => String.fromCharCode(turned[i])).join('')).toBe('Exif')
  })

  test('files of other kinds, and truncated ones, are unchanged', () => {
    for (const bytes of [bytesOf(golden.png[0].file), turned.slice(0, 5), new Uint8Array(0)]) {
      const copy = bytes.slice()
      forgetOrientation(copy)
      expect(copy).toEqual(bytes)
    }
    // A filling byte before the marker does not hide it.
    const filled = Uint8Array.of(0xff, 0xd8, 0xff, ...turned.slice(2))
    forgetOrientation(filled)
    expect(Buffer.from(filled).includes('Exif')).toBe(false)
  })
})
