import * as v from 'valibot'
import { gatherJson } from '../../peer/group/gather-json.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { PeerError } from '../../util/errors.ts'
import type { RunRecord } from '../watch/run-events.ts'
import { type Bits, bitsSchema } from './run-bits.ts'

/** A rank's record before it knows the others' adapters. */
type OwnRecord = Omit<RunRecord, 'adapters'>

/** What every rank's record must have in common; variants go by a rank's own rows, and adapters may differ. */
const shared = ({
  config,
  worldSize,
  shares,
  bucketCapMb,
  buckets,
  measured,
  links,
}: OwnRecord) => ({
  config,
  worldSize,
  shares,
  bucketCapMb,
  buckets,
  measured,
  links,
})

/** What ranks tell each other: the shared parts as texts, the adapter, and with `exact` by which bits it is known. */
const toldSchema = v.object({
  texts: v.array(v.string()),
  adapter: v.string(),
  bits: v.optional(bitsSchema),
})
type Told = v.InferOutput<typeof toldSchema>
const isTold = (told: unknown): told is Told => v.is(toldSchema, told)

export interface SettledRecord {
  readonly record: RunRecord
  /** By rank; none without `exact`. */
  readonly bits: readonly Bits[]
}

/**
 * Returns this rank's record with the adapters of all ranks, once it has been held against rank 0's: before the first step, so
 * that nobody trains under other settings, kernels or another layout. Bits are passed on, and not compared.
 *
 * errors: `peer.mismatch`, naming the first part that differs and the ranks; the group's.
 */
export async function settleRecord(
  group: ProcessGroup,
  own: OwnRecord,
  adapter: string,
  bits?: Bits,
): Promise<SettledRecord> {
  const parts = shared(own)
  const texts = Object.values(parts).map((part) => JSON.stringify(part))
  const told: Told = { texts, adapter, ...(bits && { bits }) }
  const all = await gatherJson('the run record', group, told, isTold)
  const [first] = all
  const part = texts.findIndex((text, i) => text !== first.texts[i])
  if (part >= 0) {
    throw new PeerError(
      'peer.mismatch',
      `run record: ${Object.keys(parts)[part]} of rank ${group.rank} must be rank 0's ${first.texts[part]}, got ${texts[part]}. Open the same version of the page on all ranks.`,
    )
  }
  return {
    record: { ...own, adapters: all.map((one) => one.adapter) },
    bits: all.flatMap((one) => one.bits ?? []),
  }
}
