import { compile } from '../../graph/compile/compile.ts'
import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import type { RunOutputs, StepProgram } from '../../graph/plan/step-program.ts'
import { getRngState, manualSeed, setRngState } from '../../nn/init.ts'
import type { Module } from '../../nn/module.ts'
import { TabringError } from '../../util/errors.ts'
import { noModel } from '../settings/no-model.ts'
import type {
  CopyProgram,
  ModelCopy,
  QueryAnswer,
  QueryContext,
  QueryForward,
  StepPart,
  Task,
} from '../settings/task.ts'
import { Gaps } from './between-steps.ts'

/** Runs over a copy hold a step back for so long at most, or for one run where that takes longer. units: ms. */
const copyShareMs = 40

/** Subject of queries: a model on a device, with all that a task's query may read. */
export interface Queried extends Omit<QueryContext, 'part' | 'program' | 'stateDict' | 'copied'> {
  readonly runtime: AnyRuntime
  /** Without anything that exchanges: each rank looks by itself. */
  readonly model: Module
  /** True if this rank has the whole model. */
  readonly isWhole: boolean
}

/** Answers queries of a task to the model that a run trains: while it runs, while it pauses, and behind its end. */
export class ModelQueries {
  /** Between the steps of the run. */
  readonly gaps: Gaps
  readonly #task: Task
  #answered: Queried | undefined
  readonly #programs = new Map<string, Promise<StepProgram>>()
  /** The steps behind the parameters, as the run counts them. */
  step = 0
  /** This rank's of the newest step. */
  part: StepPart | null = null
  /** Made when a look first asks for one. */
  #copy: Module | undefined
  /** One work has the copy at a time. */
  #copyFree: Promise<unknown> = Promise.resolve()

  constructor(task: Task, gaps = new Gaps()) {
    this.#task = task
    this.gaps = gaps
  }

  /** Subject of the answers; undefined while there is no model. */
  get answered(): Queried | undefined {
    return this.#answered
  }

  /** The model is there, and its parameters are those of the next step; or, of a divided one, the whole after the last step. */
  begin(answered: Queried): void {
    this.#answered = answered
  }

  /**
   * Returns the look's answer, with the `step` behind which the model was as the last run found it.
   *
   * errors: `config.invalid` for a look that the task does not have; `graph.misuse` while there is no model, or when it goes before the
   * answer is there; those of the look.
   */
  async ask(name: string, input: unknown): Promise<QueryAnswer> {
    const { queries, meta } = this.#task
    if (!Object.hasOwn(queries, name)) {
      const known = Object.keys(queries).join(' or ') || 'none'
      throw new TabringError(
        'config.invalid',
        `query: expected ${known} of ${meta.title}, got ${name}. Choose one that the demo has.`,
      )
    }
    const answered = this.#answered
    if (!answered) throw noModel()
    if (!answered.isWhole) {
      throw new TabringError(
        'config.invalid',
        `query: ${name} needs the whole model, and each rank has a part of it until the run ends. Wait, or choose the whole model on each rank (Parallel).`,
      )
    }
    let step = this.step
    const between = <T>(work: () => Promise<T>) =>
      this.#between(answered, () => {
        step = this.step
        return work()
      })
    const context: QueryContext = {
      ...answered,
      part: this.part,
      program: async (key, types, forward) => {
        const at = [answered, answered.model, `${name} ${key}`] as const
        const program = await this.#program(...at, types, forward)
        return {
          run: (inputs, scalars) => between(() => program.run(inputs, scalars)),
        }
      },
      stateDict: () => between(() => answered.model.stateDict()),
      copied: (work, { untrained = false } = {}) => this.#withCopy(answered, name, untrained, work),
    }
    const answer = await queries[name](context, input)
    return { step, ...answer }
  }

  /** The model is about to go, with its device or for another run's: what waits is refused. */
  destroy(): void {
    this.#answered = undefined
    this.#copy = undefined
    this.gaps.refuse(this, noModel())
    for (const program of this.#programs.values()) {
      program.then(
        (made) => made.destroy(),
        () => undefined,
      )
    }
    this.#programs.clear()
  }

  /** Compiling sends nothing to the device that a step would wait for, so it goes on beside steps. */
  async #program(
    answered: Queried,
    model: Module,
    key: string,
    types: Parameters<QueryContext['program']>[1],
    forward: QueryForward,
  ): Promise<StepProgram> {
    this.#require(answered)
    const { runtime } = answered
    let made = this.#programs.get(key)
    if (!made) {
      made = compile((inputs) => model.evaluating(() => forward(model, inputs)), types, {
        runtime,
      })
      this.#programs.set(key, made)
      // One that could not be made may be asked for again.
      made.catch(() => this.#programs.delete(key))
    }
    return made
  }

  #withCopy<T>(
    answered: Queried,
    name: string,
    untrained: boolean,
    work: (copy: ModelCopy) => Promise<T>,
  ): Promise<T> {
    const done = this.#copyFree.then(async () => {
      this.#require(answered)
      this.#copy ??= untrainedModel(this.#task, answered)
      const model = this.#copy
      const step = await this.#between(answered, async () => {
        const source = untrained ? untrainedModel(this.#task, answered) : answered.model
        model.loadStateDict(await source.stateDict())
        return untrained ? 0 : this.step
      })
      return work({
        step,
        program: async (key, types, forward) => {
          const at = [answered, model, `${name} copy ${key}`] as const
          const program = await this.#program(...at, types, forward)
          return { repeat: (next) => this.#repeat(answered, program, next) }
        },
      })
    })
    this.#copyFree = done.catch(() => undefined)
    return done
  }

  async #repeat(
    answered: Queried,
    program: StepProgram,
    next: Parameters<CopyProgram['repeat']>[0],
  ): Promise<void> {
    let outputs: RunOutputs | null = null
    let isDone = false
    while (!isDone) {
      await this.#between(answered, async () => {
        const beganMs = performance.now()
        let longestMs = 0
        while (performance.now() - beganMs + longestMs <= copyShareMs) {
          const inputs = next(outputs)
          isDone = inputs === null
          if (!inputs) return
          const runBeganMs = performance.now()
          outputs = await program.run(inputs)
          longestMs = Math.max(longestMs, performance.now() - runBeganMs)
        }
      })
    }
  }

  #between<T>(answered: Queried, work: () => Promise<T>): Promise<T> {
    return this.gaps.run(this, async () => {
      this.#require(answered)
      return work()
    })
  }

  #require(answered: Queried): void {
    if (this.#answered !== answered) throw noModel()
  }
}

/** Returns the model as each run of these settings begins with it. The run draws the random numbers that it would draw without this. */
export function untrainedModel(
  task: Task,
  { config, data }: Pick<Queried, 'config' | 'data'>,
): Module {
  const random = getRngState()
  manualSeed(config.seed)
  const model = task.model(config, data)
  setRngState(random)
  return model
}
