import type { SavedState } from '../../data/saved-tree.ts'
import { defaultGroup, destroyProcessGroup } from '../../distributed/group/default-group.ts'
import type { InitProcessGroupOptions } from '../../distributed/group/form-group.ts'
import { initProcessGroup } from '../../distributed/group/process-group.ts'
import type { GroupEnds } from '../../distributed/launcher/next-group.ts'
import { PeerError } from '../../util/errors.ts'
import { tell } from '../../util/log.ts'
import { checkArgument } from '../../util/options.ts'
import type { CheckpointState, Parts } from '../checkpoint/checkpoint-file.ts'
import { hasElasticLauncher, nextGroup } from './own-launcher.ts'
import { RunMemory } from './run-memory.ts'

/** What `runElastic` gives to the training function. Valid until that ends. */
export interface ElasticRun {
  /**
   * Loads the newest commit of the run into `parts` and returns its plain values; undefined before the first commit. All ranks call it, before
   * the step is compiled: see `loadCheckpoint`.
   *
   * errors: those of `loadCheckpoint`.
   */
  restore<Values extends SavedState = SavedState>(parts?: Parts): Promise<Values | undefined>
  /**
   * Keeps `state`, parts and plain values as for `saveCheckpoint`, in the memory of every rank. All ranks call it after the same step. If ranks
   * are about to join, it throws after that, which ends the training function: let it pass.
   *
   * cost: reads the state from the GPU; a small all-gather. errors: those of `packCheckpoint`; `peer.*`.
   */
  commit(state: CheckpointState): Promise<void>
}

/** A group that ends without a commit, and without a lost rank, would end so each time. */
const mostStrikes = 3

/** Thrown by `commit`: the group ends for one with more ranks. */
class GroupEnded extends Error {
  constructor() {
    super('commit: the group ends here, because ranks join. Let this error pass to runElastic.')
  }
}

/**
 * Joins the ranks and calls `train`; calls it again, with another default group, whenever ranks are lost or join under
 * `tabring run --elastic`. Resolves when `train` has ended on all ranks.
 *
 * `train` creates its model, optimizer and step each time, loads the newest commit with `restore`, and commits from time to time. What was
 * computed after the newest commit is computed again. After Elastic Horovod's `hvd.elastic.run` and `State.commit`. Without `--elastic` it calls
 * `train` once. `options`: those of `initProcessGroup`.
 * errors: those of `train` and `initProcessGroup`; `peer.*` if ranks are lost without `--elastic`, or if groups fail 3 times in a row though no
 * rank is lost.
 */
export async function runElastic(
  train: (run: ElasticRun) => Promise<void>,
  options: InitProcessGroupOptions = {},
): Promise<void> {
  checkArgument('runElastic', 'train', train, typeof train === 'function', 'a function')
  const memory = new RunMemory()
  let strikes = 0
  for (;;) {
    const lost = new AbortController()
    let isEnding = false
    const onEnds = ({ isPlanned, why }: GroupEnds) => {
      isEnding = true
      if (isPlanned) return
      const error = new PeerError('peer.lost', `runElastic: ${why}`)
      lost.abort(error)
      defaultGroup()?.abort(error)
    }
    if (hasElasticLauncher()) await nextGroup(onEnds)
    const { signal = lost.signal } = options
    try {
      const group = await initProcessGroup({
        ...options,
        signal: AbortSignal.any([signal, lost.signal]),
      })
      lost.signal.throwIfAborted()
      await train({
        restore: (parts = {}) => memory.restore(group, parts),
        commit: async (state) => {
          const hasEnded = await memory.commit(group, state, isEnding)
          strikes = 0
          if (hasEnded) throw new GroupEnded()
        },
      })
      await group.barrier({ label: 'the end of runElastic' })
      await destroyProcessGroup()
      return
    } catch (thrown) {
      const failed = defaultGroup()?.error ?? (thrown instanceof PeerError ? thrown : undefined)
      const isPlanned = thrown instanceof GroupEnded
      if (!hasElasticLauncher() || !(isPlanned || lost.signal.aborted || failed)) throw thrown
      if (!isPlanned && !lost.signal.aborted && ++strikes >= mostStrikes) throw thrown
      tell(1, 'elastic', () => `the group has ended: ${String(thrown)}`)
      if (!isPlanned) defaultGroup()?.destroy('its group has ended')
      await destroyProcessGroup()
    }
  }
}
