import type { CollectiveGroup } from '../../peer/group/collective-group.ts'

/** Bytes travel in pieces of this size, so that people see them go. units: bytes. */
export const pieceBytes = 2 ** 20

export interface SharedBytes {
  /** The rank that has them, and how many they are: the same on all ranks. */
  readonly giver: number
  readonly sizeBytes: number
  /** On the giver. */
  readonly own: Uint8Array | undefined
  readonly label: string
  /** Called after each piece. */
  readonly onProgress?: (doneBytes: number, totalBytes: number) => void
}

/** Returns on all ranks the bytes that one of them has. All ranks call it. errors: the group's. */
export async function shareBytes(
  group: CollectiveGroup,
  { giver, sizeBytes, own, label, onProgress }: SharedBytes,
): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(sizeBytes)
  if (giver === group.rank && own) bytes.set(own)
  for (let begin = 0; group.size > 1 && begin < sizeBytes; begin += pieceBytes) {
    const end = Math.min(sizeBytes, begin + pieceBytes)
    await group.broadcast(bytes.subarray(begin, end), giver, { label })
    onProgress?.(end, sizeBytes)
  }
  return bytes
}
