import type { Env } from '../../util/env.ts'
import { systemEnv } from '../../util/env.ts'
import { PeerError } from '../../util/errors.ts'
import { checkOptions, checkTimeout, longestTimeoutMs } from '../../util/options.ts'
import { groupOf } from '../group/group-of.ts'
import type { GroupOptions } from './call.ts'

/** Options of `monitoredBarrier`. */
export interface MonitoredBarrierOptions extends GroupOptions {
  /** How long the group's first rank waits for the others. Default 30,000. units: ms. */
  timeoutMs?: number
  /** True if the error names all missing ranks, not only the first. Default false, as in PyTorch. */
  waitAllRanks?: boolean
  /** The clock. Default: the system's. */
  env?: Env
}

/**
 * Resolves when every rank has called it; on a timeout, names the missing ranks: torch.distributed.monitored_barrier.
 *
 * Each rank reports to the first rank of the group, which answers when all have reported.
 * cost: 2 hops. errors: `peer.timeout` on all ranks, naming the missing ones, and the group ends. `peer.unreachable` on all ranks, and the
 * group continues, if not every pair of ranks is linked.
 */
export async function monitoredBarrier(options: MonitoredBarrierOptions = {}): Promise<void> {
  const known = { group: true, timeoutMs: true, waitAllRanks: true, env: true } as const
  checkOptions('monitoredBarrier', options, known)
  checkTimeout('monitoredBarrier', 'timeoutMs', options.timeoutMs)
  const { timeoutMs = 30_000, waitAllRanks = false } = options
  const env = options.env ?? systemEnv
  const group = groupOf('monitoredBarrier', options.group)
  if (!group || group.size === 1) return
  // Asked of all links and not of this rank's, so that all ranks fail with the same error and none waits for another.
  if (!group.isFullyLinked)
    throw new PeerError(
      'peer.unreachable',
      "monitoredBarrier: needs links between all ranks, but these are linked in a ring. Use initProcessGroup({ topology: 'mesh' }), or call barrier().",
    )
  // Rank 0 judges; the others would end the group before it has.
  const deadlineMs = Math.min(2 * timeoutMs + 1000, longestTimeoutMs)
  if (group.rank !== 0) {
    await group.word('send', 0, deadlineMs)
    await group.word('receive', 0, deadlineMs)
    return
  }
  const missing = new Set(Array.from({ length: group.size - 1 }, (_, at) => at + 1))
  const late = () => {
    const ranks = [...missing].map((place) => group.ranks[place])
    const named = waitAllRanks ? ranks : ranks.slice(0, 1)
    group.abort(
      new PeerError(
        'peer.timeout',
        `monitoredBarrier: rank${named.length > 1 ? 's' : ''} ${named.join(', ')} did not arrive within ${timeoutMs} ms. Check what they are waiting for.`,
      ),
    )
  }
  const cancel = env.after(timeoutMs, late)
  try {
    await Promise.all(
      [...missing].map(async (place) => {
        await group.word('receive', place, deadlineMs)
        missing.delete(place)
      }),
    )
    cancel()
    await Promise.all(group.ranks.slice(1).map((_, at) => group.word('send', at + 1, deadlineMs)))
  } finally {
    cancel()
  }
}
