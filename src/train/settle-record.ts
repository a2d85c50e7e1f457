import type { ProcessGroup } from '../peer/group.ts'
import { PeerError } from '../util/errors.ts'
import type { RunRecord } from './run.ts'

/** What every rank's record must have in common; variants go by a rank's own rows, and adapters may differ. */
const shared = ({ config, worldSize, shares, buckets }: RunRecord) => ({
  config,
  worldSize,
  shares,
  buckets,
})

/**
 * Holds this rank's record against rank 0's before the first step, so that nobody trains under other settings or another layout.
 *
 * errors: `peer.mismatch`, naming the first part that differs and the ranks; the group's.
 */
export async function settleRecord(group: ProcessGroup, record: RunRecord): Promise<void> {
  if (group.size === 1) return
  const own = shared(record)
  const texts = Object.values(own).map((part) => JSON.stringify(part))
  const all = await group.allGatherBytes(new TextEncoder().encode(JSON.stringify(texts)))
  const first: string[] = JSON.parse(new TextDecoder().decode(all[0]))
  const part = texts.findIndex((text, i) => text !== first[i])
  if (part < 0) return
  throw new PeerError(
    'peer.mismatch',
    `run record: ${Object.keys(own)[part]} of rank ${group.rank} must be rank 0's ${first[part]}, got ${texts[part]}. Open the same version of the page on all ranks.`,
  )
}
