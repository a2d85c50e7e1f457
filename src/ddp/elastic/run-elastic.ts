import type { SavedState } from '../../data/saved-tree.ts'
import { defaultGroup, destroyProcessGroup } from '../../distributed/group/default-group.ts'
import type { InitProcessGroupOptions } from '../../distributed/group/form-group.ts'
import { initProcessGroup } from '../../distributed/group/process-group.ts'
import {
  endsGroup,
  type GroupEnds,
  groupEndsName,
  nextGroupName,
} from '../../distributed/launcher/next-group.ts'
import { takeVariables } from '../../distributed/rendezvous/env.ts'
import { randomLayers, resetRandomLayers } from '../../graph/trace/random.ts'
import { getRngState, setRngState } from '../../nn/init.ts'
import { messageOf, PeerError, TabringError } from '../../util/errors.ts'
import { log } from '../../util/log.ts'
import { checkArgument, checkRecord } from '../../util/options.ts'
import type { CheckpointState, Parts } from '../checkpoint/checkpoint-file.ts'
import { RunMemory } from './run-memory.ts'

/** Argument of `runElastic`'s training function. Valid until that ends. */
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

/** Options of `runElastic`: those of `initProcessGroup` that fit each group of a run. */
export type ElasticOptions = Pick<
  InitProcessGroupOptions,
  'backend' | 'joinTimeoutMs' | 'onspan' | 'relay' | 'rtc' | 'signal' | 'timeoutMs' | 'topology'
>

/** A rank whose group fails as often in a row, without a new commit and without a lost rank, gives up. */
const maxRepeatedFaults = 3

/** A rank may evaluate or save at the end of its function while the others wait for it. units: ms. */
const endDeadlineMs = 600_000

/**
 * Joins the ranks and calls `train`; calls it again, with another default group, whenever ranks are lost or join under
 * `tabring run --elastic`. Resolves when `train` has ended on all ranks.
 *
 * `train` creates its model, optimizer and step each time, loads the newest commit with `restore`, and commits from time to time. What was
 * computed after the newest commit is computed again. Random numbers begin in each call as they did before the first. After Elastic
 * Horovod's `hvd.elastic.run` and `State.commit`. Without `--elastic` it calls `train` once.
 * errors: those of `train` and `initProcessGroup`; `peer.*` if ranks are lost without `--elastic`, or if the group fails 3 times in a row
 * without another state in a commit, though no rank is lost; `graph.misuse` in a second run under `--elastic`.
 */
export async function runElastic(
  train: (run: ElasticRun) => Promise<void>,
  options: ElasticOptions = {},
): Promise<void> {
  checkArgument('runElastic', 'train', train, typeof train === 'function', 'a function')
  checkRecord('runElastic', 'options', options)
  const launcher = elasticLauncher()
  const memory = new RunMemory()
  const random = getRngState()
  const layers = randomLayers()
  let failures = 0
  /** Why this rank has left its group, where nobody said that it ends. */
  let left: string | undefined
  for (;;) {
    const ended = new AbortController()
    /** Why the group ends, as the launcher says. */
    let words: GroupEnds | undefined
    let isPlanned = false
    await launcher?.nextGroup(left, (received) => {
      words = received
      if (received.kind === 'planned') return
      const error = new PeerError('peer.lost', `runElastic: ${received.why}`)
      ended.abort(error)
      defaultGroup()?.abort(error)
    })
    setRngState(random)
    resetRandomLayers(layers)
    const { signal = ended.signal } = options
    try {
      const group = await initProcessGroup({
        ...options,
        signal: AbortSignal.any([signal, ended.signal]),
      })
      ended.signal.throwIfAborted()
      await train({
        restore: (parts = {}) => memory.restore(group, parts),
        commit: async (state) => {
          const committed = await memory.commit(group, state, words !== undefined)
          isPlanned = committed.isEnding
          if (committed.isNew) failures = 0
          if (isPlanned)
            throw new PeerError('peer.lost', 'commit: the group ends here, since ranks join.')
        },
      })
      // The function may have ended it.
      if (defaultGroup() === group) {
        await group.barrier({ label: 'the end of runElastic', deadlineMs: endDeadlineMs })
        await destroyProcessGroup()
      }
      await launcher?.done()
      return
    } catch (thrown) {
      if (!launcher || !(isPlanned || ended.signal.aborted || isOfGroup(thrown))) throw thrown
      if (!isPlanned && words?.kind !== 'lost' && ++failures >= maxRepeatedFaults) throw thrown
      left = isPlanned || words ? undefined : messageOf(thrown)
      log(1, 'elastic', () => `the group has ended: ${String(thrown)}`)
      if (!isPlanned) defaultGroup()?.destroy('its group has ended')
      await destroyProcessGroup()
    }
  }
}

/** Tells whether the group or the device has failed, and not the function. */
const isOfGroup = (thrown: unknown): boolean =>
  defaultGroup()?.error !== undefined || (thrown instanceof TabringError && endsGroup(thrown.code))

const page = globalThis as unknown as {
  [nextGroupName]?: (words?: true | string) => Promise<string>
  [groupEndsName]?: (words: GroupEnds) => void
}

/** A launcher with `--elastic`, which opened this tab and says which group comes next. */
interface ElasticLauncher {
  /**
   * Asks for this rank's next group, and sets the variables of `env` for it. Resolves when the group is decided; `onEnds` then hears that it
   * ends. `left`: why this rank has left the one before.
   */
  nextGroup(left: string | undefined, onEnds: (words: GroupEnds) => void): Promise<void>
  /** Training has ended well on this rank. */
  done(): Promise<void>
}

const used = new WeakSet<object>()

/**
 * The launcher of this tab; undefined if it has none with `--elastic`.
 *
 * errors: `graph.misuse` in a second run: a tab that is opened again would take the first one for it.
 */
function elasticLauncher(): ElasticLauncher | undefined {
  const { [nextGroupName]: ask } = page
  if (!ask) return undefined
  if (used.has(ask))
    throw new TabringError(
      'graph.misuse',
      'runElastic: it can be called only once under --elastic. Do all training in one function, and commit how far it is.',
    )
  used.add(ask)
  return {
    async nextGroup(left, onEnds) {
      const early: GroupEnds[] = []
      page[groupEndsName] = (words) => early.push(words)
      const variables: Record<string, string> = JSON.parse(await ask(left))
      takeVariables(variables)
      const take = (words: GroupEnds) => {
        // Said of an earlier group, and late.
        if (String(words.group) === variables.RESTART_COUNT) onEnds(words)
      }
      page[groupEndsName] = take
      early.forEach(take)
    },
    async done() {
      page[groupEndsName] = () => undefined
      await ask(true)
    },
  }
}
