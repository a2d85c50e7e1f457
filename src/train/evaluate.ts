import { planShares } from '../data/shares.ts'
import { compile } from '../graph/compile.ts'
import type { AnyRuntime } from '../graph/runtime.ts'
import type { StepProgram } from '../graph/step-program.ts'
import type { Module } from '../nn/module.ts'
import type { CollectiveGroup } from '../peer/collective-group.ts'
import { addOverRanks, runAhead, type Sums } from './batch-sums.ts'
import type { TrainConfig } from './config.ts'
import { evaluating } from './looks.ts'
import { batchArrays } from './share-batches.ts'
import type { BatchArrays, Task, TaskData } from './task.ts'

/** Fewer rows than this a batch are not worth a dispatch. */
const fewestRows = 16
const defaultRows = 64

export interface EvaluationOptions {
  readonly runtime: AnyRuntime
  readonly model: Module
  readonly task: Task
  readonly config: TrainConfig
  readonly data: TaskData
  /** Rows of this rank's training batch. With as many here, forward needs no kernels of its own. */
  readonly trainingRows: number
}

/** The task's metric over held-out samples, each counted once: ranks take contiguous shares and add their sums. */
export class Evaluation {
  readonly #program: StepProgram
  readonly #task: Task
  readonly #data: TaskData
  readonly #rows: number
  readonly #inputs: BatchArrays

  private constructor(program: StepProgram, { task, data }: EvaluationOptions, rows: number) {
    this.#program = program
    this.#task = task
    this.#data = data
    this.#rows = rows
    this.#inputs = batchArrays(program.prepared.inputs)
  }

  static async create(options: EvaluationOptions): Promise<Evaluation> {
    const { runtime, model, task, config, data, trainingRows } = options
    const rows = trainingRows < fewestRows ? defaultRows : trainingRows
    const program = await compile(
      (inputs) => evaluating(model, () => ({ sum: task.measure(model, inputs) })),
      task.types(config, data, rows),
      { runtime },
    )
    return new Evaluation(program, options, rows)
  }

  /** The mean over all held-out samples, on all ranks of `group`. order: of the sums, that of the ranks. errors: the group's. */
  async value(group: CollectiveGroup): Promise<number> {
    const { count } = this.#data.test
    const share = planShares(count, group.size)[group.rank]
    const end = share.offset + share.rows
    const begins: number[] = []
    for (let begin = share.offset; begin < end; begin += this.#rows) begins.push(begin)
    // A rank that loses its device here tells the others by ending the group, so it must not wait for them.
    const own = await runAhead(begins, (begin) =>
      this.#sumOf(begin, Math.min(this.#rows, end - begin)),
    )
    const { sum } = await addOverRanks(async () => [{ sum: 0 }, ...own], group)
    return sum / count
  }

  destroy(): void {
    this.#program.destroy()
  }

  async #sumOf(begin: number, count: number): Promise<Sums> {
    const indices = Uint32Array.from({ length: count }, (_, i) => begin + i)
    this.#task.fill(this.#data, 'test', indices, this.#inputs)
    const outputs = await this.#program.run(this.#inputs, { count })
    return { sum: outputs.sum[0] }
  }
}
