import { shareBytes } from '../../ddp/committed/share-bytes.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { TabringError } from '../../util/errors.ts'
import { givenData, type TrainConfig } from '../settings/config.ts'
import type { DemoMeta } from '../settings/demo-meta.ts'

const label = 'the user-supplied data'

/**
 * Returns what a person gave on one of the ranks, the same bytes on all of them; null unless `config.data` is `given`. All ranks call it.
 *
 * With several ranks `onProgress` is called after each piece with the bytes that have gone.
 * errors: on all ranks: `data.missing` where nobody gave anything, `data.malformed` where two did, or more than the demo takes; those of
 * `shareBytes`.
 */
export async function shareGiven(
  group: ProcessGroup,
  config: TrainConfig,
  { given: expected }: DemoMeta,
  own: Uint8Array | undefined,
  limitMs?: number,
  onProgress?: (doneBytes: number, totalBytes: number) => void,
): Promise<Uint8Array<ArrayBuffer> | null> {
  if (config.data !== givenData || !expected) return null
  const sizes = await group.allGatherU32(Uint32Array.of(own?.length ?? 0), { label })
  const givers = [...sizes].flatMap((size, rank) => (size > 0 ? [rank] : []))
  if (givers.length === 0) {
    throw new TabringError(
      'data.missing',
      `data: no rank has ${expected.words}: nobody supplied it, or the one who did was lost before the others had it. Supply it again, or choose other data.`,
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
  if (size > expected.maxBytes) {
    throw new TabringError(
      'data.malformed',
      `data: expected ${expected.words} of at most ${expected.maxBytes} bytes, got ${size}. Supply less of it.`,
    )
  }
  return shareBytes(group, { root: giver, sizeBytes: size, own, label, limitMs, onProgress })
}
