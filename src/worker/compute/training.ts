import type { TrainConfig } from '../../trainer/settings/config.ts'
import type { Task, TaskLoaders } from '../../trainer/settings/task.ts'
import { TabringError } from '../../util/errors.ts'
import { quoted } from '../../util/kind-of.ts'
import { loadPart } from '../../util/load-part.ts'

/** What the compute worker needs from the first run on, and not before: it is loaded then. */
export { destroyProcessGroup, makeDefault } from '../../distributed/group/default-group.ts'
export { joinLinks } from '../../distributed/link/join-links.ts'
export { openTuneStore } from '../../graph/tune/tune-store.ts'
export { Rejoining } from '../../peer/group/rejoin.ts'
export { Eviction } from '../../trainer/loop/eviction.ts'
export { isLoss } from '../../trainer/loop/run-groups.ts'
export { Trainer } from '../../trainer/loop/trainer.ts'
export { warmUp } from '../../trainer/loop/warm-up.ts'
export { RunMember, signerOf } from './run-member.ts'

/** errors: `config.invalid` for a demo that this page does not have. */
export async function taskOf({ demo }: TrainConfig, tasks: TaskLoaders): Promise<Task> {
  if (Object.hasOwn(tasks, demo)) return loadPart(`the demo ${demo}`, tasks[demo])
  throw new TabringError(
    'config.invalid',
    `demo: expected one of ${Object.keys(tasks).join(', ')}, got ${quoted(demo)}. Open the same version of the page on all ranks.`,
  )
}
