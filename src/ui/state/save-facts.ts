import { canBeSaved, type TrainConfig } from '../../trainer/settings/config.ts'
import { checkpointWords } from '../settings/checkpoint-words.ts'
import { canStart } from './room-facts.ts'
import { makesSteps } from './run-facts.ts'
import type { Snapshot } from './snapshot.ts'

/** What views ask of saving a run, and of going on with one. */

/** This tab can save the run in its browser: while steps are made, in a pause, and behind the last step. */
export function canSave({ run, stage }: Snapshot): boolean {
  if (stage !== 'inside' || !run?.config || run.isWatched || !canBeSaved(run.config)) return false
  return run.end ? run.end.kind === 'finished' : makesSteps(run) && !run.isStopping
}

/** What a save would give is there already. */
export function isSaved({ run }: Snapshot): boolean {
  if (!run?.saved?.isKept || (run.end === null && run.paused === null)) return false
  return run.saved.step === run.step
}

/** Where the maker's next start begins, in words, where that is a checkpoint; else null. */
export function startsFrom({ draft, checkpoints }: Snapshot): string | null {
  const { resume } = draft
  if (resume === '') return null
  if (resume === 'latest') return 'the latest checkpoint'
  if (resume === 'best') return 'the best checkpoint'
  const file = checkpoints?.find(({ name }) => name === resume)
  return file ? `step ${file.step}` : checkpointWords(resume)
}

/** The step and the settings by which the maker can continue a run that has ended too early; null where there is nothing of it here. */
export function continued(
  snapshot: Snapshot,
): { readonly step: number; readonly config: TrainConfig } | null {
  const { run, lobby } = snapshot
  if (!canStart(snapshot) || !run?.end || run.end.kind === 'finished' || !run.config) return null
  const { config, resumed, saved } = run
  // Before it has saved anything, a run that went on from a checkpoint can do so again, where that is: with rank 0.
  const again = run.rank === 0 ? resumed : null
  const from = saved ?? (again && { step: again.step, name: config.resume ?? '' })
  if (!from?.name || config.batchSize < (lobby?.members.length ?? 1)) return null
  return { step: from.step, config: { ...config, resume: from.name } }
}
