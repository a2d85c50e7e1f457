import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import { systemEnv } from '../../util/env.ts'
import { givenData, type TrainConfig } from '../settings/config.ts'
import type { Task, TaskData } from '../settings/task.ts'
import type { Phase } from '../watch/run-events.ts'
import type { RankSetup } from './rank-setup.ts'
import type { Proved } from './run-bits.ts'
import { aloneIn, setUpRank } from './set-up-rank.ts'

export interface WarmUpOptions {
  readonly config: TrainConfig
  readonly task: Task
  readonly runtime: AnyRuntime
  readonly baseUrl: string
  readonly onPhase: (phase: Phase) => void
}

/** Preparations of a rank before it joins. */
export interface WarmedUp {
  readonly data: TaskData
  /** With `exact`. */
  readonly proved?: Proved
  /** The trainer that takes it frees it. */
  readonly setup?: RankSetup
}

/**
 * Does what a rank can do before it joins a run that is on, while the others train: loads the data, and with `exact`, where programs are the
 * same for any ranks, compiles them, and computes by which bits the others know it.
 *
 * Undefined where a person gave the data: the others send it.
 * errors: `data.*`, `config.invalid`, `gpu.*`.
 */
export async function warmUp(options: WarmUpOptions): Promise<WarmedUp | undefined> {
  const { config, task, runtime, baseUrl, onPhase } = options
  if (config.data === givenData) return undefined
  onPhase('load')
  const data = await task.load({ config, given: null, baseUrl })
  if (!config.exact) return { data }
  const setup = await setUpRank({
    ...options,
    data,
    group: aloneIn({ epoch: 0, env: systemEnv }),
    bucketCapMb: 0,
    stepsDone: 0,
    onEvent: () => undefined,
  })
  try {
    await setup.evaluation.prepare()
    await setup.shared.digest(runtime)
    return { data, setup, proved: { runtime, proof: await setup.prove!() } }
  } catch (error) {
    setup.destroy()
    throw error
  }
}
