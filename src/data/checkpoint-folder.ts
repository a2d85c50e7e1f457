import { sha256 } from '@noble/hashes/sha2.js'
import { bytesToHex } from '@noble/hashes/utils.js'
import { DataError } from '../util/errors.ts'
import { type FileFolder, hasPrivateFiles, privateFileStore } from './file-store.ts'
import { privateRoot } from './private-checkpoints.ts'

/**
 * Checkpoints in a folder: whole files, and a manifest that says which of them count.
 *
 * A save writes its file under a name that the manifest does not have, then the manifest, which takes the old one's place as a whole, and
 * then removes what no longer counts. Whatever ends a save in between leaves the manifest, and all files that it names, as they were.
 */

/** A saved file as the manifest has it. */
export interface CheckpointEntry {
  readonly name: string
  /** What the file is of: `step-1200`. */
  readonly label: string
  readonly sizeBytes: number
  readonly sha256: string
}

export interface CheckpointManifest {
  readonly version: 1
  /** The oldest first; the last one is the latest. */
  readonly files: readonly CheckpointEntry[]
  /** The name of the best one; null before there was one. */
  readonly best: string | null
  /** Names that may still be there and count no more. */
  readonly leftover: readonly string[]
}

export interface PutOptions {
  /** What the file is of: letters, digits and dashes. A newer file of the same takes the older one's place. */
  readonly label: string
  readonly isBest: boolean
  /** How many files stay, besides the best one. */
  readonly keepLast: number
}

export const manifestName = 'checkpoints.json'

const fileName = (label: string, attempt: number) =>
  `${label}${attempt > 1 ? `-${attempt}` : ''}.safetensors`

/** A folder for checkpoints in the origin private file system. errors: `file.unwritable` where there is none. */
export async function privateCheckpoints(name: string): Promise<FileFolder> {
  if (hasPrivateFiles()) return privateFileStore(privateRoot).folder(name)
  throw new DataError(
    'file.unwritable',
    'checkpoint: expected a browser with an origin private file system that can be written, got none here. Name a folder for them, or save none.',
  )
}

/** Takes a file out of the folder; nothing happens where there is none of that name. errors: the folder's. */
export async function removeCheckpoint(folder: FileFolder, name: string): Promise<void> {
  const remove = async () => {
    const manifest = await readManifest(folder)
    if (!manifest?.files.some((file) => file.name === name)) return
    const files = manifest.files.filter((file) => file.name !== name)
    const best = manifest.best === name ? null : manifest.best
    const leftover = manifest.leftover
    await writeManifest(folder, { version: 1, files, best, leftover: [...leftover, name] })
    await folder.remove(name)
    await writeManifest(folder, { version: 1, files, best, leftover })
  }
  await (folder.alone ? folder.alone(remove) : remove())
}

/** Adds a file to the folder and returns its entry. Two tabs that save into one folder take turns. errors: the folder's. */
export async function putCheckpoint(
  folder: FileFolder,
  contents: Uint8Array<ArrayBuffer>,
  options: PutOptions,
): Promise<CheckpointEntry> {
  const put = () => putAlone(folder, contents, options)
  return folder.alone ? folder.alone(put) : put()
}

async function putAlone(
  folder: FileFolder,
  contents: Uint8Array<ArrayBuffer>,
  { label, isBest, keepLast }: PutOptions,
): Promise<CheckpointEntry> {
  const before = (await readManifest(folder)) ?? { files: [], best: null, leftover: [] }
  const taken = new Set([...before.files.map(({ name }) => name), ...before.leftover])
  let attempt = 1
  while (taken.has(fileName(label, attempt))) attempt++
  const entry: CheckpointEntry = {
    name: fileName(label, attempt),
    label,
    sizeBytes: contents.length,
    sha256: bytesToHex(sha256(contents)),
  }
  await folder.write(entry.name, new Blob([contents]))

  const best = isBest ? entry.name : before.best
  const others = before.files.filter((file) => file.label !== label)
  const newest = [...others, entry].slice(-keepLast)
  const kept = before.files.filter((file) => file.name === best || newest.includes(file))
  const files = [...kept, entry]
  const names = files.map(({ name }) => name)
  const leftover = [...taken].filter((name) => !names.includes(name))
  await writeManifest(folder, { version: 1, files, best, leftover })
  for (const name of leftover) await folder.remove(name)
  if (leftover.length > 0) await writeManifest(folder, { version: 1, files, best, leftover: [] })
  return entry
}

/**
 * Returns the latest file, the best one, or the one of that name, whole and as it was saved; undefined where nothing has been saved yet and
 * the latest is asked for.
 *
 * errors: `data.missing`, `data.checksum`, `data.malformed`; the folder's.
 */
export async function getCheckpoint(
  folder: FileFolder,
  which: string,
): Promise<Uint8Array<ArrayBuffer> | undefined> {
  const manifest = await readManifest(folder)
  if (!manifest && which === 'latest') return undefined
  const entry = manifest && entryOf(manifest, which)
  if (!entry) {
    const names = manifest?.files.map(({ name }) => name).join(', ')
    throw new DataError(
      'data.missing',
      `checkpoint: expected the ${which === 'best' ? 'best one' : `file "${which}"`}, got ${names ? `a folder with ${names}` : 'an empty folder'}. Choose latest, best or one of the files.`,
    )
  }
  const blob = await folder.read(entry.name)
  const contents = blob && new Uint8Array(await blob.arrayBuffer())
  if (contents && bytesToHex(sha256(contents)) === entry.sha256) return contents
  const others = manifest.files.filter((file) => file !== entry).map(({ name }) => name)
  throw new DataError(
    contents ? 'data.checksum' : 'data.missing',
    `checkpoint: expected "${entry.name}" as it was saved (${entry.sizeBytes} bytes, SHA-256 ${entry.sha256}), got ${contents ? `${contents.length} bytes that differ` : 'no such file'}. ${others.length > 0 ? `Resume from ${others.reverse().join(' or ')}.` : 'Start anew.'}`,
  )
}

/** The entry that `latest`, `best` or a file's name means. */
export function entryOf(
  { files, best }: CheckpointManifest,
  which: string,
): CheckpointEntry | undefined {
  if (which === 'latest') return files.at(-1)
  return files.find(({ name }) => name === (which === 'best' ? best : which))
}

/** The folder's manifest; undefined where nothing has been saved yet. errors: `data.malformed`; the folder's. */
export async function readManifest(
  folder: Pick<FileFolder, 'read'>,
): Promise<CheckpointManifest | undefined> {
  const blob = await folder.read(manifestName)
  // A browser makes the file of a name empty before its first contents take their place.
  if (!blob || blob.size === 0) return undefined
  const text = await blob.text()
  let manifest: unknown
  try {
    manifest = JSON.parse(text)
  } catch {
    manifest = undefined
  }
  if (isManifest(manifest)) return manifest
  throw new DataError(
    'data.malformed',
    `checkpoint: expected a manifest of version 1 in ${manifestName}, got ${text.slice(0, 60)}. Use another folder, or remove this file.`,
  )
}

const writeManifest = (folder: FileFolder, manifest: CheckpointManifest): Promise<void> =>
  folder.write(manifestName, new Blob([`${JSON.stringify(manifest, null, 1)}\n`]))

function isManifest(value: unknown): value is CheckpointManifest {
  if (typeof value !== 'object' || value === null) return false
  const { version, files, best, leftover } = value as Record<string, unknown>
  const isEntry = (file: unknown): boolean =>
    typeof file === 'object' &&
    file !== null &&
    ['name', 'label', 'sha256'].every((key) => typeof Reflect.get(file, key) === 'string') &&
    typeof Reflect.get(file, 'sizeBytes') === 'number'
  return (
    version === 1 &&
    Array.isArray(files) &&
    files.every(isEntry) &&
    (best === null || typeof best === 'string') &&
    Array.isArray(leftover)
  )
}
