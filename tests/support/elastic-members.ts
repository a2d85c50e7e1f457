import { vi } from 'vitest'
import { parseTrainConfig } from '../../demos/experiments.ts'
import { task } from '../../demos/playground/demo.ts'
import { pointsToBytes } from '../../demos/playground/given-points.ts'
import { ReferenceRuntime } from '../../src/graph/memory/runtime.ts'
import type { StepProgram } from '../../src/graph/plan/step-program.ts'
import type { ProcessGroup } from '../../src/peer/group/group.ts'
import { Trainer, type TrainerOptions } from '../../src/trainer/loop/trainer.ts'
import type { TrainConfigInput } from '../../src/trainer/settings/config.ts'
import type { Task } from '../../src/trainer/settings/task.ts'
import type { RunEvent, TrainerResult } from '../../src/trainer/watch/run-events.ts'
import { PeerError } from '../../src/util/errors.ts'
import { ElasticRoom } from './elastic-room.ts'
import { type RankEnd, resultsOf, trainRanks } from './train-ranks.ts'

/** Of all runs here, where a test gives no others. */
export const settings = {
  demo: 'playground',
  model: 'tanh-8-8',
  data: 'xor',
  batchSize: 24,
  bucketCapMb: 0.3,
} as const satisfies TrainConfigInput
/** What a person gave. */
export const points = pointsToBytes(
  Array.from({ length: 40 }, (_, i) => [Math.cos(i), Math.sin(i * 2), i % 2]).flat(),
)
/** The warnings, which the test's output then leaves out. */
export const warned = () => vi.spyOn(console, 'warn').mockImplementation(() => undefined)

export interface Member {
  readonly events: readonly RunEvent[]
  readonly end: Promise<RankEnd>
  /** As a tab that is closed. */
  kill(): void
  /** Resolves after that step. */
  after(step: number): Promise<void>
  /** As a link that loses a frame. */
  breakLink(): void
  pause(): void
  goOn(): void
  change(key: string, value: unknown): void
  /** Asks for another group, as rank 0 does when a rank comes. */
  regroup(): void
  /** The newest step from which it could continue. */
  heldStep(): number
  /** Whether it has failed alone, and the run continues. */
  leavesAlone(): boolean
  program(): StepProgram | undefined
  pace(): Trainer['pace']
}

/** A rank that trains with the members of a room. */
export function enter(
  room: ElasticRoom,
  name: string,
  input: TrainConfigInput,
  {
    task: given = task as Task,
    onEvicted: evict,
    ...options
  }: Partial<TrainerOptions> & { onEvicted?: (ranks: readonly number[]) => void } = {},
): Member {
  const events: RunEvent[] = []
  let group: ProcessGroup | undefined
  const waiting: { step: number; resolve(): void }[] = []
  const next = async () => {
    group = await room.next(name)
    return group
  }
  let trainer: Trainer | undefined
  const train = async (): Promise<TrainerResult> => {
    const own = new Trainer({
      task: given,
      runtime: new ReferenceRuntime(),
      group: options.group ?? (await next()),
      groups: { after: next, evict },
      isElastic: true,
      config: parseTrainConfig({ ...settings, ...input }),
      baseUrl: 'https://data.example/',
      self: { id: name, name: `tab ${name}` },
      keepAfterMs: Number.POSITIVE_INFINITY,
      ...options,
      onEvent: (event) => {
        events.push(event)
        options.onEvent?.(event)
        if (event.event !== 'step') return
        for (const { step, resolve } of waiting) if (step === event.step) resolve()
      },
    })
    trainer = own
    return own.run().finally(() => own.destroy())
  }
  return {
    events,
    end: train().then(
      (result) => ({ result, events }),
      (reason: unknown) => ({ reason, events }),
    ),
    kill: () => group?.destroy(),
    breakLink: () =>
      group?.abort(
        new PeerError('peer.protocol', 'rank 0 on its link to rank 1: a frame is lost.'),
      ),
    pause: () => trainer?.pause(),
    goOn: () => trainer?.goOn(),
    change: (key, value) => trainer?.change(key, value),
    regroup: () => trainer?.regroupSoon(),
    heldStep: () => trainer?.heldStep ?? 0,
    leavesAlone: () => trainer?.leavesAlone ?? false,
    program: () => trainer?.program,
    pace: () => trainer?.pace,
    after: (step) => new Promise((resolve) => waiting.push({ step, resolve })),
  }
}

/** One rank that trains alone and undisturbed. */
export async function trainAlone(input: TrainConfigInput) {
  const [end] = await trainRanks(
    1,
    { ...settings, ...input },
    () => new ReferenceRuntime(),
    undefined,
    task as Task,
  )
  return { result: resultsOf([end])[0], events: end.events }
}

/** Two ranks after 52 steps, which let a third, `c`, in. */
export async function lettingIn(input: TrainConfigInput) {
  const room = new ElasticRoom(['a', 'b'])
  const [a, b] = ['a', 'b'].map((name) => enter(room, name, input))
  await a.after(52)
  room.become(['a', 'b', 'c'])
  a.regroup()
  return { room, a, b }
}
