import {
  type AlgorithmChoice,
  chooseAlgorithm,
  defaultChoice,
} from '../../src/peer/algorithms/algorithm-choice.ts'
import type { Algorithm } from '../../src/peer/algorithms/operations.ts'
import { ProcessGroup } from '../../src/peer/group/group.ts'
import type { Link } from '../../src/peer/link/link.ts'
import { meshEdges, ringEdges } from '../../src/peer/room/edges.ts'
import { VirtualEnv } from '../../src/util/virtual-env.ts'
import {
  joinedPair,
  type ModelLinkOptions,
  type TravelEvents,
  type WayModel,
} from './model-link.ts'
import { machinesOf, type RingSettings } from './settings.ts'

/** How one all-reduce went. Times count from its launch. */
export interface Outcome<A> {
  /** By rank: what its array holds in the end. */
  readonly results: readonly A[]
  /** By rank: when its call resolved; NaN where it rejected. */
  readonly resolvedMs: readonly number[]
  /** The first error of a rank; empty for none. */
  readonly failure: string
}

/** Receives the launch of a run, with the arrays that the ranks work in, and its messages from then on. */
export interface Watcher<A> extends TravelEvents {
  onlaunch(buffers: readonly A[], nowMs: number): void
}

/** Ranks of one machine are that much nearer to each other, and lose nothing. */
const nearness = 10

/**
 * One all-reduce by ranks that are joined over links as `settings` say: the process groups of src/peer, as trained with, on a virtual clock.
 *
 * The links lose nothing and take no time until all ranks are ready, so that a run begins with the launch.
 */
export async function allReduce<A extends Float32Array | Uint32Array>(
  settings: RingSettings,
  inputs: readonly A[],
  watcher: Watcher<A>,
): Promise<Outcome<A>> {
  const { ranks: size, latencyMs, rateMb, lossPercent, seed } = settings
  const env = new VirtualEnv(seed)
  const machines = machinesOf(settings)
  const far: WayModel = { latencyMs, bytesPerMs: 1000 * rateMb, loss: lossPercent / 100 }
  const near = { latencyMs: latencyMs / nearness, bytesPerMs: far.bytesPerMs * nearness, loss: 0 }
  const joining: WayModel = { latencyMs: 0, bytesPerMs: Number.POSITIVE_INFINITY, loss: 0 }
  let isLaunched = false
  const events: TravelEvents = {
    onsent: (travel) => isLaunched && watcher.onsent(travel),
    onarrived: (travel) => isLaunched && watcher.onarrived(travel),
  }

  const links = inputs.map(() => new Map<number, Link>())
  const uplinks = inputs.map(() => ({ far: { freeAtMs: 0 }, near: { freeAtMs: 0 } }))
  for (const [first, second] of edgesOf(settings)) {
    const isNear = machines !== undefined && machines[first] === machines[second]
    const wayOf = (from: number, to: number): ModelLinkOptions => ({
      ...{ env, from, to, events, uplink: uplinks[from][isNear ? 'near' : 'far'] },
      way: () => (isLaunched ? (isNear ? near : far) : joining),
    })
    const [there, back] = joinedPair(wayOf(first, second), wayOf(second, first))
    links[first].set(second, there)
    links[second].set(first, back)
  }
  const groups = links.map(
    (own, rank) => new ProcessGroup({ rank, size, epoch: 1, links: own, env, machines }),
  )
  await env.until(Promise.all(groups.map((group) => group.ready())))

  const results = inputs.map((input) => input.slice() as A)
  const startMs = env.now()
  isLaunched = true
  watcher.onlaunch(results, startMs)
  const resolvedMs = inputs.map(() => Number.NaN)
  const algorithm = settings.algorithm === 'auto' ? undefined : settings.algorithm
  const calls = groups.map(async (group, rank) => {
    await group.allReduce(results[rank], { algorithm, choice: choiceOf(settings) })
    resolvedMs[rank] = env.now() - startMs
  })
  const ended = await env.until(Promise.allSettled(calls), Number.POSITIVE_INFINITY)
  const failed = ended.find((one) => one.status === 'rejected')
  return { results, resolvedMs, failure: failed ? String(failed.reason.message) : '' }
}

/** Who is linked to whom: a ring for the ring, as many ranks are, and else all to all, as up to 16 are. */
export const edgesOf = ({ ranks, algorithm }: RingSettings): [number, number][] =>
  algorithm === 'ring' ? ringEdges(ranks) : meshEdges(ranks)

const choiceOf = (settings: RingSettings): AlgorithmChoice => ({
  ...defaultChoice,
  machines: machinesOf(settings),
})

/** The algorithm that a run takes: the one that is set, or the group's own choice. */
export function algorithmOf(settings: RingSettings): Algorithm {
  if (settings.algorithm !== 'auto') return settings.algorithm
  const layout = { isFullyLinked: true, machines: machinesOf(settings) }
  return chooseAlgorithm('allReduce', 4 * settings.length, layout, choiceOf(settings))
}
