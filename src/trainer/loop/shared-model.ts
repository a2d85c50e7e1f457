import { paramDigest } from '../../ddp/hashes/param-digest.ts'
import type { LeftOutRanks } from '../../ddp/hooks/left-out.ts'
import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import type { RunOutputs } from '../../graph/plan/step-program.ts'
import type { Tensor } from '../../graph/trace/tensor.ts'
import type { Module, StateDict } from '../../nn/module.ts'
import type { GradScaler } from '../../optim/grad-scaler.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import type { TaskInputs } from '../settings/task.ts'
import type { RankPart } from '../watch/run-events.ts'

/** A task's model as the ranks of a run share it. */
export interface SharedModel {
  /** The module that a step calls. */
  readonly model: Module
  /** The same with the keys of the task's model. */
  readonly module: Module
  /** True if each rank can run it without the others. */
  readonly isWhole: boolean
  /** Part of each rank, by rank; undefined where each has the whole model. */
  readonly held?: readonly RankPart[]
  /** The ranks that divide the samples. */
  readonly dataRanks: CollectiveGroup
  /** The ranks that have parts of a step; undefined where each rank computes whole steps. */
  readonly parts?: CollectiveGroup
  /** The rows that a program must have for a batch of `rows`. */
  rowsFor?(rows: number): number
  /**
   * Forward and backward of a batch in parts, in float16 with a scaler: the mean loss over the samples that count, and the sum of the metric;
   * inside a step.
   */
  backward?(
    inputs: TaskInputs,
    scaler: GradScaler | undefined,
  ): { readonly loss: Tensor; readonly sum: Tensor | undefined }
  /** How large gradients may be; undefined where all count. */
  readonly limits?: LeftOutRanks
  /** Shares a step's outputs with all ranks that have parts of it. They all call it. */
  shareOutputs?(outputs: RunOutputs): Promise<RunOutputs>
  /** The mean over all ranks' samples, of the mean over this rank's; inside a step. */
  mean(value: Tensor): Tensor
  /** A hash of all parameters, the same on every rank. All ranks call it, between steps. */
  digest(runtime: AnyRuntime): Promise<string>
  /** All parameters, with the keys of the task's model. Where ranks have parts, it is what `digest` has read. errors: `graph.misuse` before that. */
  stateDict(): Promise<StateDict>
}

/** Each rank has the whole model; outputs of a step are means over ranks by themselves. `model`: what a step calls. */
export const replicated = (
  model: Module,
  module: Module,
  dataRanks: CollectiveGroup,
  limits?: LeftOutRanks,
): SharedModel => ({
  limits,
  model,
  module,
  isWhole: true,
  dataRanks,
  mean: (value) => value,
  digest: (runtime) => paramDigest(module.parameters(), runtime),
  stateDict: () => module.stateDict(),
})
