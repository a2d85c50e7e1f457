import type { StageTask } from '../../src/graph/trace/stage-marks.ts'

/** What the bench of split models trains. */
export interface SplitTask {
  readonly model: 'cnn' | 'resnet50'
  readonly batch: number
  readonly stages: number
}

/**
 * How a step is split: on one device, layers on several, or in micro-batches of this number of samples; `waiting`: of which each is sent before
 * the device computes on.
 */
export type Split = 'one' | 'layers' | number | `${number} waiting`

/** Samples of a micro-batch; undefined where the batch is whole. */
export const sizeOf = (split: Split): number | undefined =>
  split === 'one' || split === 'layers' ? undefined : Number.parseInt(String(split), 10)

/** A prepared way to split. units: ms; bytes by device. */
export interface SplitFacts {
  readonly split: Split
  readonly compileMs: number
  readonly peakBytes: readonly number[]
  /** In each step. */
  readonly sentBytes: readonly number[]
  /** By device: the tasks of its part of the traced step, in order; none of a step on one device. */
  readonly tasks: readonly (readonly StageTask[])[]
}

/** A measured one. */
export interface SplitTimes extends SplitFacts {
  readonly stepMs: readonly number[]
}
