import type { MeasuredTime } from '../../ddp/exact/assignment.ts'
import type { BitProof } from '../../ddp/exact/exact-step.ts'
import type { ReplicaCheck } from '../../ddp/hashes/replica-check.ts'
import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import type { RunInputs, StepProgram } from '../../graph/plan/step-program.ts'
import type { Bucket } from '../../graph/trace/bucket.ts'
import type { VariantTable } from '../../kernels/choose.ts'
import type { TuneStore } from '../../kernels/tune.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import type { Evaluation } from '../evaluate/evaluate.ts'
import type { Draws, ShareBatches } from '../evaluate/share-batches.ts'
import type { RunParts } from '../saves/kept-states.ts'
import type { TrainConfig } from '../settings/config.ts'
import type { Task, TaskData } from '../settings/task.ts'
import type { Phase, RunEvent } from '../watch/run-events.ts'
import type { SharedModel } from './shared-model.ts'

/** Who trains together, and from where. */
export interface PlaceInGroup {
  readonly group: ProcessGroup
  /** Of the run. */
  readonly stepsDone: number
  /** The run continues without ranks that are evicted. */
  readonly isElastic?: boolean
  readonly onEvent: (event: RunEvent) => void
}

export interface RankSetupOptions extends PlaceInGroup {
  readonly config: TrainConfig
  readonly task: Task
  readonly data: TaskData
  readonly runtime: AnyRuntime
  /** Of buckets, where the settings leave it open. */
  readonly bucketCapMb: number
  readonly tuneStore?: TuneStore
  /** The kernels of an earlier attempt of the run, which are not measured again. */
  readonly variants?: VariantTable
  readonly onPhase: (phase: Phase) => void
}

/** Setup of a rank on one device, in one group: its part of the model, the optimizer, the compiled programs. */
export interface RankSetup {
  readonly runtime: AnyRuntime
  readonly shared: SharedModel
  /** The ranks that train one model: the group, or with the strategy `alone` this rank. */
  readonly replicas: ProcessGroup
  readonly draws: Draws
  readonly batches: ShareBatches
  /** Rows of each rank's program. */
  readonly rowsOf: readonly number[]
  readonly buckets: readonly Bucket[]
  /** Parts that a step changes. */
  readonly parts: RunParts
  readonly step: StepProgram
  readonly evaluation: Evaluation
  /** Where there are several replicas. */
  readonly check: Pick<ReplicaCheck, 'compare'> | undefined
  /** With `exact`, before anything is restored: computes the first virtual worker of the run's first step (`ExactStep.prove`). */
  prove?(): Promise<BitProof>
  /** With `exact`: how long this rank takes for a virtual worker, as far as that is known; after `prove`. */
  took?(): MeasuredTime | undefined
  /**
   * With `exact`, before the first step: assigns the virtual workers by the ranks' reports (`Assignment.begin`). Returns samples of a full batch, by rank. `isAudited`:
   * the ranks check each other's gradients (`audit`).
   */
  assignment?(
    received: readonly (MeasuredTime | undefined)[],
    isAudited: boolean,
  ): readonly number[]
  /** Names the op by which a step's values on this rank stop being finite, from what the parameters are now; sends nothing. */
  findNotFinite(
    inputs: RunInputs,
    scalars: Readonly<Record<string, number>>,
  ): Promise<string | undefined>
  /** With `exact`: the same for another group, without compiling; then a state must be restored. */
  enter?(place: PlaceInGroup): RankSetup
  /** Frees what it has on the device. */
  destroy(): void
}
