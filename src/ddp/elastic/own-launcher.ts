import {
  type GroupEnds,
  groupEndsName,
  nextGroupName,
} from '../../distributed/launcher/next-group.ts'
import { takeVariables } from '../../distributed/rendezvous/env.ts'
import { TabringError } from '../../util/errors.ts'

const page = globalThis as unknown as {
  [nextGroupName]?: (isDone?: boolean) => Promise<string>
  [groupEndsName]?: (words: GroupEnds) => void
}

/** A launcher with `--elastic`, which opened this tab and says which group comes next. */
export interface ElasticLauncher {
  /**
   * Asks for this rank's next group, and sets the variables of `env` for it. Resolves when the group is decided; `onEnds` then hears that it
   * ends.
   */
  nextGroup(onEnds: (words: GroupEnds) => void): Promise<void>
  /** Training has ended well on this rank. */
  done(): Promise<void>
}

const used = new WeakSet<object>()

/**
 * The launcher of this tab; undefined if it has none with `--elastic`.
 *
 * errors: `graph.misuse` in a second run: a tab that is opened again would take the first one for it.
 */
export function elasticLauncher(): ElasticLauncher | undefined {
  const { [nextGroupName]: ask } = page
  if (!ask) return undefined
  if (used.has(ask))
    throw new TabringError(
      'graph.misuse',
      'runElastic: it can be called only once under --elastic. Do all training in one function, and commit how far it is.',
    )
  used.add(ask)
  return {
    async nextGroup(onEnds) {
      const early: GroupEnds[] = []
      page[groupEndsName] = (words) => early.push(words)
      const variables: Record<string, string> = JSON.parse(await ask())
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
