import type { TrainConfig } from './config.ts'

/** Returns words that distinguish a run from others of its demo and model: `moons, seed 1, sgd, lr 0.1`. */
export function aboutOf({
  data,
  seed,
  optimizer,
  lr,
}: Pick<TrainConfig, 'data' | 'seed' | 'optimizer' | 'lr'>): string {
  return `${data}, seed ${seed}, ${optimizer}${lr === undefined ? '' : `, lr ${lr}`}`
}
