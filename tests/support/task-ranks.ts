import { parseTrainConfig } from '../../demos/experiments.ts'
import { isDemo } from '../../demos/metas.ts'
import { tasks } from '../../demos/tasks.ts'
import type { AnyRuntime } from '../../src/graph/memory/runtime.ts'
import type { StateDict } from '../../src/nn/module.ts'
import type { ProcessGroup } from '../../src/peer/group/group.ts'
import { Trainer, type TrainerOptions } from '../../src/trainer/loop/trainer.ts'
import type { TrainConfigInput } from '../../src/trainer/settings/config.ts'
import type { RunEvent, TrainerResult } from '../../src/trainer/watch/run-events.ts'
import { ringOf } from './process-ring.ts'

/** A rank of this process that trains a demo. */
export interface TaskRank {
  readonly trainer: Trainer
  readonly group: ProcessGroup
  readonly events: RunEvent[]
  readonly end: Promise<TrainerResult>
  /** Resolves with the first event of that kind that `isIt` takes, from now on or from before. */
  until<K extends RunEvent['event']>(
    kind: K,
    isIt?: (event: Extract<RunEvent, { event: K }>) => boolean,
  ): Promise<Extract<RunEvent, { event: K }>>
}

/** Ranks that train a demo, each on a separate runtime; `close` frees what they hold. */
export async function startTask(
  size: number,
  input: TrainConfigInput,
  open: (rank: number) => Promise<AnyRuntime> | AnyRuntime,
  others: (rank: number) => Partial<TrainerOptions> = () => ({}),
): Promise<{ ranks: TaskRank[]; close(): void }> {
  const config = parseTrainConfig(input)
  if (!isDemo(config.demo)) throw new Error(config.demo)
  const task = await tasks[config.demo]()
  const groups = await ringOf(size)
  const ranks = await Promise.all(
    groups.map(async (group, rank): Promise<TaskRank> => {
      const events: RunEvent[] = []
      const listeners = new Set<(event: RunEvent) => void>()
      const own = others(rank)
      const trainer = new Trainer({
        runtime: await open(rank),
        group,
        config,
        task,
        baseUrl: 'https://data.example/',
        ...own,
        onEvent: (event) => {
          events.push(event)
          own.onEvent?.(event)
          for (const listener of listeners) listener(event)
        },
      })
      const end = trainer.run()
      end.catch(() => undefined)
      return {
        trainer,
        group,
        events,
        end,
        until: (kind, isIt = () => true) =>
          new Promise((resolve, reject) => {
            const look = (event: RunEvent) => {
              const own = event as Extract<RunEvent, { event: typeof kind }>
              if (event.event !== kind || !isIt(own)) return
              listeners.delete(look)
              resolve(own)
            }
            listeners.add(look)
            for (const event of events) look(event)
            end.then(
              () => reject(new Error(`the run ended without ${kind}`)),
              (error) => reject(error),
            )
          }),
      }
    }),
  )
  return {
    ranks,
    close() {
      for (const { trainer, group } of ranks) {
        trainer.destroy()
        group.destroy()
      }
    },
  }
}

/** All elements of a state dict, by key. */
export const bitsOf = (state: StateDict): Record<string, string> =>
  Object.fromEntries(
    Object.entries(state).map(([key, { data }]) => [
      key,
      new Uint32Array(data.buffer, data.byteOffset, data.length).join(),
    ]),
  )
