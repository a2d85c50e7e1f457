import { compile } from '../../graph/compile/compile.ts'
import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import type { RunOutputs, StepProgram } from '../../graph/plan/step-program.ts'
import { getRngState, setRngState } from '../../nn/init.ts'
import type { Module } from '../../nn/module.ts'
import { TabringError } from '../../util/errors.ts'
import type {
  CopyProgram,
  LookAnswer,
  LookContext,
  LookForward,
  ModelCopy,
  Task,
} from '../settings/task.ts'
import { Gaps } from './between-steps.ts'

/** Runs over a copy hold a step back for so long at most, or for one run where that takes longer. units: ms. */
const copyShareMs = 40

/** What looks are at: a model on a device, with all that a task's look may know. */
export interface Looked extends Omit<LookContext, 'program' | 'stateDict' | 'copied'> {
  readonly runtime: AnyRuntime
  /** Without anything that exchanges: each rank looks by itself. */
  readonly model: Module
  /** Whether this rank has the whole model. */
  readonly isWhole: boolean
}

/** Answers looks of a task at the model that a run trains: while it runs, while it pauses, and behind its end. */
export class Looks {
  /** Between the steps of the run. */
  readonly gaps = new Gaps()
  readonly #task: Task
  #looked: Looked | undefined
  readonly #programs = new Map<string, Promise<StepProgram>>()
  /** The steps behind the parameters, as the run counts them. */
  step = 0
  /** Made when a look first asks for one. */
  #copy: Module | undefined
  /** One work has the copy at a time. */
  #copyFree: Promise<unknown> = Promise.resolve()

  constructor(task: Task) {
    this.#task = task
  }

  /** The model is there, and its parameters are those of the next step; or, of a divided one, the whole after the last step. */
  begin(looked: Looked): void {
    this.#looked = looked
  }

  /**
   * Returns the look's answer, with the `step` behind which the model was as the last run found it.
   *
   * errors: `config.invalid` for a look that the task does not have; `graph.misuse` while there is no model, or when it goes before the
   * answer is there; those of the look.
   */
  async ask(name: string, input: unknown): Promise<LookAnswer> {
    const { looks, meta } = this.#task
    if (!Object.hasOwn(looks, name)) {
      const known = Object.keys(looks).join(' or ') || 'none'
      throw new TabringError(
        'config.invalid',
        `query: expected ${known} of ${meta.title}, got ${name}. Choose one that the demo has.`,
      )
    }
    const looked = this.#looked
    if (!looked) throw noModel()
    if (!looked.isWhole) {
      throw new TabringError(
        'config.invalid',
        `query: ${name} needs the whole model, and each rank has a part of it until the run ends. Wait, or choose the whole model on each rank (Parallel).`,
      )
    }
    let step = this.step
    const between = <T>(work: () => Promise<T>) =>
      this.#between(looked, () => {
        step = this.step
        return work()
      })
    const context: LookContext = {
      ...looked,
      program: async (key, types, forward) => {
        const at = [looked, looked.model, `${name} ${key}`] as const
        const program = await this.#program(...at, types, forward)
        return {
          run: (inputs, scalars) => between(() => program.run(inputs, scalars)),
        }
      },
      stateDict: () => between(() => looked.model.stateDict()),
      copied: (work) => this.#withCopy(looked, name, work),
    }
    const answer = await looks[name](context, input)
    return { step, ...answer }
  }

  /** The model is about to go, with its device or for another run's: what waits is refused. */
  destroy(): void {
    this.#looked = undefined
    this.#copy = undefined
    this.gaps.refuse(noModel())
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
    looked: Looked,
    model: Module,
    key: string,
    types: Parameters<LookContext['program']>[1],
    forward: LookForward,
  ): Promise<StepProgram> {
    this.#require(looked)
    const { runtime } = looked
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

  #withCopy<T>(looked: Looked, name: string, work: (copy: ModelCopy) => Promise<T>): Promise<T> {
    const done = this.#copyFree.then(async () => {
      this.#require(looked)
      this.#copy ??= this.#newModel(looked)
      const model = this.#copy
      const step = await this.#between(looked, async () => {
        model.loadStateDict(await looked.model.stateDict())
        return this.step
      })
      return work({
        step,
        program: async (key, types, forward) => {
          const at = [looked, model, `${name} copy ${key}`] as const
          const program = await this.#program(...at, types, forward)
          return { repeat: (next) => this.#repeat(looked, program, next) }
        },
      })
    })
    this.#copyFree = done.catch(() => undefined)
    return done
  }

  async #repeat(
    looked: Looked,
    program: StepProgram,
    next: Parameters<CopyProgram['repeat']>[0],
  ): Promise<void> {
    let outputs: RunOutputs | null = null
    let isDone = false
    while (!isDone) {
      await this.#between(looked, async () => {
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

  /** A model whose parameters do not matter: the random numbers of the run's own are drawn as if it were not made. */
  #newModel({ config, data }: Looked): Module {
    const random = getRngState()
    const model = this.#task.model(config, data)
    setRngState(random)
    return model
  }

  #between<T>(looked: Looked, work: () => Promise<T>): Promise<T> {
    return this.gaps.run(async () => {
      this.#require(looked)
      return work()
    })
  }

  #require(looked: Looked): void {
    if (this.#looked !== looked) throw noModel()
  }
}

const noModel = () =>
  new TabringError(
    'graph.misuse',
    'query: there is no model yet. Ask again when training has started.',
  )
