import type { HostData } from '../../graph/memory/host-values.ts'
import type { InputTypes, Outputs } from '../../graph/plan/prepare.ts'
import type { RunInputs, RunOutputs } from '../../graph/plan/step-program.ts'
import type { Tensor } from '../../graph/trace/tensor.ts'
import type { Module, StateDict } from '../../nn/module.ts'
import type { TrainConfig } from './config.ts'
import type { DemoMeta } from './demo-meta.ts'

/** An experiment as the Trainer knows it; `demos/<name>/demo.ts` exports one as `task`. src/trainer/tasks.md shows how to write one. */
export interface Task<Data extends TaskData = TaskData> {
  readonly meta: DemoMeta
  /** Returns the data, the same on every rank. errors: `data.*`, one line for the person who chose it. */
  load(source: DataSource): Promise<Data>
  /** Returns a new model; its first parameters follow from `manualSeed`, which the Trainer has called. */
  model(config: TrainConfig, data: Data): Module
  /** The inputs of `forward`, `loss` and `measure` for batches of so many rows: the first axis of each is the rows. */
  types(config: TrainConfig, data: Data, rows: number): InputTypes
  /** Writes the samples of these numbers into the first rows; the rows behind them do not count, but must be numbers that the model takes. */
  fill(data: Data, split: Split, indices: Uint32Array, inputs: BatchArrays): void
  /** Output of the model for a batch, from which `loss` and `measure` come: one pass for both. */
  forward(model: Module, inputs: TaskInputs): Tensor
  /** The mean loss over the samples that count: give `count: sampleCount()` to the loss function. shape: [] */
  loss(output: Tensor, inputs: TaskInputs): Tensor
  /** The sum of the metric over the samples that count; left out where `meta.metric.ofLoss` gives the metric. shape: [] */
  measure?(output: Tensor, inputs: TaskInputs): Tensor
  /** Queries that the page may make, by name. */
  readonly queries: Readonly<Record<string, ModelQuery<Data>>>
}

/** By the name of the demo: loads what it trains. */
export type TaskLoaders = Readonly<Record<string, () => Promise<Task>>>

/** A batch by name, as `fill` writes it. */
export type TaskInputs = Readonly<Record<string, Tensor>>

export type Split = 'train' | 'test'

/** Result of a task's `load`: at least how many samples there are, for training and held out. */
export interface TaskData {
  readonly train: { readonly count: number }
  readonly test: { readonly count: number }
}

/** Where data comes from. */
export interface DataSource {
  readonly config: TrainConfig
  /** Data that a person gave, on whichever rank, where `config.data` is `given`; else null. */
  readonly given: Uint8Array<ArrayBuffer> | null
  /** Where relative addresses start. */
  readonly baseUrl: string
}

/** Inputs by name, to be written. */
export type BatchArrays = Readonly<Record<string, HostData>>

/**
 * Returns what the page asked to see. `input` comes from the page: judge it.
 *
 * It may run several programs; each run goes between two steps of training. Arrays in the answer are handed over to the page: give new ones.
 * errors: what it throws rejects for whoever asked, and ends no run.
 */
export type ModelQuery<Data extends TaskData = TaskData> = {
  // A method's type, so that a look of narrower data fits where tasks are one beside the other.
  query(context: QueryContext<Data>, input: unknown): Promise<QueryAnswer>
}['query']

/** Numbers, texts and arrays by name; `step`, behind which the model was so, is added to what a look gives. */
export type QueryAnswer = Readonly<Record<string, QueryValue>>
export type QueryValue = number | string | boolean | null | ArrayBufferView | readonly QueryValue[]

/** The model as it is between two steps. */
export interface QueryContext<Data extends TaskData = TaskData> {
  readonly config: TrainConfig
  readonly data: Data
  readonly rank: number
  readonly worldSize: number
  /** Training samples that this rank draws from: from `start` up to `end`. With shuffled data that is all of them. */
  readonly slice: { readonly start: number; readonly end: number }
  /** This rank's part of the newest step; null before the first. */
  readonly part: StepPart | null
  /** Returns `forward` as a program over the model in evaluation mode, compiled at the first call with this `key` and kept for the run. */
  program(key: string, types: InputTypes, forward: QueryForward): Promise<QueryProgram>
  /** The parameters and buffers, by PyTorch's keys. */
  stateDict(): Promise<StateDict>
  /**
   * Returns what `work` gives with a copy of the model as it is between two steps: for what takes many runs of one and the same model. One
   * such work goes on at a time. `untrained`: with the model as it was before its first step, where the run does not resume.
   */
  copied<T>(
    work: (copy: ModelCopy) => Promise<T>,
    options?: { readonly untrained?: boolean },
  ): Promise<T>
}

/** The model that is asked: the run's, or one that learns from the other ranks' samples alone. */
export type Whose = 'all' | 'others'

/** Returns what the query `part` of each task says of this rank's part of the newest step: how many samples, called `of`, and `shown` of them. */
export const answerOfPart = (
  { part }: Pick<QueryContext, 'part'>,
  of: string,
  shown: (own: Uint32Array) => QueryAnswer,
): QueryAnswer =>
  part
    ? {
        ofStep: part.step,
        count: part.own.length,
        globalCount: part.globalCount,
        of,
        ...shown(part.own),
      }
    : {}

/** The training samples that a rank computed in a step. */
export interface StepPart {
  readonly step: number
  /** Their numbers, which must not be changed. */
  readonly own: Uint32Array
  /** Samples of all ranks. */
  readonly globalCount: number
}

/** A model that stays as it is while training goes on. */
export interface ModelCopy {
  /** Behind which step the model was copied. */
  readonly step: number
  /** As `QueryContext.program`, over the copy. */
  program(key: string, types: InputTypes, forward: QueryForward): Promise<CopyProgram>
}

export interface CopyProgram {
  /**
   * Runs it with the inputs that `next` makes of the outputs before (null at first), until it gives null: several times between two steps, as
   * long as these are held back by no more than 40 ms, or by one run.
   */
  repeat(next: (outputs: RunOutputs | null) => RunInputs | null): Promise<void>
}

export type QueryForward = (model: Module, inputs: Readonly<Record<string, Tensor>>) => Outputs

export interface QueryProgram {
  /** Runs it in the next pause between two steps, or at once where none are under way. */
  run(inputs: RunInputs, scalars?: Readonly<Record<string, number>>): Promise<RunOutputs>
}
