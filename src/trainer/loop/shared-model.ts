import type { DistributedDataParallel } from '../../ddp/data-parallel/data-parallel.ts'
import { paramDigest } from '../../ddp/hashes/param-digest.ts'
import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import type { Tensor } from '../../graph/trace/tensor.ts'
import type { Module, StateDict } from '../../nn/module.ts'

/** A task's model as the ranks of a run share it. */
export interface SharedModel {
  /** What a step calls. */
  readonly model: Module
  /** The same with the keys of the task's model. */
  readonly module: Module
  /** Whether each rank can run it by itself. */
  readonly isWhole: boolean
  /** The mean over all ranks' samples, of the mean over this rank's; inside a step. */
  mean(value: Tensor): Tensor
  /** A hash of all parameters, the same on every rank. All ranks call it, between steps. */
  digest(runtime: AnyRuntime): Promise<string>
  /** All parameters, with the keys of the task's model. Where ranks have parts, it is what `digest` has read. errors: `graph.misuse` before that. */
  stateDict(): Promise<StateDict>
}

/** Each rank has the whole model; outputs of a step are means over ranks by themselves. */
export const replicated = (ddp: DistributedDataParallel): SharedModel => ({
  model: ddp,
  module: ddp.module,
  isWhole: true,
  mean: (value) => value,
  digest: (runtime) => paramDigest(ddp.module.parameters(), runtime),
  stateDict: () => ddp.module.stateDict(),
})
