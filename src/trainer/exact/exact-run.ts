import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import type { InputTypes, TracedFunction } from '../../graph/plan/prepare.ts'
import type { StepProgram } from '../../graph/plan/step-program.ts'
import type { Module } from '../../nn/module.ts'
import { ExactOptimizer } from '../../optim/exact/exact-optimizer.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import type { Draws } from '../evaluate/share-batches.ts'
import type { TrainConfig } from '../settings/config.ts'
import { learningRateOf } from '../settings/demo-meta.ts'
import type { Task } from '../settings/task.ts'
import { ExactStep } from './exact-step.ts'
import { planVirtualWorkers } from './virtual-workers.ts'

/** What a run with `exact` does in its own way. */
export interface ExactRun {
  readonly draws: Draws
  /** Of a virtual worker: what its program is compiled for. */
  readonly rows: number
  readonly optimizer: ExactOptimizer
  /** Compiles the step, for a virtual worker's rows. */
  compile(runtime: AnyRuntime, step: TracedFunction, types: InputTypes): Promise<StepProgram>
}

/** `samples`: of the training set. */
export function exactRun(
  { meta }: Task,
  model: Module,
  config: TrainConfig,
  samples: number,
  group: ProcessGroup,
): ExactRun {
  const workers = planVirtualWorkers(config, samples, group.rank, group.size)
  const lr = learningRateOf(config, meta)
  const optimizer = new ExactOptimizer(
    model.parameters(),
    config.optimizer === 'adamw'
      ? { kind: 'adamw', lr, betas: [0.9, 0.999], eps: 1e-8, weightDecay: 0.01 }
      : { kind: 'sgd', lr, momentum: 0.9 },
  )
  const { virtualWorkers } = config
  return {
    draws: workers.draws,
    rows: workers.rows,
    optimizer,
    compile: (runtime, forward, types) =>
      ExactStep.create({ runtime, group, optimizer, workers, virtualWorkers, forward, types }),
  }
}
