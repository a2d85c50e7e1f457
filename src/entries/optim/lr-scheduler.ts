/** Learning-rate schedulers, as torch.optim.lr_scheduler. */

export { ChainedScheduler, SequentialLR } from '../../optim/lr-scheduler/combined.ts'
export { CosineAnnealingLR, CosineAnnealingWarmRestarts } from '../../optim/lr-scheduler/cosine.ts'
export {
  ConstantLR,
  ExponentialLR,
  LambdaLR,
  LinearLR,
  MultiStepLR,
  StepLR,
} from '../../optim/lr-scheduler/decays.ts'
export { OneCycleLR, type OneCycleOptions } from '../../optim/lr-scheduler/one-cycle.ts'
export { type PlateauOptions, ReduceLROnPlateau } from '../../optim/lr-scheduler/plateau.ts'
export {
  type AnyScheduler,
  LRScheduler,
  type Schedulable,
  type SchedulerState,
} from '../../optim/lr-scheduler/scheduler.ts'
