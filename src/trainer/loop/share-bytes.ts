import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { leftOutError } from '../../peer/room/refusals.ts'

/** Bytes travel in pieces of this size, so that people see them go. units: bytes. */
export const pieceBytes = 2 ** 20

export interface SharedBytes {
  /** The rank that has them, and how many they are: the same on all ranks. */
  readonly giver: number
  readonly sizeBytes: number
  /** On the giver. */
  readonly own: Uint8Array | undefined
  readonly label: string
  /** On a rank that joins: how long it may take. units: ms. */
  readonly limitMs?: number
  /** Called after each piece. */
  readonly onProgress?: (doneBytes: number, totalBytes: number) => void
}

/**
 * Returns on all ranks the bytes that one of them has. All ranks call it.
 *
 * errors: the group's; `peer.timeout` after `limitMs`: the others continue without this rank.
 */
export async function shareBytes(
  group: CollectiveGroup,
  { limitMs, onProgress, ...shared }: SharedBytes,
): Promise<Uint8Array<ArrayBuffer>> {
  let doneBytes = 0
  const sent = sendPieces(group, shared, (done) => {
    doneBytes = done
    onProgress?.(done, shared.sizeBytes)
  })
  if (limitMs === undefined) return sent
  const late = new Promise<never>((_, reject) => {
    const cancel = group.env.after(limitMs, () =>
      reject(
        leftOutError(
          'peer.timeout',
          `${doneBytes} of ${shared.sizeBytes} bytes of ${shared.label} came within ${limitMs / 1000} s. Check the connection of this tab.`,
        ),
      ),
    )
    sent.then(cancel, cancel)
  })
  return Promise.race([sent, late])
}

async function sendPieces(
  group: CollectiveGroup,
  { giver, sizeBytes, own, label }: SharedBytes,
  onProgress: (doneBytes: number) => void,
): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(sizeBytes)
  if (giver === group.rank && own) bytes.set(own)
  for (let begin = 0; group.size > 1 && begin < sizeBytes; begin += pieceBytes) {
    const end = Math.min(sizeBytes, begin + pieceBytes)
    await group.broadcast(bytes.subarray(begin, end), giver, { label })
    onProgress(end)
  }
  return bytes
}
