import { clipped, clippedName } from '../../util/clipped.ts'
import type { OpenFile } from '../byte-source.ts'
import { foreignFile } from '../foreign.ts'
import { malformed } from '../malformed.ts'
import { ZipArchive } from '../zip.ts'
import { torchClasses } from './classes.ts'
import { readPickle } from './pickle-reader.ts'
import type { Storage } from './tensors.ts'

/**
 * What torch.save wrote: a value whose tensors are views of storages, and the storages' records.
 *
 * Since PyTorch 1.6 a ZIP archive, without compression:
 *
 *     NAME/data.pkl    the value; a persistent id ('storage', class, key, device, elements) stands for each storage
 *     NAME/data/KEY    a storage's elements
 *     NAME/byteorder   `little` or `big`; without it little
 *
 * Before, and with `_use_new_zipfile_serialization=False`, five pickles (a magic number, a version, facts about the system, the value, the
 * storages' keys in order), then of each storage its number of elements in 64 bits and its elements, little-endian.
 *
 * source: torch/serialization.py and caffe2/serialize/inline_container.cc of PyTorch 2.5.
 */
export interface TorchFile {
  readonly name: string
  /** Arrays, `Dict`s, numbers, texts, and `StoredTensor`s whose elements are not read yet. */
  readonly value: unknown
  readonly isBigEndian: boolean
  readonly sizeBytes: number
  /** Returns a storage's elements, which may be a view of the source's bytes. */
  read(storage: Storage): Promise<Uint8Array>
}

const magic = 0x1950a86a20f9469cfc6cn
const legacyVersion = 1001
/** How pickles of protocols 2 to 5 begin. */
const protocolMark = 0x80
/** What a value without its tensors may take. units: bytes. */
const maxPickleBytes = 2 ** 26
/** As much as most of them take. units: bytes. */
const firstBytes = 2 ** 20

/** Returns whether a file that begins so is one of torch.save, of whatever version, or another archive. Of a safetensors file it is not. */
export function isTorchFile(begin: Uint8Array): boolean {
  if (begin[8] === 0x7b) return false
  return begin[0] === protocolMark || (begin[0] === 0x50 && begin[1] === 0x4b) || isTar(begin)
}

/** What `isTorchFile` asks for. */
export const beginBytes = 512
const isTar = (begin: Uint8Array) =>
  new TextDecoder('latin1').decode(begin.subarray(257, 262)) === 'ustar'

/**
 * Opens a file of torch.save: its value is read, its tensors are not.
 *
 * errors: `data.missing`; `data.malformed` for other files, among them archives of torch.jit.save and those of before PyTorch 0.1.10.
 */
export async function openTorch(file: OpenFile): Promise<TorchFile> {
  const where = clippedName(file.name)
  const begin = await file.read(0, beginBytes)
  if (begin[0] === 0x50) return openArchive(file, where)
  if (isTar(begin))
    throw malformed(
      where,
      'a file of torch.save',
      'a tar archive, as it wrote before PyTorch 0.1.10',
      'Load it with PyTorch, and save it again.',
    )
  if (begin[0] === protocolMark) return openLegacy(file, where)
  const expected = 'a file of torch.save'
  throw foreignFile(where, expected, begin) ?? malformed(where, expected, 'other bytes')
}

async function openArchive(file: OpenFile, name: string): Promise<TorchFile> {
  const archive = await ZipArchive.open(file)
  const names = [...archive.entries.keys()]
  const pickle = names.find((one) => /^([^/]*\/)?data\.pkl$/.test(one))
  if (pickle === undefined)
    throw malformed(
      name,
      'an archive of torch.save, with data.pkl',
      `the entries ${clipped(names.join(', ')) || 'of none'}`,
      names.some((one) => one.endsWith('.npy'))
        ? 'Read an .npz with readNpz, and pass its arrays to model.loadStateDict.'
        : 'Save a state_dict() with torch.save.',
    )
  const root = pickle.slice(0, -'data.pkl'.length)
  if (archive.entries.has(`${root}constants.pkl`))
    throw malformed(
      name,
      'a file of torch.save',
      'a program of torch.jit.save',
      'Load it with torch.jit.load, and save its state_dict() with torch.save.',
    )
  const read = async (entry: string, sizeBytes?: number, max = Number.POSITIVE_INFINITY) => {
    const { sizeBytes: actual = 0, isDeflated = false } = archive.entries.get(entry) ?? {}
    const where = `${name}, entry "${clipped(entry)}"`
    // A few bytes of them may be made to fill memory, and torch.save writes none.
    if (isDeflated)
      throw malformed(
        where,
        'stored bytes',
        'deflated ones',
        'Unpack it, and zip it with `zip -0`.',
      )
    if (actual > max) throw malformed(where, `at most ${max} bytes`, `${actual}`)
    const bytes = await archive.read(entry)
    if (sizeBytes !== undefined && bytes.length !== sizeBytes)
      throw malformed(where, `${sizeBytes} bytes`, `${bytes.length}`)
    return bytes
  }
  const bytes = await read(pickle, undefined, maxPickleBytes)
  const order = `${root}byteorder`
  const byteOrder = archive.entries.has(order)
    ? new TextDecoder().decode(await read(order, undefined, firstBytes)).trim()
    : 'little'
  if (byteOrder !== 'little' && byteOrder !== 'big')
    throw malformed(name, 'the byte order little or big', `"${clipped(byteOrder)}"`)
  const { value } = readPickle(bytes, 0, name, torchClasses(bytes.length, new Map()))
  return {
    name,
    value,
    isBigEndian: byteOrder === 'big',
    sizeBytes: [...archive.entries.values()].reduce((sum, entry) => sum + entry.sizeBytes, 0),
    read: ({ key, recordLength, itemBytes }) =>
      read(`${root}data/${key}`, recordLength * itemBytes),
  }
}

async function openLegacy(file: OpenFile, name: string): Promise<TorchFile> {
  const { value, keys, end, storages } = await readPickles(file, name)
  const places = new Map<string, number>()
  let at = end
  for (const key of keys) {
    const storage = storages.get(key)
    if (!storage || places.has(key))
      throw malformed(name, 'the keys of its storages, once each', `"${clipped(key)}"`)
    const count = await file.read(at, at + 8)
    const sizeBytes = storage.length * storage.itemBytes
    const length =
      count.length === 8 ? new DataView(count.buffer, count.byteOffset).getBigUint64(0, true) : 0n
    if (length !== BigInt(storage.length) || at + 8 + sizeBytes > file.sizeBytes)
      throw malformed(
        name,
        `${storage.length} elements of storage "${clipped(key)}" at byte ${at}`,
        at + 8 + sizeBytes > file.sizeBytes ? `the file's end (truncated)` : `${length}`,
      )
    places.set(key, at + 8)
    at += 8 + sizeBytes
  }
  return {
    name,
    value,
    isBigEndian: false,
    sizeBytes: file.sizeBytes,
    async read({ key, recordLength, itemBytes }) {
      const place = places.get(key)
      if (place === undefined) throw malformed(name, `a storage "${clipped(key)}"`, 'none')
      return file.read(place, place + recordLength * itemBytes)
    },
  }
}

/** Nothing says how long the pickles are: more is read where they turn out longer. */
async function readPickles(file: OpenFile, name: string) {
  for (let max = firstBytes; ; max *= 4) {
    const bytes = await file.read(0, Math.min(max, maxPickleBytes))
    try {
      return parsePickles(bytes, name)
    } catch (thrown) {
      if (bytes.length === file.sizeBytes || bytes.length === maxPickleBytes) throw thrown
    }
  }
}

function parsePickles(bytes: Uint8Array, name: string) {
  const storages = new Map<string, Storage>()
  const classes = torchClasses(bytes.length, storages)
  let end = 0
  const next = () => {
    const read = readPickle(bytes, end, name, classes)
    end = read.end
    return read.value
  }
  if (next() !== magic)
    throw malformed(
      name,
      'a file of torch.save',
      'another pickle',
      'Save a state_dict() with torch.save.',
    )
  const version = next()
  if (version !== legacyVersion)
    throw malformed(name, `version ${legacyVersion}`, clipped(String(version)))
  next()
  const value = next()
  const keys = next()
  if (!Array.isArray(keys) || !keys.every((key) => typeof key === 'string'))
    throw malformed(name, 'the keys of its storages', 'other values')
  return { value, keys: keys as string[], end, storages }
}
