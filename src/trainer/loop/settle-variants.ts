import { type AnyRuntime, Runtime } from '../../graph/memory/runtime.ts'
import type { Prepared } from '../../graph/plan/prepare.ts'
import { timeLowering } from '../../graph/tune/time-lowering.ts'
import { environmentOf } from '../../graph/tune/tune-store.ts'
import type { VariantTable } from '../../kernels/choose.ts'
import { type TuneStore, tune } from '../../kernels/tune.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { isRecord, isText } from '../../util/kind-of.ts'
import type { TrainConfig } from '../settings/config.ts'

/** Options of a run for tuning: see TrainerOptions. */
interface TuningOptions {
  readonly runtime: AnyRuntime
  readonly group: ProcessGroup
  readonly config: TrainConfig
  readonly tuneStore?: TuneStore
}

const isTable = (received: unknown): received is VariantTable =>
  isRecord(received) && Object.values(received).every(isText)

/**
 * Returns the kernel variants that all ranks use: rank 0 measures, and everyone takes its table. Empty unless the run is tuned.
 *
 * `prepareStep` gives the training step for a number of rows; `shares`: of each rank, which differ by at most one row, so that two steps cover
 * them.
 * `known`: the table of a run that goes on after a lost device, which is not measured again.
 */
export async function settleVariants(
  { runtime, group, config, tuneStore }: TuningOptions,
  shares: readonly number[],
  prepareStep: (rows: number) => Prepared,
  known?: VariantTable,
): Promise<VariantTable> {
  if (!config.tune) return {}
  let own: VariantTable = known ?? {}
  if (!known && group.rank === 0 && runtime instanceof Runtime) {
    own = await tune({
      targets: [...new Set(shares)].flatMap((count) => prepareStep(count).calls),
      limits: runtime.limits,
      time: (lowering, { call }) => timeLowering(runtime, lowering, call),
      store: tuneStore,
      environment: environmentOf(runtime),
    })
  }
  const [table] = await gatherJson('the kernel table', group, own, isTable)
  return group.size === 1 ? own : table
}
