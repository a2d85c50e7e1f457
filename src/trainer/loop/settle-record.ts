import * as v from 'valibot'
import { gatherJson } from '../../peer/group/gather-json.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { clipped, clippedName, clippedToDifference } from '../../util/clipped.ts'
import { PeerError } from '../../util/errors.ts'
import type { RunRecord } from '../watch/run-events.ts'
import { deviceSchema } from '../watch/run-log.ts'
import { type Bits, bitsSchema } from './run-bits.ts'

/** A rank's record before it knows the others' adapters. */
type OwnRecord = Omit<RunRecord, 'adapters'>

/** Returns the part of a record that must be equal on all ranks; variants go by a rank's own rows, and adapters may differ. */
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

/** The shared parts as texts, by name: settings one by one, as `config.seed`. */
function textsOf(own: OwnRecord): Map<string, string> {
  const { config, ...parts } = shared(own)
  const settings = Object.entries(config).map(([name, value]) => [`config.${name}`, value] as const)
  const all = [...settings, ...Object.entries(parts)]
  return new Map(
    all.flatMap(([name, value]) => (value === undefined ? [] : [[name, JSON.stringify(value)]])),
  )
}

/** Report of a rank to the others: the shared parts, the adapter, what it computes on in words, and with `exact` by which bits it is known. */
const reportSchema = v.strictObject({
  texts: v.record(v.string(), v.string()),
  adapter: deviceSchema,
  device: deviceSchema,
  bits: v.optional(bitsSchema),
})
type Report = v.InferOutput<typeof reportSchema>
const isReport = (received: unknown): received is Report => v.is(reportSchema, received)

export interface SettledRecord {
  readonly record: RunRecord
  /** By rank: what it computes on, and why. */
  readonly devices: readonly string[]
  /** By rank; none without `exact`. */
  readonly bits: readonly Bits[]
}

/**
 * Returns this rank's record with the adapters of all ranks, once it has been held against rank 0's: before the first step, so
 * that nobody trains under other settings, kernels or another layout. Bits are passed on, and not compared.
 *
 * errors: `peer.mismatch`, naming the first part that differs and the ranks; `peer.protocol` for a rank that has no bits where this one has; the
 * group's.
 */
export async function settleRecord(
  group: ProcessGroup,
  own: OwnRecord,
  { adapter, device }: Readonly<Record<'adapter' | 'device', string>>,
  bits?: Bits,
): Promise<SettledRecord> {
  const texts = textsOf(own)
  const received: Report = {
    texts: Object.fromEntries(texts),
    adapter: clippedName(adapter),
    device: clippedName(device),
    ...(bits && { bits }),
  }
  const all = await gatherJson('the run record', group, received, isReport)
  const first = new Map(Object.entries(all[0].texts))
  const part = [...texts.keys(), ...first.keys()].find(
    (name) => texts.get(name) !== first.get(name),
  )
  if (part !== undefined) {
    const sides = [first, texts].map((one) => one.get(part) ?? 'nothing')
    const [expected, got] = clippedToDifference(sides)
    throw new PeerError(
      'peer.mismatch',
      `run record: ${clipped(part)} of rank ${group.rank} must be rank 0's ${expected}, got ${got}. Open the same version of the page on all ranks.`,
    )
  }
  const without = bits ? all.findIndex((one) => !one.bits) : -1
  if (without >= 0) {
    throw new PeerError(
      'peer.protocol',
      `run record: rank ${without} did not tell by which bits it is known, as in an exact run each rank must. Open the same version of the page on all ranks.`,
    )
  }
  return {
    record: { ...own, adapters: all.map((one) => one.adapter) },
    devices: all.map((one) => one.device),
    bits: bits ? all.flatMap((one) => one.bits ?? []) : [],
  }
}
