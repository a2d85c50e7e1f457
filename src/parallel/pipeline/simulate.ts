import type { StageTask } from '../../graph/trace/stage-marks.ts'
import { TabringError } from '../../util/errors.ts'
import { isRecord } from '../../util/kind-of.ts'
import { checkList } from '../../util/options.ts'

/** What a task takes on a simulated device. units: ms. */
export interface TaskCosts {
  forwardMs(stage: number): number
  backwardMs(stage: number): number
  /** From the end of a task to when another device has its result. */
  readonly transferMs: number
}

/** A task on a simulated device. units: ms from the step's start. */
export interface TaskSpan extends StageTask {
  readonly device: number
  readonly startMs: number
  readonly endMs: number
}

const keyOf = (kind: StageTask['kind'], stage: number, microBatch: number) =>
  `${kind} ${stage} ${microBatch}`

/**
 * Runs orders of tasks (one for each device) on devices that take what `costs` says, and returns when each task ran.
 *
 * It is arithmetic, not a measurement: for bubbles that this machine cannot show. errors: `graph.misuse` for orders that wait for each other.
 */
export function simulateSchedule(
  orders: readonly (readonly StageTask[])[],
  costs: TaskCosts,
): TaskSpan[] {
  const stageCount = Math.max(...orders.flat().map(({ stage }) => stage)) + 1
  const spans: TaskSpan[] = []
  const done = new Map<string, TaskSpan>()
  const next = orders.map(() => 0)
  const freeMs = orders.map(() => 0)
  /** When a task's inputs are on its device; undefined while one is not computed. */
  const readyMs = ({ kind, stage, microBatch }: StageTask, device: number): number | undefined => {
    const needed: string[] = []
    if (kind === 'backward') {
      needed.push(keyOf('forward', stage, microBatch))
      if (stage + 1 < stageCount) needed.push(keyOf('backward', stage + 1, microBatch))
    } else if (stage > 0) needed.push(keyOf('forward', stage - 1, microBatch))
    let latest = 0
    for (const key of needed) {
      const span = done.get(key)
      if (!span) return undefined
      const transferMs = span.device === device ? 0 : costs.transferMs
      latest = Math.max(latest, span.endMs + transferMs)
    }
    return latest
  }
  const advance = (device: number): boolean => {
    const task = orders[device][next[device]]
    const ready = task && readyMs(task, device)
    if (ready === undefined) return false
    const startMs = Math.max(freeMs[device], ready)
    const ownMs =
      task.kind === 'forward' ? costs.forwardMs(task.stage) : costs.backwardMs(task.stage)
    const span = { ...task, device, startMs, endMs: startMs + ownMs }
    freeMs[device] = span.endMs
    next[device] += 1
    spans.push(span)
    done.set(keyOf(task.kind, task.stage, task.microBatch), span)
    return true
  }
  while (orders.map((_, device) => advance(device)).some(Boolean));
  if (spans.length < orders.flat().length) {
    throw new TabringError(
      'graph.misuse',
      'simulateSchedule: the devices wait for each other. Order tasks so that each comes after those that it needs.',
    )
  }
  return spans
}

/** The share of the devices' time in which they idle, from the first start to the last end. range: 0 to 1. */
export function bubbleOf(
  spans: readonly { readonly device: unknown; readonly startMs: number; readonly endMs: number }[],
): number {
  checkList('bubbleOf', 'spans', spans, isRecord, 'spans { device, startMs, endMs }')
  const deviceCount = new Set(spans.map(({ device }) => device)).size
  const startMs = Math.min(...spans.map((span) => span.startMs))
  const totalMs = (Math.max(...spans.map(({ endMs }) => endMs)) - startMs) * deviceCount
  const busyMs = spans.reduce((sum, span) => sum + span.endMs - span.startMs, 0)
  return totalMs > 0 ? 1 - busyMs / totalMs : 0
}
