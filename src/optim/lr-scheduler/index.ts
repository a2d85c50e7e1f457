/** Learning-rate schedulers, named as in torch.optim.lr_scheduler. */

export { ChainedScheduler, SequentialLR } from './combined.ts'
export { CosineAnnealingLR, CosineAnnealingWarmRestarts } from './cosine.ts'
export { ConstantLR, ExponentialLR, LambdaLR, LinearLR, MultiStepLR, StepLR } from './decays.ts'
export { OneCycleLR, type OneCycleOptions } from './one-cycle.ts'
export { type PlateauOptions, ReduceLROnPlateau } from './plateau.ts'
export {
  type AnyScheduler,
  LRScheduler,
  type Schedulable,
  type SchedulerState,
} from './scheduler.ts'
