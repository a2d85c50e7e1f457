import { checkArgument } from '../../util/options.ts'
import type { AlgorithmChoice } from '../algorithms/algorithm-choice.ts'
import { isHierarchy } from '../algorithms/hierarchical.ts'
import type { Algorithm } from '../algorithms/operations.ts'
import type { CollectiveOptions } from '../collective/collectives.ts'
import { CollectiveGroup } from './collective-group.ts'

/** Result of `measureLinks`; the same on all ranks. */
export interface LinkMeasurement {
  /** The fastest algorithm for each buffer size. Only `hierarchical` changes the bits of sums. */
  readonly choice: AlgorithmChoice
  /** Highest rate at which a rank sent in a ring all-reduce, including hops and the slowest rank's work; undefined for one rank. units: bytes/ms. */
  readonly bytesPerMs: number | undefined
}

const kibi = 1024
/** Growing, so that slow links stop it early. */
const sizes = [4 * kibi, 16 * kibi, 64 * kibi, 256 * kibi, 1024 * kibi]
/** How often each algorithm is timed; the better time counts, since other work can only slow one down. */
const repeats = 2
/** No larger size is tried once one has taken this long altogether. */
const budgetMs = 30
/** For the rate the ring is timed again, at the first of these sizes, and at the second one where the first takes no longer than `slowMs`. */
const rateSizes = [64 * kibi, 1024 * kibi]
const slowMs = 10
/** Collectives of one measurement at most: of each size 4 algorithms, of each rate one, behind a barrier each, and a word about both. */
export const measuringKeys =
  sizes.length * (4 * 2 * repeats + 1) + rateSizes.length * (2 * repeats + 1)

const label = 'measureLinks'

/** By group: begins the measurement, or gives the one that has begun. */
const measurements = new WeakMap<CollectiveGroup, () => Promise<LinkMeasurement>>()

/**
 * Measures the group's links and sets `group.choice`; returns the same result on all ranks.
 *
 * Times all-reduces of growing size with each algorithm, and takes the rate from the ring's. All ranks call it, with nothing else in flight.
 * Each time is the better of two, on the slowest rank. If some ranks share a machine (`group.machines`, `group.choice.machines`), it also times
 * `hierarchical`, and a choice that uses it names the machines. In a ring it measures only the rate.
 * cost: tens of milliseconds, more on slow links; on fast links each of 3 ranks sends up to 16 MB. errors: the group's.
 */
export async function measureLinks(group: CollectiveGroup): Promise<LinkMeasurement> {
  checkArgument('measureLinks', 'group', group, group instanceof CollectiveGroup, 'a process group')
  const measuring = timeLinks(group, () => ({ label }))
  measurements.set(group, () => measuring)
  const links = await measuring
  group.choice = links.choice
  return links
}

/**
 * Returns a function that gives what `measureLinks` has found, or else measures by the collectives that `takeKeys` gives at once, of which
 * there are `measuringKeys`: once for each group, by the first caller.
 *
 * Leaves `group.choice` as it is: ranks come to the end of it at different times, while their callers launch collectives.
 */
export function measureOnce(
  group: CollectiveGroup,
  takeKeys: () => readonly CollectiveOptions[],
): () => Promise<LinkMeasurement> {
  const known = measurements.get(group)
  if (known) return known
  const keys = [...takeKeys()]
  let measuring: Promise<LinkMeasurement> | undefined
  const measure = () => {
    measuring ??= timeLinks(group, () => ({ label, ...keys.shift() }))
    return measuring
  }
  measurements.set(group, measure)
  return measure
}

async function timeLinks(
  group: CollectiveGroup,
  key: () => CollectiveOptions,
): Promise<LinkMeasurement> {
  if (group.size === 1) return { choice: group.choice, bytesPerMs: undefined }
  const given = group.choice.machines
  const machines = given ?? group.machines
  const fastest: Algorithm[] = []
  /** At the largest size that was tried. */
  let isRingLast = true
  let bytesPerMs = 1
  const time = async (names: readonly Algorithm[], sizeBytes: number) => {
    const took = await slowestOf(group, names, sizeBytes, key)
    const sentBytes = (2 * (group.size - 1) * sizeBytes) / group.size
    bytesPerMs = Math.max(bytesPerMs, Math.round(sentBytes / took[names.indexOf('ring')]!))
    return took
  }
  for (const sizeBytes of group.isFullyLinked ? sizes : []) {
    const isOneShotLost = fastest.length > 0 && fastest.at(-1) !== 'oneShot'
    const names: Algorithm[] = isHierarchy(machines)
      ? ['ring', 'direct', 'hierarchical']
      : ['ring', 'direct']
    if (!isOneShotLost) names.push('oneShot')
    const took = await time(names, sizeBytes)
    fastest.push(names[took.indexOf(Math.min(...took))]!)
    const of = (name: Algorithm) => took[names.indexOf(name)] ?? Number.POSITIVE_INFINITY
    isRingLast = of('ring') <= of('hierarchical')
    const totalMs = took.reduce((sum, ms) => sum + ms, 0)
    if (fastest.at(-1) === 'ring' || repeats * totalMs > budgetMs) break
  }
  for (const sizeBytes of rateSizes) {
    const [tookMs = 0] = await time(['ring'], sizeBytes)
    if (tookMs > slowMs) break
  }
  if (!group.isFullyLinked) return { choice: group.choice, bytesPerMs }
  const upTo = (isTaken: (name: Algorithm) => boolean): number => {
    const first = fastest.findIndex((name) => !isTaken(name))
    const count = first < 0 ? fastest.length : first
    return count === 0 ? 0 : sizes[count - 1]!
  }
  const choice = {
    oneShotMaxBytes: upTo((name) => name === 'oneShot'),
    directMaxBytes: upTo((name) => name === 'oneShot' || name === 'direct'),
    ...(given && { machines: given }),
  }
  // Beyond what was tried the ring and this one are left, and what decides between them is bytes.
  const hierarchicalMaxBytes = isRingLast
    ? upTo((name) => name !== 'ring')
    : Number.MAX_SAFE_INTEGER
  if (!machines || hierarchicalMaxBytes <= choice.directMaxBytes) return { choice, bytesPerMs }
  return { choice: { ...choice, hierarchicalMaxBytes, machines }, bytesPerMs }
}

/** Milliseconds by algorithm, of the rank that took longest. */
async function slowestOf(
  group: CollectiveGroup,
  names: readonly Algorithm[],
  sizeBytes: number,
  key: () => CollectiveOptions,
): Promise<number[]> {
  const { env } = group
  const data = new Float32Array(sizeBytes / 4)
  const own = new Uint32Array(names.length)
  for (const [at, algorithm] of names.entries()) {
    let best = Number.POSITIVE_INFINITY
    for (let repeat = 0; repeat < repeats; repeat++) {
      await group.barrier(key())
      const began = env.now()
      await group.allReduce(data, { ...key(), algorithm })
      best = Math.min(best, env.now() - began)
    }
    own[at] = Math.max(1, Math.round(1000 * best))
  }
  const all = await group.allGatherU32(own, key())
  return names.map(
    (_, at) =>
      Math.max(...Array.from({ length: group.size }, (_, rank) => all[rank * names.length + at]!)) /
      1000,
  )
}
