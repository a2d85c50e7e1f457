import { getCheckpoint, privateCheckpoints, putCheckpoint } from '../../data/checkpoint-folder.ts'
import type { FileFolder } from '../../data/file-store.ts'
import { type SavedState, save } from '../../data/saved-tree.ts'
import { getProcessGroup, isInitialized } from '../../distributed/group/default-group.ts'
import { memberGroup } from '../../distributed/group/group-of.ts'
import { getRngState } from '../../nn/init.ts'
import { broadcastBytes } from '../../peer/group/broadcast-bytes.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import { calledAs } from '../../util/called-as.ts'
import { clippedMessage } from '../../util/clipped.ts'
import { type ErrorRecord, isErrorRecord } from '../../util/error-codes.ts'
import { DataError, messageOf, TabringError } from '../../util/errors.ts'
import { isRecord, isText } from '../../util/kind-of.ts'
import {
  checkArgument,
  checkFlag,
  checkNumber,
  checkOptions,
  isCount,
  isNotNegative,
} from '../../util/options.ts'
import { DistributedDataParallel } from '../data-parallel/data-parallel.ts'
import {
  type CheckpointState,
  isRngState,
  type Parts,
  prepareAt,
  readReady,
  type UnpackOptions,
  whenReady,
} from './checkpoint-file.ts'
import { offeredFolder } from './launcher-folder.ts'

/** Where checkpoints are, and which ranks take part. */
export interface CheckpointOptions {
  /** Folder of the files. Default: the launcher's (`launcherFolder`), else one in the origin private file system. Only the group's rank 0 uses it. */
  folder?: FileFolder
  /** Ranks that save or load together. Default: those of the wrapped model, else those of `initProcessGroup`, else this rank alone. */
  processGroup?: CollectiveGroup
}

/** Options of `saveCheckpoint`. */
export interface SaveCheckpointOptions extends CheckpointOptions {
  /** True if this is the best checkpoint so far. It is kept until there is a better one. Default false. */
  isBest?: boolean
  /** Number of files to keep, in addition to the best one. Default 2. */
  keepLast?: number
}

/** Options of `loadCheckpoint`. */
export interface LoadCheckpointOptions extends CheckpointOptions, UnpackOptions {
  /** Which checkpoint to load: `latest` (the default), `best`, or the name of a file. */
  which?: string
}

const privateName = 'default'
/** Rank 0 may take so long over a file before the others give up. units: ms. */
export const fileDeadlineMs = 600_000

/** In the words of errors: scripts for PyTorch save on rank 0 alone. */
const firstOfSave = 'saveCheckpoint by all ranks'
/** A file travels in pieces of this size, so that nobody makes room for what does not come. units: bytes. */
const pieceBytes = 2 ** 26
/** No file is larger. units: bytes. */
export const maxFileBytes = 2 ** 32

/**
 * Saves `state` and the random state as a new .safetensors file in a folder, and returns the name of the file once it is written. `state` holds
 * parts such as `model`, `optimizer`, `scheduler`, `loader`, and plain values such as `epoch`, `step`, `bestAccuracy`.
 *
 * As `save_checkpoint` of PyTorch's ImageNet example, with these differences. All ranks of the group call it, only its rank 0 writes, and all
 * wait until it has. An interrupted save leaves the earlier files unchanged. The file is named after `step`, else after `epoch`. Use one
 * folder per run, and one save at a time.
 * errors, the same on all ranks: `file.unwritable`, those of packCheckpoint and of the folder; `peer.*`.
 */
export async function saveCheckpoint(
  state: CheckpointState,
  options: SaveCheckpointOptions = {},
): Promise<string> {
  const names = { folder: true, processGroup: true, isBest: true, keepLast: true } as const
  const { isBest = false, keepLast = 2, ...placed } = checkOptions('saveCheckpoint', options, names)
  if (placed.processGroup !== undefined) memberGroup('saveCheckpoint', placed.processGroup)
  checkNumber('saveCheckpoint', 'keepLast', keepLast, isCount, 'a whole number above 0')
  checkFlag('saveCheckpoint', 'isBest', isBest)
  await whenReady('saveCheckpoint', 'state', state)
  const group = groupOf(placed, state)
  // Ranks may be seeded each for itself, as scripts for PyTorch do: each is to go on with its own.
  const randoms =
    group && group.size > 1 ? await gatherJson(firstOfSave, group, getRngState(), isRngState) : []
  const write = async () => {
    const states = await readReady('saveCheckpoint', state, randoms)
    if (group && group.rank !== 0) return ''
    const folder = await folderOf('saveCheckpoint', placed)
    const file = calledAs('saveCheckpoint', 'save', () => save(states))
    const entry = await putCheckpoint(folder, file, {
      label: labelOf(state),
      isBest,
      keepLast,
    })
    return entry.name
  }
  return (await together(group, write))[0]
}

/**
 * Loads a saved file into `parts` and returns its plain values; undefined if nothing has been saved yet.
 *
 * All ranks call it. Rank 0 reads the file and sends it to the others, so the number of ranks may differ from the saved run. Sums are then
 * added in another order, and the numbers are close to those of the saved run, not equal. Load before the step is compiled; see
 * `unpackCheckpoint`. All parts of all ranks load, or none.
 * errors, the same on all ranks: `data.missing` for a file that does not exist, `data.checksum` for one that has changed; those of
 * unpackCheckpoint; `peer.*`.
 */
export async function loadCheckpoint<Values extends SavedState = SavedState>(
  parts: Parts = {},
  options: LoadCheckpointOptions = {},
): Promise<Values | undefined> {
  const {
    which = 'latest',
    strict,
    onDifferences,
    ...placed
  } = checkOptions('loadCheckpoint', options, {
    folder: true,
    processGroup: true,
    which: 'text',
    strict: 'flag',
    onDifferences: 'function',
  })
  if (placed.processGroup !== undefined) memberGroup('loadCheckpoint', placed.processGroup)
  await whenReady('loadCheckpoint', 'the parts', parts)
  const group = groupOf(placed, parts)
  const file = await readTogether(group, async () =>
    getCheckpoint(await folderOf('loadCheckpoint', placed), which),
  )
  if (!file) return undefined
  let load!: () => Promise<Values>
  // A part that cannot load on one rank loads on none.
  await together(group, async () => {
    const options = { strict, onDifferences }
    load = await prepareAt<Values>('loadCheckpoint', file, parts, options, group ?? alone)
    return ''
  })
  return load()
}

const alone = { rank: 0, size: 1 }

/** Returns on all ranks what rank `reader` reads. errors: that rank's, on all ranks; `peer.protocol` for what is no size; the group's. */
export async function readTogether(
  group: CollectiveGroup | undefined,
  read: () => Promise<Uint8Array<ArrayBuffer> | undefined>,
  reader = 0,
): Promise<Uint8Array<ArrayBuffer> | undefined> {
  let own: Uint8Array<ArrayBuffer> | undefined
  const sizes = await together(
    group,
    async () => {
      if (!group || group.rank === reader) own = await read()
      return String(own?.length ?? '')
    },
    isSize,
  )
  const size = sizes[group && group.size > 1 ? reader : 0]
  if (size === '') return undefined
  if (!group || group.size === 1) return own
  return broadcastBytes(
    group,
    { root: reader, sizeBytes: Number(size), own, pieceBytes },
    { label: 'the checkpoint', deadlineMs: fileDeadlineMs },
  )
}

/** Tells whether a rank may say that of what it has read; empty for no file. */
const isSize = (received: string): boolean =>
  /^\d{0,10}$/.test(received) && Number(received) <= maxFileBytes

/**
 * Returns what `work` gives on each rank, when it has ended on all; an error of one rank is thrown on all. `isDone`: whether `work` can give that.
 *
 * errors: the first rank's that failed; the group's.
 */
async function together(
  group: CollectiveGroup | undefined,
  work: () => Promise<string>,
  isDone: (received: string) => boolean = () => true,
): Promise<string[]> {
  if (!group || group.size === 1) return [await ended(work)]
  let failure: TabringError | undefined
  const own = await ended(work).then(
    (done): Outcome => ({ done }),
    (thrown: TabringError): Outcome => {
      failure = thrown
      return { code: thrown.code, message: thrown.message }
    },
  )
  const options = { deadlineMs: fileDeadlineMs }
  const isReport = (received: unknown): received is Outcome =>
    isErrorRecord(received) ||
    (isRecord(received) && isText(received.done) && isDone(received.done))
  const all = await gatherJson('the checkpoint', group, own, isReport, options)
  return all.map((other, rank) => {
    if ('done' in other) return other.done
    if (rank === group.rank) throw failure
    throw new DataError(other.code, `rank ${rank}: ${clippedMessage(other.message)}`)
  })
}

/** Returns the result of `work`. errors: those of ours as they are, what a folder throws as `file.unwritable`. */
async function ended(work: () => Promise<string>): Promise<string> {
  try {
    return await work()
  } catch (thrown) {
    if (thrown instanceof TabringError) throw thrown
    throw new DataError(
      'file.unwritable',
      `checkpoint: the folder cannot be read or written: ${messageOf(thrown).replace(/\.$/, '')}. Choose another folder, or check its disk.`,
      { cause: thrown },
    )
  }
}

/** Report of a rank to the others on its work. */
type Outcome = { readonly done: string } | ErrorRecord

/** The folder that is given, else the launcher's, else a private one. errors: a TypeError for what is no folder; `file.unwritable`. */
async function folderOf(where: string, { folder }: CheckpointOptions): Promise<FileFolder> {
  if (folder === undefined) return offeredFolder() ?? (await privateCheckpoints(privateName))
  const isFolder = (['read', 'write', 'remove'] as const).every(
    (name) => typeof folder?.[name] === 'function',
  )
  checkArgument(where, 'folder', folder, isFolder, 'one with read(), write() and remove()')
  return folder
}

/** The group that is given, else that of a wrapped model, else all ranks; undefined where this rank is alone. */
function groupOf(
  { processGroup }: CheckpointOptions,
  state: CheckpointState,
): CollectiveGroup | undefined {
  if (processGroup) return processGroup
  const wrapped = Object.values(state).find((part) => part instanceof DistributedDataParallel)
  return wrapped?.processGroup ?? (isInitialized() ? getProcessGroup() : undefined)
}

/** errors: `config.invalid` for a step or an epoch that counts nothing: the file is named after it. */
const labelOf = (state: CheckpointState): string => {
  for (const name of ['step', 'epoch']) {
    const count = state[name]
    if (count === undefined) continue
    checkNumber(
      'saveCheckpoint',
      name,
      count as number,
      isNotNegative,
      'a finite number of at least 0',
    )
    return `${name}-${count}`
  }
  return 'checkpoint'
}
