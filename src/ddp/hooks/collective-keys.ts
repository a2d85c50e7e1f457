import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { firstSyncPointKey } from '../../peer/group/group-sync-points.ts'

/**
 * Keys of the collectives of data-parallel training inside one sequence: below those that groups count for themselves, and apart from each
 * other. Buckets have the keys from 0 up.
 */
export const keys = {
  /** Of hooks: so many for each bucket. */
  hooks: 10_000,
  hooksPerBucket: 32,
  /** Numbers that ranks agree on between gradients and updates. */
  scalars: 50_000,
  /** Where ranks meet in forward and backward. */
  syncPoints: firstSyncPointKey,
  /** Modules' buffers. */
  buffers: 64_000,
  /** A step's scalar outputs, where a hook takes the gradients. */
  tail: 64_001,
  /** Reports of settings that differ: two keys. */
  settings: 64_002,
} as const

/** Of what wrapping and compiling exchange; steps have sequences from 1 up. */
const setupSequence = 0
const used = new WeakMap<CollectiveGroup, number>()

/**
 * Keys for `count` collectives outside of steps, taken at once: ranks that take them in the same order agree, however long they then work
 * on each.
 */
export function setupKeys(group: CollectiveGroup, count: number) {
  const first = used.get(group) ?? 0
  used.set(group, first + count)
  return Array.from({ length: count }, (_, i) => ({
    sequence: setupSequence,
    bucket: first + i,
  }))
}
