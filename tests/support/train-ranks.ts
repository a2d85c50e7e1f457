import { task as digits } from '../../demos/digits/demo.ts'
import { parseTrainConfig } from '../../demos/experiments.ts'
import type { AnyRuntime } from '../../src/graph/memory/runtime.ts'
import { mlp } from '../../src/nn/mlp.ts'
import { Trainer } from '../../src/trainer/loop/trainer.ts'
import type { CheckpointPlace } from '../../src/trainer/saves/run-checkpoint.ts'
import type { TrainConfigInput } from '../../src/trainer/settings/config.ts'
import type { Task } from '../../src/trainer/settings/task.ts'
import type { RunEvent, TrainerResult } from '../../src/trainer/watch/run-events.ts'
import { meshOf, ringOf } from './process-ring.ts'

/** The digits demo with 32 units in place of the MLP's 256: an eighth of the time, the same code. */
export const smallDigits = {
  ...digits,
  model: (config, data) =>
    config.model === 'mlp' ? mlp({ sizes: [784, 32, 10] }) : digits.model(config, data),
} as typeof digits as unknown as Task

export interface RankEnd {
  result?: TrainerResult
  reason?: unknown
  events: RunEvent[]
}

/** The small digits training on ranks of this process, each with its runtime. */
export async function trainRanks(
  size: number,
  input: TrainConfigInput,
  open: (rank: number) => AnyRuntime,
  placeOf: (rank: number) => CheckpointPlace | undefined = () => undefined,
  task: Task = smallDigits,
): Promise<RankEnd[]> {
  const config = parseTrainConfig({
    ...(task.meta === digits.meta && { data: 'images' }),
    ...input,
  })
  // Replicas of a stage are not neighbours.
  const groups = await (config.parallel.startsWith('pp=') ? meshOf(size) : ringOf(size))
  const ends = await Promise.all(
    groups.map(async (group, rank): Promise<RankEnd> => {
      const events: RunEvent[] = []
      const trainer = new Trainer({
        task,
        runtime: open(rank),
        group,
        config,
        baseUrl: 'https://data.example/',
        onEvent: (event) => events.push(event),
        checkpoints: placeOf(rank),
      })
      const end = await trainer.run().then(
        (result) => ({ result, events }),
        (reason: unknown) => ({ reason, events }),
      )
      trainer.destroy()
      return end
    }),
  )
  for (const group of groups) group.destroy()
  return ends
}

/** The results, or the first reason why there are none. */
export function resultsOf(ends: readonly RankEnd[]): TrainerResult[] {
  return ends.map(({ result, reason }) => {
    if (!result) throw reason
    return result
  })
}

export const lossesOf = ({ events }: RankEnd): number[] =>
  events.flatMap((event) => (event.event === 'step' ? [event.loss] : []))

export const resumedOf = ({ events }: RankEnd) =>
  events.filter((event) => event.event === 'resumed')
