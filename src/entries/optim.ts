/** Optimizers, and averages of parameters, as torch.optim. */

export { Adagrad, type AdagradOptions, type AdagradSettings } from '../optim/adagrad.ts'
export {
  Adam,
  type AdamOptions,
  type AdamSettings,
  AdamW,
  type AdamWOptions,
} from '../optim/adam.ts'
export { type Averaged, type EmaOptions, ExponentialMovingAverage } from '../optim/ema.ts'
export type { AveragedTensor, EmaState } from '../optim/ema-state.ts'
export { Lion, type LionOptions, type LionSettings } from '../optim/lion.ts'
export { Optimizer } from '../optim/optimizer.ts'
export { RMSprop, type RMSpropOptions, type RMSpropSettings } from '../optim/rmsprop.ts'
export type { CommonSettings, ParamGroup, Params } from '../optim/settings.ts'
export { SGD, type SGDOptions, type SGDSettings } from '../optim/sgd.ts'
export type {
  OptimizerStateDict,
  SettingValue,
  StateEntry,
  StateTensor,
} from '../optim/state-dict.ts'
