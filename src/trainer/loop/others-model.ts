import { compile } from '../../graph/compile/compile.ts'
import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import type { StepProgram } from '../../graph/plan/step-program.ts'
import type { Tensor } from '../../graph/trace/tensor.ts'
import type { Module } from '../../nn/module.ts'
import { TabringError } from '../../util/errors.ts'
import type { OwnRows } from '../evaluate/own-rows.ts'
import { batchArrays } from '../evaluate/share-batches.ts'
import type { Changes } from '../saves/changes.ts'
import type { RunParts } from '../saves/kept-states.ts'
import type { TrainConfig } from '../settings/config.ts'
import { canLeaveOut } from '../settings/leave-out.ts'
import { noModel } from '../settings/no-model.ts'
import type { BatchArrays, QueryAnswer, Task } from '../settings/task.ts'
import { ModelQueries, type Queried, untrainedModel } from '../watch/model-queries.ts'
import { makeStep, randomScalarsFor } from './training-step.ts'

/** It holds back steps of the run for no more than this part of the time, on all ranks together. */
const maxShare = 0.04
/** Trains so long at once, or one step where that takes longer. units: ms. */
const pieceMs = 8
/** After the last question it trains on for so long. units: ms. */
const idleMs = 3000

export interface OthersOptions {
  readonly config: TrainConfig
  readonly task: Task
  /** Of the run's model. */
  readonly run: ModelQueries
  readonly ownRows: OwnRows
  /** The run's settings that change as it trains. */
  readonly changes: Changes
}

/** On the device. */
interface Made {
  readonly model: Module
  readonly program: StepProgram
  readonly optimizer: RunParts['optimizer']
  readonly inputs: BatchArrays
  free(): void
}

/**
 * A model on this rank alone that learns from the other ranks' samples of each step, from the run's first parameters on: what the run's
 * would be without this rank. It trains between the run's steps, as long as somebody asks for it, and may lag behind.
 */
export class OthersModel {
  readonly runtime: AnyRuntime
  readonly #options: OthersOptions
  readonly #made: Made
  readonly #queries: ModelQueries
  #facts: Queried
  #askedMs = 0
  #training: Promise<void> | undefined
  #failure: unknown
  #isOver = false

  private constructor(options: OthersOptions, facts: Queried, made: Made) {
    this.runtime = facts.runtime
    this.#options = options
    this.#made = made
    this.#queries = new ModelQueries(options.task, options.run.gaps)
    this.#facts = facts
    this.#queries.begin({ ...facts, model: made.model })
  }

  /** errors: `config.invalid` for a run of another kind, `graph.misuse` before it has a model; `gpu.*`. */
  static async create(options: OthersOptions): Promise<OthersModel> {
    const { config, task, run, ownRows } = options
    if (!canLeaveOut(config)) {
      throw new TabringError(
        'config.invalid',
        'query: there is no model of the others, as ranks do not average gradients from the first step on. Ask the model of all.',
      )
    }
    const facts = run.answered
    if (!facts) throw noModel()
    const { ofStep } = ownRows
    const { data, runtime } = facts
    const model = untrainedModel(task, facts)
    const types = task.types(config, data, ofStep)
    const trained = { model, mean: (value: Tensor) => value }
    const { run: step, optimizer } = await makeStep(task, trained, config)
    const program = await compile(step, types, { runtime })
    return new OthersModel(options, facts, {
      ...{ model, program, optimizer, inputs: batchArrays(types) },
      free() {
        for (const one of [program, ...optimizer.buckets]) one.destroy()
      },
    })
  }

  /** Returns the query's answer with the `step` of this model, which trains on. errors: those of `ModelQueries.ask`; of training, once. */
  async ask(name: string, input: unknown): Promise<QueryAnswer> {
    const { answered, part } = this.#options.run
    const failure = this.#failure
    this.#failure = undefined
    if (failure) throw failure
    if (answered && answered !== this.#facts) {
      this.#facts = answered
      this.#queries.begin({ ...answered, model: this.#made.model })
    }
    this.#askedMs = performance.now()
    this.#queries.part = part
    this.#training ??= this.#train()
    return this.#queries.ask(name, input)
  }

  /** Refuses what waits, and frees the model once the step that is under way has ended. */
  async destroy(): Promise<void> {
    this.#isOver = true
    this.#queries.destroy()
    await this.#training
    this.#made.free()
  }

  get #isBehind(): boolean {
    return !this.#isOver && this.#queries.step < this.#options.run.step
  }

  async #train(): Promise<void> {
    const { gaps } = this.#queries
    try {
      while (this.#isBehind && performance.now() - this.#askedMs < idleMs) {
        let restMs = 0
        await gaps.run(this.#queries, async () => {
          const beganMs = performance.now()
          const tookMs = () => performance.now() - beganMs
          while (this.#isBehind && tookMs() < pieceMs) await this.#step()
          if (!gaps.isOpen) restMs = (tookMs() * this.#facts.worldSize) / maxShare
        })
        // Where neither steps nor pieces need a turn of the event loop, timers get theirs.
        await new Promise((resolve) => setTimeout(resolve, restMs))
      }
    } catch (error) {
      this.#failure = error
    } finally {
      this.#training = undefined
    }
  }

  async #step(): Promise<void> {
    const { task, ownRows, changes } = this.#options
    const { program, optimizer, inputs } = this.#made
    const stepsDone = this.#queries.step
    const others = ownRows.others(stepsDone)
    if (others.length > 0) {
      changes.useRate(optimizer, stepsDone + 1)
      task.fill(this.#facts.data, 'train', others, inputs)
      await program.run(inputs, {
        count: others.length,
        ...randomScalarsFor(program, stepsDone, 0),
      })
    }
    this.#queries.step = stepsDone + 1
  }
}
