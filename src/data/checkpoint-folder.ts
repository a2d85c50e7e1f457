import { sha256 } from '@noble/hashes/sha2.js'
import { bytesToHex } from '@noble/hashes/utils.js'
import * as v from 'valibot'
import { clipped } from '../util/clipped.ts'
import { DataError } from '../util/errors.ts'
import { type FileFolder, hasPrivateFiles, opfsFileStore } from './file-store.ts'
import { privateRoot } from './private-checkpoints.ts'
import { readPart } from './read-part.ts'

/**
 * Checkpoints in a folder: whole files, and a manifest that says which of them count.
 *
 * A save writes its file under a name that the manifest does not have, then the manifest, which takes the old one's place as a whole, and
 * then removes what no longer counts. Whatever ends a save in between leaves the manifest, and all files that it names, as they were.
 */

/** How good a checkpoint is, the larger the better, among those that were measured on the same. */
export interface Score {
  readonly on: string
  readonly value: number
}

/** A saved file as the manifest has it. */
export interface CheckpointEntry {
  readonly name: string
  /** What the file is of: `step-1200`. */
  readonly label: string
  readonly sizeBytes: number
  readonly sha256: string
  /** Of the state in it, where files of other ranks may have the same. */
  readonly stateHash?: string
  /** The run that it is of, where runs share the folder. */
  readonly run?: string
  /** A person wants it: it stays until one removes it. */
  readonly isKept?: boolean
  /** units: ms of Unix time. */
  readonly savedAtMs?: number
  /** Words that distinguish its run from others, for people. */
  readonly about?: string
  readonly score?: Score
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
  /** What the file is of: letters, digits and dashes. A newer file of the same, and of the same run, takes the older one's place. */
  readonly label: string
  /**
   * It is the best of its run: the best of the folder, too, unless one of another run has as large a score. A file that has a score is also
   * the best where there is none yet, and where it beats the best one.
   */
  readonly isBest: boolean
  /** How many files of this run stay, besides the best one and those that a person wants. */
  readonly keepLast: number
  /** Of the state in it: where the latest file has the same one, as of another tab of this browser, nothing is written. */
  readonly stateHash?: string
  /** The run that it is of, where runs share the folder. */
  readonly run?: string
  /** Of how many runs files stay, besides the best one and those that a person wants. Default: of all. */
  readonly keepRuns?: number
  /** A person wants it. Default false. */
  readonly isKept?: boolean
  /** units: ms of Unix time. */
  readonly savedAtMs?: number
  /** Words that distinguish its run from others, for people. */
  readonly about?: string
  readonly score?: Score
}

export const manifestName = 'checkpoints.json'

const fileName = (label: string, attempt: number) =>
  `${label}${attempt > 1 ? `-${attempt}` : ''}.safetensors`

/** A folder for checkpoints in the origin private file system. errors: `file.unwritable` where there is none. */
export async function privateCheckpoints(name: string): Promise<FileFolder> {
  if (hasPrivateFiles()) return opfsFileStore(privateRoot).folder(name)
  throw new DataError(
    'file.unwritable',
    'checkpoint: this browser has no writable origin private file system. Pass a folder for the checkpoints, or save none.',
  )
}

/** Takes a file out of the folder; nothing happens where there is none of that name. errors: the folder's. */
export async function removeCheckpoint(folder: FileFolder, name: string): Promise<void> {
  const remove = async () => {
    const manifest = await readManifest(folder)
    const removed = manifest?.files.find((file) => file.name === name)
    if (!manifest || !removed) return
    const files = manifest.files.filter((file) => file !== removed)
    const best = manifest.best === name ? bestLike(files, removed.score) : manifest.best
    const leftover = manifest.leftover
    await writeManifest(folder, { version: 1, files, best, leftover: [...leftover, name] })
    await folder.remove(name)
    await writeManifest(folder, { version: 1, files, best, leftover })
  }
  await underLock(folder, remove)
}

/** Adds a file to the folder and returns its entry. Two tabs that save into one folder take turns. errors: the folder's. */
export async function putCheckpoint(
  folder: FileFolder,
  contents: Uint8Array<ArrayBuffer>,
  options: PutOptions,
): Promise<CheckpointEntry> {
  return underLock(folder, () => putAlone(folder, contents, options))
}

/** Does the work while no other tab reads or writes the folder, where that has a lock. */
export const underLock = <T>(folder: FileFolder, work: () => Promise<T>): Promise<T> =>
  folder.withLock ? folder.withLock(work) : work()

async function putAlone(
  folder: FileFolder,
  contents: Uint8Array<ArrayBuffer>,
  {
    label,
    isBest,
    keepLast,
    stateHash,
    run,
    keepRuns = Number.POSITIVE_INFINITY,
    isKept = false,
    savedAtMs,
    about,
    score,
  }: PutOptions,
): Promise<CheckpointEntry> {
  const before = (await readManifest(folder)) ?? { files: [], best: null, leftover: [] }
  const last = before.files.at(-1)
  const isThere = stateHash !== undefined && last?.stateHash === stateHash
  if (isThere && (last.isKept || !isKept)) return last
  const taken = new Set([...before.files.map(({ name }) => name), ...before.leftover])
  let attempt = 1
  while (taken.has(fileName(label, attempt))) attempt++
  const same = before.files.filter((file) => file.label === label && file.run === run)
  const entry: CheckpointEntry = {
    name: fileName(label, attempt),
    label,
    sizeBytes: contents.length,
    sha256: bytesToHex(sha256(contents)),
    ...(stateHash !== undefined && { stateHash }),
    ...(run !== undefined && { run }),
    // What a person wants stays wanted when the run saves the same step again.
    ...((isKept || same.some((file) => file.isKept)) && { isKept: true }),
    ...(savedAtMs !== undefined && { savedAtMs }),
    ...(about !== undefined && { about }),
    ...(score !== undefined && { score }),
  }
  await folder.write(entry.name, new Blob([contents]))

  const oldBest = before.files.find(({ name }) => name === before.best)
  const lead = leadOf(score, oldBest?.score)
  // The same run's own word counts: it may have gone back to before its best.
  const isFirst = isBest && (oldBest?.run === run || !(lead <= 0))
  // A newer file of the best one's own step is as good, and takes its place.
  const isSame = lead === 0 && same.some((file) => file === oldBest)
  const isScoredFirst = lead > 0 || isSame || (score !== undefined && !oldBest)
  const best = isFirst || isScoredFirst ? entry.name : before.best
  const stays = staying([...before.files.filter((file) => !same.includes(file)), entry], {
    run,
    keepLast,
    keepRuns,
  })
  const kept = before.files.filter((file) => file.name === best || stays.has(file))
  const files = [...kept, entry]
  const names = files.map(({ name }) => name)
  const leftover = [...taken].filter((name) => !names.includes(name))
  await writeManifest(folder, { version: 1, files, best, leftover })
  for (const name of leftover) await folder.remove(name)
  if (leftover.length > 0) await writeManifest(folder, { version: 1, files, best, leftover: [] })
  return entry
}

/** By how much a score is the larger; NaN where the two were not measured on the same. */
const leadOf = (score: Score | undefined, other: Score | undefined): number =>
  score && score.on === other?.on ? score.value - other.value : Number.NaN

/** The best of the files that were measured as `score` was, the oldest of equals; null for none. */
function bestLike(files: readonly CheckpointEntry[], score: Score | undefined): string | null {
  if (!score) return null
  const comparable = files.filter((file) => file.score?.on === score.on)
  const max = Math.max(...comparable.map((file) => file.score!.value))
  return comparable.find((file) => file.score!.value === max)?.name ?? null
}

/** The files, given the oldest first, that stay whatever is best. */
function staying(
  files: readonly CheckpointEntry[],
  { run, keepLast, keepRuns }: Pick<PutOptions, 'run' | 'keepLast'> & { keepRuns: number },
): Set<CheckpointEntry> {
  const free = files.filter(({ isKept }) => !isKept)
  const runs = [...new Set([run, ...free.map((file) => file.run).reverse()])].slice(0, keepRuns)
  const newest = free.filter((file) => file.run === run).slice(-keepLast)
  return new Set(
    files.filter(
      (file) => file.isKept || (file.run === run ? newest.includes(file) : runs.includes(file.run)),
    ),
  )
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
    const wanted = which === 'best' ? 'best checkpoint' : `file "${clipped(which)}"`
    throw new DataError(
      'data.missing',
      `checkpoint: the folder has no ${wanted} (${names ? `it has ${clipped(names, 300)}` : 'it is empty'}). Choose latest, best or one of the files.`,
    )
  }
  const blob = await readPart(folder, entry.name)
  const contents = blob && new Uint8Array(await blob.arrayBuffer())
  if (contents && bytesToHex(sha256(contents)) === entry.sha256) return contents
  const others = manifest.files.filter((file) => file !== entry).map(({ name }) => name)
  const saved = `${entry.sizeBytes} bytes, SHA-256 ${entry.sha256}`
  const problem = contents
    ? `"${clipped(entry.name)}" has changed since it was saved (${saved}): it now has ${contents.length} bytes that differ`
    : `"${clipped(entry.name)}" is missing (saved with ${saved})`
  throw new DataError(
    contents ? 'data.checksum' : 'data.missing',
    `checkpoint: ${problem}. ${others.length > 0 ? `Resume from ${clipped(others.reverse().join(' or '), 300)}.` : 'Start a new run.'}`,
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
  const blob = await readPart(folder, manifestName)
  // A browser makes the file of a name empty before its first contents take their place.
  if (!blob || blob.size === 0) return undefined
  const text = await blob.text()
  let manifest: unknown
  try {
    manifest = JSON.parse(text)
  } catch {
    manifest = undefined
  }
  const checked = v.safeParse(manifestSchema, manifest)
  if (checked.success) return checked.output
  throw new DataError(
    'data.malformed',
    `checkpoint: expected a manifest of version 1 in ${manifestName}, got ${clipped(text)}. Use another folder, or remove this file.`,
  )
}

const writeManifest = (folder: FileFolder, manifest: CheckpointManifest): Promise<void> =>
  folder.write(manifestName, new Blob([`${JSON.stringify(manifest, null, 1)}\n`]))

/** A name in this folder and no other; the text of JSON may say anything. */
const nameSchema = v.pipe(v.string(), v.maxLength(200), v.regex(/^[^./\\\p{Cc}][^/\\\p{Cc}]*$/u))
const text = v.optional(v.string())
const manifestSchema = v.object({
  version: v.literal(1),
  files: v.array(
    v.object({
      name: nameSchema,
      label: v.string(),
      sizeBytes: v.number(),
      sha256: v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/)),
      stateHash: text,
      run: text,
      isKept: v.optional(v.boolean()),
      savedAtMs: v.optional(v.number()),
      about: text,
      score: v.optional(v.object({ on: v.string(), value: v.number() })),
    }),
  ),
  best: v.nullable(v.string()),
  leftover: v.array(nameSchema),
})
