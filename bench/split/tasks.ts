import type { Prepared } from '../../src/graph/plan/prepare.ts'
import type { StageTask } from '../../src/graph/trace/stage-marks.ts'

const isSame = (a: StageTask, b: StageTask | undefined) =>
  a.kind === b?.kind && a.stage === b.stage && a.microBatch === b.microBatch

/** The pipeline's tasks in a part of a step, in its order of execution. */
export function tasksOf({ workOf }: Pick<Prepared, 'workOf'>): StageTask[] {
  const tasks = [...workOf.values()].flatMap(({ task }) => task ?? [])
  return tasks.filter((task, i) => !isSame(task, tasks[i - 1]))
}

/** Those of a device in a step without micro-batches. */
export const tasksOfWhole = (stage: number): StageTask[] => [
  { kind: 'forward', stage, microBatch: 0 },
  { kind: 'backward', stage, microBatch: 0 },
]
