import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import { systemEnv } from '../../util/env.ts'
import { loadPart } from '../../util/load-part.ts'
import { Evaluation } from '../evaluate/evaluate.ts'
import type { TrainConfig } from '../settings/config.ts'
import type { Task, TaskData } from '../settings/task.ts'
import type { Phase } from '../watch/run-events.ts'
import { aloneIn, replicated } from './shared-model.ts'
import { forwardOf } from './training-step.ts'

export interface WarmUpOptions {
  readonly config: TrainConfig
  readonly task: Task
  readonly runtime: AnyRuntime
  readonly baseUrl: string
  readonly onPhase: (phase: Phase) => void
}

/**
 * Does what a rank can do before it joins a run that is on, while the others train: loads the data, which it returns, and with `exact`, where
 * programs are the same for any ranks, compiles their kernels, which stay in the device's cache.
 *
 * Undefined where a person gave the data: the others send it.
 * errors: `data.*`, `config.invalid`, `gpu.*`.
 */
export async function warmUp({
  config,
  task,
  runtime,
  baseUrl,
  onPhase,
}: WarmUpOptions): Promise<TaskData | undefined> {
  if (config.data === 'given') return undefined
  onPhase('load')
  const data = await task.load({ config, given: null, baseUrl })
  if (!config.exact) return data
  onPhase('compile')
  const ranks = aloneIn({ epoch: 0, env: systemEnv })
  const { exactRun } = await loadPart('exact training', () => import('../exact/exact-run.ts'))
  const model = task.model(config, data)
  const run = exactRun(task, model, config, data.train.count, ranks)
  const { rows } = run
  const shared = replicated(model, model, ranks)
  const forward = forwardOf(task, shared)
  const step = await run.compile(runtime, forward, task.types(config, data, rows), 0)
  const evaluation = new Evaluation({
    runtime,
    model,
    task,
    config,
    data,
    ranks,
    trainingRows: rows,
  })
  await evaluation.prepare()
  await shared.digest(runtime)
  evaluation.destroy()
  step.destroy()
  return data
}
