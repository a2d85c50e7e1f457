import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { writeZip, ZipArchive } from '../../../src/data/zip.ts'
import golden from '../../golden/zip.json'

// Python's zipfile wrote these archives: tests/golden/zip_files.py.

const bytesOf = (base64: string) => Uint8Array.from(Buffer.from(base64, 'base64'))
const entries = Object.entries(golden.entries).map(([name, data]) => [name, bytesOf(data)] as const)

/** What an archive has, by name. */
async function allOf(archive: ZipArchive) {
  const all: [string, Uint8Array][] = []
  for (const name of archive.entries.keys()) all.push([name, await archive.read(name)])
  return all
}

/** The first error of opening an archive and reading all of it. */
const errorOf = (bytes: Uint8Array<ArrayBuffer>) =>
  ZipArchive.open(bytes, 'a.zip')
    .then(allOf)
    .then(
      () => 'none',
      ({ code, message }) => `${code}: ${message}`,
    )

describe('an archive of Python', () => {
  for (const [name, file] of Object.entries(golden.files))
    test(`${name} gives its entries, from bytes and from a file`, async () => {
      for (const source of [bytesOf(file), new File([bytesOf(file)], 'a.zip')])
        expect(await allOf(await ZipArchive.open(source))).toEqual(entries)
    })

  for (const [method, file] of Object.entries(golden.refused))
    test(`packed with ${method} is refused by that name`, async () => {
      expect(await errorOf(bytesOf(file))).toBe(
        `data.malformed: a.zip, entry "a/data.pkl": expected data that are stored or deflated, got ${method}. Check the file, or fetch it again.`,
      )
    })
})

test('what writeZip makes is read by Python, with data at multiples of 64 bytes', async () => {
  const file = writeZip(entries)
  // tabring.zip was made by this writer and passed `zip_files.py check`.
  const checked = readFileSync(new URL('../../golden/tabring.zip', import.meta.url))
  expect(Buffer.compare(file, checked)).toBe(0)
  expect(await allOf(await ZipArchive.open(file))).toEqual(entries)
})

describe('a damaged archive names what is wrong', () => {
  const stored = bytesOf(golden.files.stored)
  const deflated = bytesOf(golden.files.deflated)
  const long = bytesOf(golden.files['stored, in the 64-bit form'])
  const two = writeZip([
    ['a1', new Uint8Array(3)],
    ['a2', new Uint8Array(3)],
  ])
  const changed = (bytes: Uint8Array, change: (copy: Buffer<ArrayBuffer>) => void) => {
    const copy = Buffer.from(new Uint8Array(bytes).buffer)
    change(copy)
    return new Uint8Array(copy)
  }
  const directoryAt = (bytes: Uint8Array) => Buffer.from(bytes).indexOf('PK\x01\x02')
  const endAt = (bytes: Uint8Array) => Buffer.from(bytes).lastIndexOf('PK\x05\x06')
  const cases: [string, Uint8Array<ArrayBuffer>, RegExp][] = [
    ['when it is cut off', stored.subarray(0, -1), /the directory of a ZIP archive at its end/],
    ['when it is empty', new Uint8Array(), /expected a ZIP archive, got an empty file/],
    ['when it is something else', new Uint8Array(100), /none in 100 bytes/],
    [
      'when a stored byte differs',
      changed(stored, (copy) => copy.write('x', copy.indexOf('\x80\x02}q', 0, 'latin1'))),
      /entry "a\/data.pkl": expected the checksum \d+, got \d+/,
    ],
    [
      'when deflated data do not unpack',
      changed(deflated, (copy) => copy.fill(0xff, 40, 45)),
      /entry "a\/data.pkl": expected deflated data, got damaged ones/,
    ],
    [
      'when data are more than the directory says',
      changed(deflated, (copy) => copy.writeUInt32LE(2, directoryAt(deflated) + 24)),
      /entry "a\/data.pkl": expected 2 bytes, got more/,
    ],
    [
      'when data are fewer than the directory says',
      changed(deflated, (copy) => copy.writeUInt32LE(2 ** 30, directoryAt(deflated) + 24)),
      /expected 1073741824 bytes, got 6/,
    ],
    [
      'when deflated data are too many',
      changed(deflated, (copy) => copy.writeUInt32LE(2 ** 31, directoryAt(deflated) + 24)),
      /expected at most 1073741824 bytes of deflated data, got 2147483648/,
    ],
    [
      'when stored data have two sizes',
      changed(stored, (copy) => copy.writeUInt32LE(5, directoryAt(stored) + 24)),
      /expected stored data of one size, got 6 bytes for 5/,
    ],
    [
      'when a 64-bit size is missing',
      changed(stored, (copy) => copy.writeUInt32LE(2 ** 32 - 1, directoryAt(stored) + 24)),
      /expected sizes in 64 bits, got none/,
    ],
    [
      'when it is encrypted',
      changed(stored, (copy) => copy.writeUInt16LE(1, directoryAt(stored) + 8)),
      /expected data that are not encrypted/,
    ],
    [
      'when a local header is elsewhere',
      changed(stored, (copy) => copy.writeUInt32LE(1, directoryAt(stored) + 42)),
      /expected its local header at byte 1, got other bytes/,
    ],
    [
      'when a local header has another name',
      changed(stored, (copy) => copy.write('b', 30)),
      /expected the same name in its local header, got "b\/data.pkl"/,
    ],
    [
      'when two entries have one name',
      changed(two, (copy) => copy.write('a1', copy.lastIndexOf('a2'))),
      /expected one entry of each name, got two of "a1"/,
    ],
    [
      'when it is one of several parts',
      changed(stored, (copy) => copy.writeUInt16LE(1, endAt(stored) + 4)),
      /expected an archive in one file/,
    ],
    [
      'when the number of entries differs',
      changed(stored, (copy) => copy.writeUInt16LE(5, endAt(stored) + 10)),
      /expected 5 entries, got 4/,
    ],
    [
      'when the directory is beyond the end',
      changed(stored, (copy) => copy.writeUInt32LE(2 ** 31, endAt(stored) + 16)),
      /bytes of directory from byte 2147483648/,
    ],
    [
      'when the directory is elsewhere',
      changed(stored, (copy) => copy.writeUInt32LE(0, endAt(stored) + 16)),
      /entry 0 of the directory: expected its header, got other bytes/,
    ],
    [
      'when the 64-bit end is elsewhere',
      changed(long, (copy) => copy.writeUInt32LE(0, endAt(long) - 20 + 8)),
      /expected the 64-bit end of a ZIP archive at byte 0/,
    ],
  ]
  for (const [name, bytes, wanted] of cases)
    test(name, async () => {
      expect(await errorOf(bytes)).toMatch(wanted)
      expect(await errorOf(bytes)).toMatch(/^data\.malformed: a\.zip/)
    })

  test('when entries overlap, which makes little data fill memory', async () => {
    const one = writeZip([['a', new Uint8Array(1000)]])
    const directory = directoryAt(one)
    const header = Buffer.from(one.subarray(directory, endAt(one)))
    const names = ['b', 'c', 'd']
    const more = names.map((name) => changed(header, (copy) => copy.write(name, 46)))
    const bytes = Buffer.concat([one.subarray(0, endAt(one)), ...more, one.subarray(endAt(one))])
    bytes.writeUInt16LE(4, endAt(bytes) + 10)
    bytes.writeUInt32LE(4 * header.length, endAt(bytes) + 12)
    expect(await errorOf(new Uint8Array(bytes))).toMatch(/expected entries that do not overlap/)
  })
})

test('an entry that the archive does not have is named, with those it has', async () => {
  const archive = await ZipArchive.open(writeZip(entries), 'a.zip')
  await expect(archive.read('b')).rejects.toThrow(
    'a.zip: expected an entry "b", got a/data.pkl, a/data/0, größe, empty.',
  )
})
