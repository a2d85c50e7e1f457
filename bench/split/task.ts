/** What the bench of split models trains. */
export interface SplitTask {
  readonly model: 'cnn' | 'resnet50'
  readonly batch: number
  readonly stages: number
}

/** How a step is split: on one device, layers on several, or in micro-batches of this number of samples. */
export type Split = 'one' | 'layers' | number

/** A prepared way to split. units: ms; bytes by device. */
export interface SplitFacts {
  readonly split: Split
  readonly compileMs: number
  readonly peakBytes: readonly number[]
  /** In each step. */
  readonly sentBytes: readonly number[]
}

/** A measured one. */
export interface SplitTimes extends SplitFacts {
  readonly stepMs: readonly number[]
}
