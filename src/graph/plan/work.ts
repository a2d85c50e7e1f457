import type { SyncPoint } from '../../kernels/sync-ranks/sync-ranks.ts'
import type { StageTask } from '../trace/stage-marks.ts'
import type { Phase } from './phases.ts'

/** Purpose of neighbouring dispatches of a step: a phase and, in a pipeline, the task. */
export interface Work {
  readonly phase: Phase
  readonly task: StageTask | undefined
}

const nameOf = ({ phase, task }: Work): string =>
  task ? `${task.kind} of micro-batch ${task.microBatch}, stage ${task.stage}` : phase

export const isSameWork = (a: Work, b: Work): boolean => nameOf(a) === nameOf(b)

/** The name of a mark of a watched run: work number `index` could begin, or is done. */
export const workMark = (work: Work, index: number, what: 'ready' | 'done'): string =>
  `${nameOf(work)}: ${what} ${index}`

/** The work of a mark; undefined for other marks. */
export function workOfMark(name: string):
  | {
      device: string | undefined
      phase: Phase
      microBatch: number | undefined
      stage: number | undefined
      index: number
      isDone: boolean
    }
  | undefined {
  const [, device, phase, microBatch, stage, what, index] =
    /^(?:(\S+), )?(forward|backward|optimizer)(?: of micro-batch (\d+), stage (\d+))?: (ready|done) (\d+)$/.exec(
      name,
    ) ?? []
  if (!phase) return undefined
  const numberOf = (text: string | undefined) => (text === undefined ? undefined : Number(text))
  return {
    device,
    phase: phase as Phase,
    microBatch: numberOf(microBatch),
    stage: numberOf(stage),
    index: Number(index),
    isDone: what === 'done',
  }
}

type SyncPointEvent = 'launched' | 'met' | 'ended'

/** The name of a mark of a watched run: what happened to a sync point. */
export const syncPointMark = (
  { syncPoint, number }: { readonly syncPoint: SyncPoint; readonly number: number },
  what: SyncPointEvent,
): string => `${syncPoint} ${number}: ${what}`

/** The sync point of a mark; undefined for other marks. */
export function syncPointOfMark(
  name: string,
): { syncPoint: SyncPoint; number: number; what: SyncPointEvent } | undefined {
  const [, syncPoint, number, what] =
    /^(sum|gather|scatter) (\d+): (launched|met|ended)$/.exec(name) ?? []
  if (!syncPoint) return undefined
  return {
    syncPoint: syncPoint as SyncPoint,
    number: Number(number),
    what: what as SyncPointEvent,
  }
}
