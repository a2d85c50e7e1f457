/** Models split over ranks and devices: pipelines, fully sharded and tensor-parallel layers, and meshes. */

export type { StageTask } from '../../graph/trace/stage-marks.ts'
export {
  DeviceMesh,
  type DeviceMeshOptions,
  initDeviceMesh,
} from '../../parallel/mesh/device-mesh.ts'
export { layersOf } from '../../parallel/pipeline/cut.ts'
export { type LayerTimesOptions, layerTimes } from '../../parallel/pipeline/layer-times.ts'
export {
  type Pipe,
  type PipelineOptions,
  type PipelineStage,
  pipeline,
} from '../../parallel/pipeline/pipe.ts'
export {
  type MicroBatchWork,
  type Schedule,
  Schedule1F1B,
  ScheduleGPipe,
  ScheduleInterleaved1F1B,
  type ScheduleOptions,
} from '../../parallel/pipeline/schedule.ts'
export { bubbleOf, type TaskCosts, type TaskSpan } from '../../parallel/pipeline/simulate.ts'
export { type ReplicateOptions, replicate } from '../../parallel/replicated/replicate.ts'
export { type FullyShardOptions, fullyShard } from '../../parallel/sharded/fully-shard.ts'
export {
  type ParallelizePlan,
  parallelizeModule,
} from '../../parallel/tensor/parallelize-module.ts'
export {
  ColwiseParallel,
  type ColwiseParallelOptions,
  type ParallelStyle,
  RowwiseParallel,
} from '../../parallel/tensor/styles.ts'
