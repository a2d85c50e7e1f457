/** Evaluation and meters. */

export { AverageMeter, type SummaryType } from '../ddp/metrics/average-meter.ts'
export {
  type BatchSums,
  type EvaluateOptions,
  type EvaluateResult,
  evaluate,
} from '../ddp/metrics/evaluate-dataset.ts'
export { type Meter, ProgressMeter } from '../ddp/metrics/progress-meter.ts'
export { type SampleCount, sampleCount, topKCorrect } from '../graph/functions/linear.ts'
export { accuracy } from '../graph/functions/losses.ts'
