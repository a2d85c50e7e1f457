import {
  type GroupEnds,
  groupEndsName,
  nextGroupName,
} from '../../distributed/launcher/next-group.ts'
import { takeVariables } from '../../distributed/rendezvous/env.ts'

const page = globalThis as unknown as {
  [nextGroupName]?: () => Promise<string>
  [groupEndsName]?: (words: GroupEnds) => void
}

/** Whether a launcher with `--elastic` opened this tab: it says which group comes next. */
export const hasElasticLauncher = (): boolean => page[nextGroupName] !== undefined

/**
 * Asks the launcher for this rank's next group, and sets the variables of `env` for it. Resolves when the group is decided; `onEnds` then hears
 * that it ends.
 */
export async function nextGroup(onEnds: (words: GroupEnds) => void): Promise<void> {
  const early: GroupEnds[] = []
  page[groupEndsName] = (words) => early.push(words)
  const variables: Record<string, string> = JSON.parse(await page[nextGroupName]!())
  takeVariables(variables)
  const take = (words: GroupEnds) => {
    // Said of an earlier group, and late.
    if (String(words.group) === variables.RESTART_COUNT) onEnds(words)
  }
  page[groupEndsName] = take
  early.forEach(take)
}
