import type { TrainConfig } from './config.ts'

/** True if there can be a model without a rank's samples: ranks make one from its first parameters, of the mean of their gradients. */
export const canLeaveOut = ({
  aggregation,
  parallel,
  strategy,
  resume,
}: Pick<TrainConfig, 'aggregation' | 'parallel' | 'strategy' | 'resume'>): boolean =>
  parallel === 'dp' && strategy === 'ddp' && aggregation === 'mean' && !resume
