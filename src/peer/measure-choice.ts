import type { Env } from '../util/env.ts'
import type { AlgorithmChoice } from './algorithm-choice.ts'
import { isHierarchy } from './algorithms/hierarchical.ts'
import type { Algorithm } from './announcement.ts'
import type { CollectiveGroup } from './collective-group.ts'

const kibi = 1024
/** Growing, so that slow links stop it early. */
const sizes = [4 * kibi, 16 * kibi, 64 * kibi, 256 * kibi, 1024 * kibi]
const repeats = 2
/** No larger size is tried once one has taken this long altogether. */
const budgetMs = 30

/**
 * Times all-reduces of growing size by each algorithm and sets `group.choice` to what was fastest; the same on all ranks, which all
 * call it before their first step.
 *
 * A time is the better of two on the slowest rank. Where ranks are linked in a ring alone there is nothing to choose. Where some of
 * the ranks share a machine (`group.machines`, `group.choice.machines`) going hierarchically is timed too, and a choice that takes it names the machines.
 * cost: some tens of milliseconds, more on slow links; about 3 MB sent per rank where they are fast. errors: the group's.
 */
export async function measureChoice(group: CollectiveGroup, env: Env): Promise<AlgorithmChoice> {
  if (group.size === 1 || !group.isFullyLinked) return group.choice
  const given = group.choice.machines
  const machines = given ?? group.machines
  const fastest: Algorithm[] = []
  /** At the largest size that was tried. */
  let isRingLast = true
  for (const sizeBytes of sizes) {
    const isOneShotLost = fastest.length > 0 && fastest.at(-1) !== 'oneShot'
    const names: Algorithm[] = isHierarchy(machines)
      ? ['ring', 'direct', 'hierarchical']
      : ['ring', 'direct']
    if (!isOneShotLost) names.push('oneShot')
    const took = await slowestOf(group, env, names, sizeBytes)
    const of = (name: Algorithm) => took[names.indexOf(name)] ?? Number.POSITIVE_INFINITY
    fastest.push(names[took.indexOf(Math.min(...took))])
    isRingLast = of('ring') <= of('hierarchical')
    const totalMs = took.reduce((sum, us) => sum + us, 0) / 1000
    if (fastest.at(-1) === 'ring' || repeats * totalMs > budgetMs) break
  }
  const upTo = (isTaken: (name: Algorithm) => boolean): number => {
    const first = fastest.findIndex((name) => !isTaken(name))
    const count = first < 0 ? fastest.length : first
    return count === 0 ? 0 : sizes[count - 1]
  }
  group.choice = {
    oneShotBytes: upTo((name) => name === 'oneShot'),
    directBytes: upTo((name) => name === 'oneShot' || name === 'direct'),
    ...(given && { machines: given }),
  }
  // Beyond what was tried the ring and this one are left, and what decides between them is bytes.
  const hierarchicalBytes = isRingLast ? upTo((name) => name !== 'ring') : Number.MAX_SAFE_INTEGER
  if (machines && hierarchicalBytes > group.choice.directBytes)
    group.choice = { ...group.choice, hierarchicalBytes, machines }
  return group.choice
}

/** Microseconds by algorithm, of the rank that took longest. */
async function slowestOf(
  group: CollectiveGroup,
  env: Env,
  names: readonly Algorithm[],
  sizeBytes: number,
): Promise<number[]> {
  const data = new Float32Array(sizeBytes / 4)
  const own = new Uint32Array(names.length)
  for (const [at, algorithm] of names.entries()) {
    let best = Number.POSITIVE_INFINITY
    for (let repeat = 0; repeat < repeats; repeat++) {
      await group.barrier()
      const began = env.now()
      await group.allReduce(data, { algorithm })
      best = Math.min(best, env.now() - began)
    }
    own[at] = Math.round(1000 * best)
  }
  const all = await group.allGatherU32(own)
  return names.map((_, at) =>
    Math.max(...Array.from({ length: group.size }, (_, rank) => all[rank * names.length + at])),
  )
}
