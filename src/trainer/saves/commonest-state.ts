import { type CheckpointEntry, getCheckpoint, readManifest } from '../../data/checkpoint-folder.ts'
import type { FileFolder } from '../../data/file-store.ts'
import { readTogether } from '../../ddp/checkpoint/checkpoint.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { isRecord, isText } from '../../util/kind-of.ts'

/** A file in a rank's place for checkpoints, as it tells the others of it. */
export interface HeldFile {
  readonly name: string
  /** Equal for equal states. */
  readonly state: string
  /** units: ms of Unix time. */
  readonly savedAtMs: number
}

const isHeldFiles = (received: unknown): received is HeldFile[] =>
  Array.isArray(received) &&
  received.every(
    (one) =>
      isRecord(one) && isText(one.name) && isText(one.state) && Number.isFinite(one.savedAtMs),
  )

/** A state that ranks have files of. */
export interface HeldState {
  /** By rank; undefined for one that has none. */
  readonly names: readonly (string | undefined)[]
  readonly holders: number
}

/**
 * The newest state that more than half of the ranks have files of; where there is none, of those that most have the newest. Undefined where no
 * rank has any.
 *
 *     rank 0: steps 200, 300   rank 1: 100, 200   rank 2: 200   ->   200, which 3 hold
 *
 * `held`: by rank, each from the oldest to the newest file; the same on all ranks.
 */
export function commonestState(held: readonly (readonly HeldFile[])[]): HeldState | undefined {
  const states = [...new Set(held.flatMap((files) => files.map(({ state }) => state)))]
  const found = states.map((state) => {
    const at = held.map((own) => own.findLastIndex((file) => file.state === state))
    const files = held.map((own, rank) => own[at[rank]])
    const savedAtMs = Math.max(...files.map((file) => file?.savedAtMs ?? 0))
    return { at, files, savedAtMs, holders: files.filter(Boolean).length }
  })
  const max = Math.max(...found.map(({ holders }) => holders))
  const min = Math.min(max, Math.floor(held.length / 2) + 1)
  const enough = found.filter(({ holders }) => holders >= min)
  if (enough.length === 0) return undefined
  // Of two that one rank has both, it knows which is newer; clocks of machines differ.
  const { files, holders } = enough.reduce((a, b) => {
    const judge = held.findIndex((_, rank) => a.at[rank] >= 0 && b.at[rank] >= 0)
    const isNewer = judge < 0 ? b.savedAtMs > a.savedAtMs : b.at[judge] > a.at[judge]
    return isNewer ? b : a
  })
  return { names: files.map((file) => file?.name), holders }
}

/**
 * Reads on all ranks the state that `commonestState` finds, from the first rank whose file of it is whole. Undefined where no rank has any.
 *
 * errors: of the last holder's file, where all of them are damaged; the group's.
 */
export async function readOfMost(
  group: ProcessGroup,
  folder: () => Promise<FileFolder>,
): Promise<{ file: Uint8Array<ArrayBuffer>; holders: number } | undefined> {
  const held = await gatherJson('the checkpoints', group, await filesIn(folder), isHeldFiles)
  const found = commonestState(held)
  if (!found) return undefined
  const { names, holders } = found
  const ranks = [...names.keys()].filter((rank) => names[rank] !== undefined)
  for (const reader of ranks) {
    try {
      const read = async () => getCheckpoint(await folder(), names[reader]!)
      const file = await readTogether(group, read, reader)
      if (file) return { file, holders }
    } catch (error) {
      if (group.error || reader === ranks.at(-1)) throw error
    }
  }
  return undefined
}

/** This rank's files; none where its place cannot be read. */
async function filesIn(folder: () => Promise<FileFolder>): Promise<HeldFile[]> {
  const manifest = await folder()
    .then(readManifest)
    .catch(() => undefined)
  return (manifest?.files ?? []).map(heldFile)
}

const heldFile = ({ name, sha256, stateHash, savedAtMs = 0 }: CheckpointEntry): HeldFile => ({
  name,
  state: stateHash ?? sha256,
  savedAtMs,
})
