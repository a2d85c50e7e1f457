import { isTexts } from '../../util/kind-of.ts'
import type { RankMessages } from '../trace/exchange.ts'
import type { SettingsConsistency } from '../trace/settings-check.ts'
import type { Trace } from '../trace/trace.ts'

const keys = { words: 0, numbers: 1 } as const

/** Returns whether the ranks of a step over several ranks train one model by one function, each a part of it. */
export const hasJointUpdate = (
  { sendsByHand, updates }: Pick<Trace, 'sendsByHand' | 'updates'>,
  group: RankMessages | undefined,
): boolean => group !== undefined && group.size > 1 && !sendsByHand && updates.length > 0

/**
 * Compares the optimizer's settings of the run that begins, of which `scalars` is the block.
 *
 * cost: an all-gather of 16 words, beside forward. errors: `peer.mismatch` on all ranks for settings that differ.
 */
export async function agreeOnNumbers(
  group: RankMessages,
  consistency: SettingsConsistency,
  scalars: Float32Array,
): Promise<void> {
  consistency.note(scalars)
  const own = Float32Array.from(consistency.words())
  const compare = consistency.comparison()
  const sequence = group.takeSequence()
  const all = await group.allGatherConcat(own, { sequence, bucket: keys.words })
  const key = { sequence, bucket: keys.numbers }
  if (all.some((word, i) => word !== own[i % own.length]))
    await compare((own) => group.gatherJson('optimizer settings', own, isTexts, key), group.ranks)
  consistency.agreed()
}
