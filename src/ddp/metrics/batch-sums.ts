import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import { clippedMessage } from '../../util/clipped.ts'
import { type ErrorRecord, isErrorRecord } from '../../util/error-codes.ts'
import { DataError, messageOf, TabringError } from '../../util/errors.ts'
import { isRecord, isText } from '../../util/kind-of.ts'

/** Sums of a batch, by name. */
export type Sums = Readonly<Record<string, number>>

/** Batches that are on the device while the next one is made. */
const batchesAhead = 2

/** Returns the sums of this rank's batches, in their order; `run` begins the next one's, while earlier ones are under way. errors: `run`'s. */
export async function runAhead<Batch>(
  batches: Iterable<Batch> | AsyncIterable<Batch>,
  run: (batch: Batch) => Promise<Sums>,
): Promise<Sums[]> {
  const all: Promise<Sums>[] = []
  for await (const batch of batches) {
    const sums = run(batch)
    // One that fails while an earlier one is awaited, as all do when the device goes, is not unhandled: each is awaited in its turn.
    sums.catch(() => undefined)
    all.push(sums)
    if (all.length > batchesAhead) await all[all.length - 1 - batchesAhead]
  }
  return Promise.all(all)
}

/** Report of a rank to the others: numbers as texts, which hold what is not finite too. */
type Report = { readonly batches: readonly Record<string, string>[] } | ErrorRecord

const isSums = (received: unknown) => isRecord(received) && Object.values(received).every(isText)
const isReport = (received: unknown): received is Report =>
  isErrorRecord(received) ||
  (isRecord(received) && Array.isArray(received.batches) && received.batches.every(isSums))

/**
 * Returns the sums over all batches of all ranks, each counted once. All ranks call it; an error of one is thrown on all.
 *
 * order: by rank, then by batch, in float64: the same bits on all ranks, and for any number of them that cut a data set into the same batches.
 * errors: the first rank's that failed; the group's.
 */
export async function addOverRanks(
  work: () => Promise<readonly Sums[]>,
  group: CollectiveGroup | undefined,
): Promise<Record<string, number>> {
  if (!group || group.size === 1) return added(await work())
  let failure: unknown
  const own = await work().then(
    (batches): Report => ({
      batches: batches.map((sums) =>
        Object.fromEntries(Object.entries(sums).map(([name, value]) => [name, String(value)])),
      ),
    }),
    (thrown: unknown): Report => {
      failure = thrown
      const code = thrown instanceof TabringError ? thrown.code : 'data.malformed'
      return { code, message: messageOf(thrown) }
    },
  )
  const all = await gatherJson('evaluation', group, own, isReport)
  const batches = all.flatMap((received, rank) => {
    if ('batches' in received) return received.batches
    if (rank === group.rank) throw failure
    throw new DataError(received.code, `rank ${rank}: ${clippedMessage(received.message)}`)
  })
  return added(
    batches.map((sums) =>
      Object.fromEntries(Object.entries(sums).map(([name, text]) => [name, Number(text)])),
    ),
  )
}

function added(batches: readonly Sums[]): Record<string, number> {
  const total = new Map<string, number>()
  for (const sums of batches) {
    for (const [name, value] of Object.entries(sums))
      total.set(name, (total.get(name) ?? 0) + value)
  }
  return Object.fromEntries(total)
}
