import { epochOrder } from '../../data/shares.ts'
import type { ReplicaCheck } from '../../ddp/hashes/replica-check.ts'
import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import type { InputTypes, TracedFunction } from '../../graph/plan/prepare.ts'
import type { StepProgram } from '../../graph/plan/step-program.ts'
import type { Module } from '../../nn/module.ts'
import { SyncBatchNorm } from '../../nn/sync-batch-norm.ts'
import { ExactOptimizer } from '../../optim/exact/exact-optimizer.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { TabringError } from '../../util/errors.ts'
import { batchArrays, type Draws } from '../evaluate/share-batches.ts'
import type { TrainConfig } from '../settings/config.ts'
import { learningRateOf } from '../settings/demo-meta.ts'
import type { Task, TaskData } from '../settings/task.ts'
import type { BitProof } from '../watch/run-events.ts'
import { ExactStep } from './exact-step.ts'
import { LossScale } from './loss-scale.ts'
import { VirtualWorkers } from './virtual-workers.ts'

const mostParameters = 50e6
/** On the host of each rank: the value, two moments, the sum and a copy of it; value and moments again in each of two kept states. */
const bytesPerParameter = 44

/** What a run with `exact` does in its own way. */
export interface ExactRun {
  readonly draws: Draws
  /** Samples of a full batch, by rank, as the ranks begin. */
  readonly dealt: readonly number[]
  /** Of a virtual worker: what its program is compiled for. */
  readonly rows: number
  readonly optimizer: ExactOptimizer
  /** In float16. */
  readonly lossScale: LossScale | undefined
  /** Compiles the step, for a virtual worker's rows. `stepsDone`: of the run. */
  compile(
    runtime: AnyRuntime,
    step: TracedFunction,
    types: InputTypes,
    stepsDone: number,
  ): Promise<StepProgram>
  /** Of the compiled step's state. */
  readonly check: Pick<ReplicaCheck, 'compare'>
  /** `ExactStep.prove` for the first virtual worker of the run's first step. `types`: of its rows; `scalars`: those of the step but the count. */
  prove(
    data: TaskData,
    types: InputTypes,
    scalars: Readonly<Record<string, number>>,
  ): Promise<BitProof>
}

/** `samples`: of the training set. `onDealt` gets the samples of a full batch by rank, and after which step they changed. errors: `config.invalid` for a model that it cannot train. */
export function exactRun(
  task: Task,
  model: Module,
  config: TrainConfig,
  samples: number,
  group: ProcessGroup,
  onDealt?: (samples: readonly number[], step: number) => void,
): ExactRun {
  mustFit(model)
  const workers = new VirtualWorkers(config, samples, group.rank, group.size)
  const lr = learningRateOf(config, task.meta)
  const optimizer = new ExactOptimizer(
    model.parameters(),
    config.optimizer === 'adamw'
      ? { kind: 'adamw', lr, betas: [0.9, 0.999], eps: 1e-8, weightDecay: 0.01 }
      : { kind: 'sgd', lr, momentum: 0.9 },
  )
  const { virtualWorkers, clipNorm, precision } = config
  const lossScale =
    precision === 'float16' ? new LossScale(workers.rows * virtualWorkers) : undefined
  let step: ExactStep | undefined
  return {
    draws: workers.draws,
    dealt: workers.samples,
    rows: workers.rows,
    optimizer,
    lossScale,
    async compile(runtime, forward, types, stepsDone) {
      const own = { optimizer, workers, virtualWorkers, clipNorm, lossScale, stepsDone }
      const dealt = (step: number) => onDealt?.(workers.samples, step)
      step = await ExactStep.create({ runtime, group, forward, types, ...own, onDealt: dealt })
      return step
    },
    check: { compare: async (ranks, number) => step?.compare(ranks, number) },
    prove(data, types, scalars) {
      const inputs = batchArrays(types)
      const own = epochOrder(config.seed, 0, samples).subarray(0, workers.rows)
      task.fill(data, 'train', own, inputs)
      return step!.prove(inputs, { ...scalars, count: own.length })
    },
  }
}

function mustFit(model: Module): void {
  for (const [path, module] of model.namedModules()) {
    if (!(module instanceof SyncBatchNorm)) continue
    throw new TabringError(
      'config.invalid',
      `exact: "${path}" is a SyncBatchNorm, which needs all ranks within each forward pass, and virtual workers run one after the other. Use BatchNorm, or train without exact.`,
    )
  }
  const parameters = model.parameters().reduce((sum, { count }) => sum + count, 0)
  if (parameters <= mostParameters) return
  const gigabytes = ((parameters * bytesPerParameter) / 1e9).toFixed(1)
  throw new TabringError(
    'config.invalid',
    `exact: expected at most ${mostParameters / 1e6} million parameters, got ${Math.ceil(parameters / 1e6)} million, which take ${gigabytes} GB of host memory on each rank. Use a smaller model, or train without exact.`,
  )
}
