import type { Parameter } from '../../graph/trace/parameter.ts'
import type { TabringError } from '../../util/errors.ts'
import type { ExactOptimizer, ExactSettings } from './exact-optimizer.ts'

/** An optimizer that may have its update on the host. */
export interface HostForm {
  readonly paramGroups: readonly { lr: number; readonly params: readonly Parameter[] }[]
  /** The settings of that update; undefined where it has no host form. */
  hostForm(): ExactSettings | undefined
  /** Has its updates and its state there from now on, beginning with what was loaded. */
  moveToHost(make: () => ExactOptimizer): ExactOptimizer
}

/** Who trains parameters so that the result is the same bits on any number of ranks; the optimizer is on the host then. */
export interface ExactTraining {
  /** Adds an optimizer's step to the function being compiled. errors: `graph.misuse` for what it cannot hold. */
  step(optimizer: HostForm): void
  /** The error for what works on gradients in another way. */
  refusal(where: string): TabringError
}

/** By parameter; set by DistributedDataParallel with the option `exact`. */
export const exactTrainings = new WeakMap<Parameter, ExactTraining>()
