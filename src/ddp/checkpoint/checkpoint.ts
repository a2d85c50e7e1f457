import { getCheckpoint, privateCheckpoints, putCheckpoint } from '../../data/checkpoint-folder.ts'
import type { FileFolder } from '../../data/file-store.ts'
import { type SavedState, save } from '../../data/saved-tree.ts'
import { getProcessGroup, isInitialized } from '../../distributed/group/default-group.ts'
import { memberGroup } from '../../distributed/group/group-of.ts'
import { getRngState } from '../../nn/init.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import { DataError, type ErrorCode, messageOf, TabringError } from '../../util/errors.ts'
import { checkNumber, checkOptions, isCount } from '../../util/options.ts'
import { DistributedDataParallel } from '../data-parallel/data-parallel.ts'
import {
  type CheckpointState,
  type Parts,
  readState,
  type UnpackOptions,
  unpackAt,
  whenReady,
} from './checkpoint-file.ts'
import { offeredFolder } from './launcher-folder.ts'

/** Where files are, and who takes part. */
export interface CheckpointOptions {
  /** Default: the launcher's (`launcherFolder`), else one of the origin private file system. Only the group's rank 0 uses it. */
  folder?: FileFolder
  /** The ranks that save or load together; default: those of the wrapped model that is saved, else of `initProcessGroup`, else this rank alone. */
  processGroup?: CollectiveGroup
}

export interface SaveCheckpointOptions extends CheckpointOptions {
  /** Whether this is the best one so far; it stays, however old it gets, until there is a better one. Default false. */
  isBest?: boolean
  /** How many files stay, besides the best one; default 2. */
  keepLast?: number
}

export interface LoadCheckpointOptions extends CheckpointOptions, UnpackOptions {
  /** `latest` (the default), `best`, or a file's name. */
  which?: string
}

const privateName = 'default'
/** Rank 0 may take so long over a file before the others give up. */
const fileDeadlineMs = 600_000

/**
 * Saves what `state` has, by name (parts as `model`, `optimizer`, `scheduler`, `loader`, and plain values as `epoch`, `step`,
 * `bestAccuracy`), with the random state, as a .safetensors file of its own in a folder; returns the file's name when it is there.
 *
 * As `save_checkpoint` of PyTorch's ImageNet example, with these differences: all ranks of the group call it, its rank 0 alone writes, and all wait
 * until it has; whatever ends it on the way leaves the files before it as they were. The file is named by `step`, else by `epoch`. One run
 * has one folder, and one save at a time.
 * errors: `file.unwritable`, those of packCheckpoint and of the folder, on all ranks alike; `peer.*`.
 */
export async function saveCheckpoint(
  state: CheckpointState,
  options: SaveCheckpointOptions = {},
): Promise<string> {
  const names = { folder: true, processGroup: true, isBest: true, keepLast: true } as const
  const { isBest = false, keepLast = 2, ...placed } = checkOptions('saveCheckpoint', options, names)
  if (placed.processGroup) memberGroup('saveCheckpoint', placed.processGroup)
  checkNumber('saveCheckpoint', 'keepLast', keepLast, isCount, 'a whole number above 0')
  const group = groupOf(placed, state)
  await whenReady(state)
  // Ranks may be seeded each for itself, as scripts for PyTorch do: each is to go on with its own.
  const randoms =
    group && group.size > 1
      ? await gatherJson('the random state', group, getRngState(), { deadlineMs: fileDeadlineMs })
      : []
  const write = async () => {
    const states = await readState(state, randoms)
    if (group && group.rank !== 0) return ''
    const folder = placed.folder ?? (await defaultFolder())
    const entry = await putCheckpoint(folder, save(states), {
      label: labelOf(state),
      isBest,
      keepLast,
    })
    return entry.name
  }
  return (await together(group, write))[0]
}

/**
 * Puts a saved file into `parts` and returns its plain values; undefined where nothing has been saved yet.
 *
 * All ranks call it; rank 0 reads the file and gives it to the others, so that as many ranks as there are now go on from it. With another
 * number of ranks sums are added in another order, and the numbers are close to, not equal to, those of the run that was saved. Load before
 * the step is compiled; more in `unpackCheckpoint`.
 * errors: `data.missing` for a file that is not there, `data.checksum` for one that has changed, on all ranks alike; those of
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
    which: true,
    strict: true,
    onDifferences: true,
  })
  if (placed.processGroup) memberGroup('loadCheckpoint', placed.processGroup)
  await whenReady(parts)
  const group = groupOf(placed, parts)
  const file = await readTogether(group, async () =>
    getCheckpoint(placed.folder ?? (await defaultFolder()), which),
  )
  return file && unpackAt<Values>(file, parts, { strict, onDifferences }, group ?? alone)
}

const alone = { rank: 0, size: 1 }

/** Returns on all ranks what rank 0 reads. errors: rank 0's, on all ranks; the group's. */
export async function readTogether(
  group: CollectiveGroup | undefined,
  read: () => Promise<Uint8Array<ArrayBuffer> | undefined>,
): Promise<Uint8Array<ArrayBuffer> | undefined> {
  let own: Uint8Array<ArrayBuffer> | undefined
  const [size] = await together(group, async () => {
    if (!group || group.rank === 0) own = await read()
    return String(own?.length ?? '')
  })
  if (size === '') return undefined
  if (!group || group.size === 1) return own
  const bytes = Number(size)
  // Whole words travel, as the bits that they are.
  const padded = new Uint8Array(Math.ceil(bytes / 4) * 4)
  if (own) padded.set(own)
  await group.broadcast(new Float32Array(padded.buffer), 0, {
    label: 'the checkpoint',
    deadlineMs: fileDeadlineMs,
  })
  return padded.slice(0, bytes)
}

/**
 * Returns what `work` gives on each rank, when it has ended on all; an error of one rank is thrown on all.
 *
 * errors: the first rank's that failed; the group's.
 */
async function together(
  group: CollectiveGroup | undefined,
  work: () => Promise<string>,
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
  const all = await gatherJson('the checkpoint', group, own, { deadlineMs: fileDeadlineMs })
  return all.map((other, rank) => {
    if ('done' in other) return other.done
    if (rank === group.rank) throw failure
    throw new DataError(other.code, `rank ${rank}: ${other.message}`)
  })
}

/** What `work` gives. errors: those of ours as they are, what a folder throws as `file.unwritable`. */
async function ended(work: () => Promise<string>): Promise<string> {
  try {
    return await work()
  } catch (thrown) {
    if (thrown instanceof TabringError) throw thrown
    throw new DataError(
      'file.unwritable',
      `checkpoint: expected the folder to be read and written, got ${messageOf(thrown).replace(/\.$/, '')}. Choose another, or look at its disk.`,
      { cause: thrown },
    )
  }
}

/** What a rank tells the others of its work. */
type Outcome = { readonly done: string } | { readonly code: ErrorCode; readonly message: string }

const defaultFolder = async (): Promise<FileFolder> =>
  offeredFolder() ?? (await privateCheckpoints(privateName))

/** The group that is given, else that of a wrapped model, else all ranks; undefined where this rank is alone. */
function groupOf(
  { processGroup }: CheckpointOptions,
  state: CheckpointState,
): CollectiveGroup | undefined {
  if (processGroup) return processGroup
  const wrapped = Object.values(state).find((part) => part instanceof DistributedDataParallel)
  return wrapped?.processGroup ?? (isInitialized() ? getProcessGroup() : undefined)
}

const labelOf = ({ step, epoch }: CheckpointState): string => {
  if (typeof step === 'number') return `step-${step}`
  return typeof epoch === 'number' ? `epoch-${epoch}` : 'checkpoint'
}
