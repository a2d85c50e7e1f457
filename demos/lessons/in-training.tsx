import type { Lesson } from '../../src/ui/lesson/lesson.ts'
import { LessonPanel } from '../../src/ui/lesson/lesson-panel.tsx'
import type { SettingKey } from '../../src/ui/settings/list.ts'
import type { Acts } from '../../src/ui/state/acts.ts'
import { canSet } from '../../src/ui/state/room-facts.ts'
import type { Snapshot } from '../../src/ui/state/snapshot.ts'
import { lostRank } from './lost-rank.ts'
import { oneMachine } from './one-machine.ts'
import { sharedBatch } from './shared-batch.ts'

interface TrainingLessonProps {
  readonly snapshot: Snapshot
  readonly acts: Acts
}

/** The lesson that a room of the training page is opened for. */
export function TrainingLesson({ snapshot, acts }: TrainingLessonProps) {
  const number = snapshot.lesson ?? ''
  const lesson = [oneMachine, sharedBatch, lostRank].find((one) => String(one.number) === number)
  if (!lesson)
    return (
      <p role="alert">
        This page has no lesson {number.slice(0, 20)}. <a href="class/">All lessons</a>
      </p>
    )
  const set = (settings: NonNullable<Lesson<Snapshot>['goals'][number]['settings']>) => {
    for (const [key, value] of Object.entries(settings)) acts.set(key as SettingKey, value)
  }
  return (
    <LessonPanel
      lesson={lesson}
      facts={snapshot}
      home=""
      set={canSet(snapshot) ? set : undefined}
    />
  )
}
