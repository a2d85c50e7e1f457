import { compile } from '../graph/compile.ts'
import type { AnyRuntime } from '../graph/runtime.ts'
import type { StepProgram } from '../graph/step-program.ts'
import type { Module } from '../nn/module.ts'
import { TabringError } from '../util/errors.ts'
import { Gaps } from './gaps.ts'
import type { LookAnswer, LookContext, LookForward, LookProgram, Task } from './task.ts'

/** What looks are at: a model on a device, with all that a task's look may know. */
export interface Looked extends Omit<LookContext, 'program' | 'stateDict'> {
  readonly runtime: AnyRuntime
  /** Without anything that exchanges: each rank looks by itself. */
  readonly model: Module
}

/** Answers looks of a task at the model that a run trains: while it runs, while it pauses, and behind its end. */
export class Looks {
  /** Between the steps of the run. */
  readonly gaps = new Gaps()
  readonly #task: Task
  #looked: Looked | undefined
  readonly #programs = new Map<string, Promise<StepProgram>>()

  constructor(task: Task) {
    this.#task = task
  }

  /** The model is there, and its parameters are those of the next step. */
  begin(looked: Looked): void {
    this.#looked = looked
  }

  /**
   * errors: `config.invalid` for a look that the task does not have; `graph.misuse` while there is no model, or when it goes before the
   * answer is there; those of the look.
   */
  async ask(name: string, input: unknown): Promise<LookAnswer> {
    const { looks, meta } = this.#task
    if (!Object.hasOwn(looks, name)) {
      const known = Object.keys(looks).join(' or ') || 'none'
      throw new TabringError(
        'config.invalid',
        `look: expected ${known} of ${meta.title}, got ${name}. Ask for one that the demo has.`,
      )
    }
    const looked = this.#looked
    if (!looked) throw noModel()
    const context: LookContext = {
      ...looked,
      program: (key, types, forward) => this.#program(looked, `${name} ${key}`, types, forward),
      stateDict: () => this.#between(looked, () => looked.model.stateDict()),
    }
    return looks[name](context, input)
  }

  /** The model is about to go, with its device or for another run's: what waits is refused. */
  destroy(): void {
    this.#looked = undefined
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
    key: string,
    types: Parameters<LookContext['program']>[1],
    forward: LookForward,
  ): Promise<LookProgram> {
    this.#require(looked)
    const { model, runtime } = looked
    let made = this.#programs.get(key)
    if (!made) {
      made = compile((inputs) => evaluating(model, () => forward(model, inputs)), types, {
        runtime,
      })
      this.#programs.set(key, made)
      // One that could not be made may be asked for again.
      made.catch(() => this.#programs.delete(key))
    }
    const program = await made
    return {
      run: (inputs, scalars) => this.#between(looked, () => program.run(inputs, scalars)),
    }
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

/** What `trace` returns, traced with the model in evaluation mode. */
export function evaluating<T>(model: Module, trace: () => T): T {
  const { training } = model
  model.eval()
  try {
    return trace()
  } finally {
    model.train(training)
  }
}

const noModel = () =>
  new TabringError(
    'graph.misuse',
    'look: expected a model that is trained or has been, got none. Ask again when the run has begun to train.',
  )
