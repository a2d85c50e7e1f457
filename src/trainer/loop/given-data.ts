import type { ProcessGroup } from '../../peer/group/group.ts'
import { TabringError } from '../../util/errors.ts'
import { givenData, type TrainConfig } from '../settings/config.ts'
import type { DemoMeta } from '../settings/demo-meta.ts'

/** It travels in pieces of this size, so that people see it go. units: bytes. */
export const pieceBytes = 2 ** 20

/**
 * Returns what a person gave on one of the ranks, the same bytes on all of them; null unless `config.data` is `given`. All ranks call it.
 *
 * With several ranks `onProgress` is told after each piece how many bytes have gone.
 * errors: on all ranks alike: `data.missing` where nobody gave anything, `data.malformed` where two did, or more than the demo takes; the
 * group's.
 */
export async function shareGiven(
  group: ProcessGroup,
  config: TrainConfig,
  { given: expected }: DemoMeta,
  own: Uint8Array | undefined,
  onProgress: (doneBytes: number, totalBytes: number) => void = () => undefined,
): Promise<Uint8Array<ArrayBuffer> | null> {
  if (config.data !== givenData || !expected) return null
  const sizes = await group.allGatherU32(Uint32Array.of(own?.length ?? 0), {
    label: 'the user-supplied data',
  })
  const givers = [...sizes].flatMap((size, rank) => (size > 0 ? [rank] : []))
  if (givers.length === 0) {
    throw new TabringError(
      'data.missing',
      `data: no rank supplied ${expected.words}. Supply it again, or choose other data.`,
    )
  }
  if (givers.length > 1) {
    throw new TabringError(
      'data.malformed',
      `data: only one rank may supply data, got it from ranks ${givers.join(' and ')}. Supply it on one of them.`,
    )
  }
  const [giver] = givers
  const size = sizes[giver]
  if (size > expected.mostBytes) {
    throw new TabringError(
      'data.malformed',
      `data: expected ${expected.words} of at most ${expected.mostBytes} bytes, got ${size}. Supply less of it.`,
    )
  }
  const bytes = new Uint8Array(size)
  if (giver === group.rank && own) bytes.set(own)
  for (let begin = 0; group.size > 1 && begin < size; begin += pieceBytes) {
    const end = Math.min(size, begin + pieceBytes)
    await group.broadcast(bytes.subarray(begin, end), giver, { label: 'the user-supplied data' })
    onProgress(end, size)
  }
  return bytes
}
