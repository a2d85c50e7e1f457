import { type BytesOfRank, broadcastBytes } from '../../peer/group/broadcast-bytes.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { leftOutError } from '../../peer/room/refusals.ts'

/** Small, so that people see the bytes go. units: bytes. */
export const pieceBytes = 2 ** 20

export interface SharedBytes extends Omit<BytesOfRank, 'pieceBytes'> {
  readonly label: string
  /** On a rank that joins: how long it may take. units: ms. */
  readonly limitMs?: number
}

/**
 * Returns on all ranks a copy of the bytes that one of them has. All ranks call it.
 *
 * errors: the group's; `peer.timeout` after `limitMs`: the others continue without this rank.
 */
export async function shareBytes(
  group: CollectiveGroup,
  { label, limitMs, ...shared }: SharedBytes,
): Promise<Uint8Array<ArrayBuffer>> {
  let doneBytes = 0
  const onProgress = (done: number, total: number) => {
    doneBytes = done
    shared.onProgress?.(done, total)
  }
  const sent = broadcastBytes(group, { ...shared, pieceBytes, onProgress }, { label })
  if (limitMs === undefined) return sent
  const late = new Promise<never>((_, reject) => {
    const cancel = group.env.after(limitMs, () =>
      reject(
        leftOutError(
          'peer.timeout',
          `${doneBytes} of ${shared.sizeBytes} bytes of ${label} came within ${limitMs / 1000} s. Check the connection of this tab.`,
        ),
      ),
    )
    sent.then(cancel, cancel)
  })
  return Promise.race([sent, late])
}
