/** Data parallelism, its communication hooks, and devices inside one step, as torch.nn.parallel. */

export {
  DistributedDataParallel,
  type DistributedDataParallelOptions,
  type VerifySyncOptions,
} from '../../ddp/data-parallel/data-parallel.ts'
export type { ExactOptions, ExactShare } from '../../ddp/data-parallel/exact-training.ts'
export type { JoinOptions } from '../../ddp/data-parallel/uneven-inputs.ts'
export { paramDigest } from '../../ddp/hashes/param-digest.ts'
export { ReplicaCheck } from '../../ddp/hashes/replica-check.ts'
export type { Aggregation } from '../../ddp/hooks/aggregate.ts'
export {
  allreduceHook,
  bf16CompressHook,
  bf16CompressWrapper,
  type CommHook,
  fp16CompressHook,
  fp16CompressWrapper,
} from '../../ddp/hooks/comm-hooks.ts'
export type { GradBucket } from '../../ddp/hooks/grad-bucket.ts'
export type { HookState, HookStateDict } from '../../ddp/hooks/hook-state.ts'
export { type Int8Options, Int8State, int8CompressHook } from '../../ddp/hooks/int8-hook.ts'
export type { LeftOut, Trust } from '../../ddp/hooks/left-out.ts'
export { type PowerSgdOptions, PowerSgdState, powerSgdHook } from '../../ddp/hooks/power-sgd.ts'
export type { WireType } from '../../ddp/hooks/wire-numbers.ts'
export { gradientWeight } from '../../graph/trace/trace.ts'
export { type RecvOptions, recv, Sent, send } from '../../parallel/by-hand/send-recv.ts'
export {
  DataParallel,
  type DataParallelOptions,
  dataParallel,
} from '../../parallel/data-parallel/data-parallel.ts'
export {
  gather,
  parallelApply,
  type Replica,
  replicate,
  scatter,
} from '../../parallel/data-parallel/replicas.ts'
