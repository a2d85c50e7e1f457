import type { Lesson } from '../../src/ui/lesson/lesson.ts'
import { lostRank } from './lost-rank.ts'
import { oneMachine } from './one-machine.ts'
import { ringLesson } from './ring.ts'
import { sharedBatch } from './shared-batch.ts'
import { tooLarge } from './too-large.ts'

/** The lessons, in their order. */
export const course: readonly Lesson<never>[] = [
  oneMachine,
  sharedBatch,
  ringLesson,
  lostRank,
  tooLarge,
]
