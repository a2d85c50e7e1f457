import { bubbleOf } from '../../parallel/pipeline/simulate.ts'
import { pipelinesOf } from '../../trainer/settings/parallel.ts'
import type { Run } from '../state/run.ts'
import type { Lane, LaneSpan } from './lanes.ts'

/** Narrower spans have no room for a number. units: of the step's length. */
const minShare = 0.012

const isTask = ({ kind, part }: LaneSpan) =>
  (kind === 'forward' || kind === 'backward') && part >= 0

/** The stages of each pipeline of a run; undefined without pipelines. */
export const runStages = ({ config }: Pick<Run, 'config'>): number | undefined =>
  config ? pipelinesOf(config.parallel)?.stages : undefined

interface NumbersProps {
  lane: Lane
  lengthMs: number
  /** units: px. */
  top: number
  height: number
}

/** The number of the micro-batch on each forward and backward of a pipeline's stage. */
export const MicroBatchNumbers = ({ lane, lengthMs, top, height }: NumbersProps) => (
  <>
    {lane.spans
      .filter((span) => isTask(span) && (span.toMs - span.fromMs) / lengthMs > minShare)
      .map(({ kind, part, fromMs, toMs }) => (
        <span
          key={fromMs}
          class="gantt-number"
          data-kind={kind}
          style={{
            left: `${(100 * fromMs) / lengthMs}%`,
            width: `${(100 * (toMs - fromMs)) / lengthMs}%`,
            top: `${top}px`,
            height: `${height}px`,
          }}
        >
          {part}
        </span>
      ))}
  </>
)

/** How much of forward and backward the stages idle, as measured and as the schedule has it. */
export function bubbleWords(lanes: readonly Lane[], stages: number): string {
  const tasks = lanes.flatMap(({ rank, spans }) =>
    spans
      .filter(isTask)
      .map(({ part, fromMs, toMs }) => ({ part, device: rank, startMs: fromMs, endMs: toMs })),
  )
  if (tasks.length === 0) return ''
  const microBatches = new Set(tasks.map(({ part }) => part)).size
  const percent = (share: number) => `${Math.round(100 * share)} %`
  const ideal = (stages - 1) / (microBatches + stages - 1)
  return `Bubble: a stage idles for ${percent(bubbleOf(tasks))} of forward and backward. ${stages} stages of equal cost idle for ${percent(ideal)} with ${microBatches} micro-batches.`
}
