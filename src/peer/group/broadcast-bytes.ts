import type { CollectiveOptions } from '../collective/collectives.ts'
import type { CollectiveGroup } from './collective-group.ts'

/** A long array of bytes that one rank has. All but `own` are the same on all ranks. */
export interface BytesOfRank {
  /** The rank that has them. */
  readonly root: number
  /** How many they are. A caller that has this from the root checks it first. */
  readonly sizeBytes: number
  /** On the root. */
  readonly own: Uint8Array | undefined
  /** They travel in pieces of this size. units: bytes. */
  readonly pieceBytes: number
  /** Called after each piece. */
  readonly onProgress?: (doneBytes: number, totalBytes: number) => void
}

/**
 * Returns on all ranks a copy of the bytes that rank `root` has. All ranks call it. A rank makes room for each piece when it is due, not at
 * once for what the root announced: one that lies must not fill the memory of the others.
 *
 * cost: that of `broadcast`, for one piece after the other. errors: `peer.*`.
 */
export async function broadcastBytes(
  group: CollectiveGroup,
  { root, sizeBytes, own, pieceBytes, onProgress }: BytesOfRank,
  options: CollectiveOptions = {},
): Promise<Uint8Array<ArrayBuffer>> {
  const all = group.rank === root && own ? new Uint8Array(own) : undefined
  if (all && group.size === 1) return all
  const pieces: Uint8Array<ArrayBuffer>[] = []
  for (let begin = 0; begin < sizeBytes; begin += pieceBytes) {
    const end = Math.min(sizeBytes, begin + pieceBytes)
    const piece = all?.subarray(begin, end) ?? new Uint8Array(end - begin)
    await group.broadcast(piece, root, options)
    pieces.push(piece)
    onProgress?.(end, sizeBytes)
  }
  if (all) return all
  const bytes = new Uint8Array(sizeBytes)
  for (const [i, piece] of pieces.entries()) bytes.set(piece, i * pieceBytes)
  return bytes
}
