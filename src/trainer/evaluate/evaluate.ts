import { batchShares } from '../../data/shares.ts'
import { addOverRanks, runAhead, type Sums } from '../../ddp/metrics/batch-sums.ts'
import { compile } from '../../graph/compile/compile.ts'
import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import type { RunOutputs, StepProgram } from '../../graph/plan/step-program.ts'
import type { Module } from '../../nn/module.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import type { TrainConfig } from '../settings/config.ts'
import type { Task, TaskData } from '../settings/task.ts'
import { batchArrays } from './share-batches.ts'

/** Fewer rows than this a batch are not worth a dispatch. */
const fewestRows = 16
const defaultRows = 64

export interface EvaluationOptions {
  readonly runtime: AnyRuntime
  readonly model: Module
  readonly task: Task
  readonly config: TrainConfig
  readonly data: TaskData
  /** As in `Evaluation`. */
  readonly ranks: CollectiveGroup
  /** As in `compile`: the ranks that have parts of the model. */
  readonly parts?: CollectiveGroup
  /** Rows of this rank's training batch. With as many here, forward needs no other kernels. */
  readonly trainingRows: number
  /** Where a forward needs all ranks: rows of each rank's training batch, so that all run it equally often. */
  readonly rowsOf?: readonly number[]
}

/** Results on held-out samples, each counted once. */
export interface Evaluated {
  /** The mean of the task's loss. */
  readonly loss: number
  /** The mean of its metric. */
  readonly value: number
}

/**
 * The task's loss and metric over held-out samples, by one forward pass: ranks take contiguous shares and add their sums.
 *
 * Its program compiles when it is prepared or first run: beside steps, so that no run waits for it before its first step.
 */
export class Evaluation {
  /** The ranks that divide the samples among them. */
  ranks: CollectiveGroup
  readonly #options: EvaluationOptions
  readonly #rows: number
  #program: Promise<StepProgram> | undefined

  constructor(options: EvaluationOptions) {
    this.#options = options
    this.ranks = options.ranks
    this.#rows = evaluatedRows(options.trainingRows)
  }

  /** Compiles the program, unless it has been; resolves when that has ended. `run` throws what went wrong. */
  async prepare(): Promise<void> {
    await this.#compiled().catch(() => undefined)
  }

  /** Means over all held-out samples, the same on all ranks. order: of the sums, that of the ranks. errors: the groups'. */
  async run(): Promise<Evaluated> {
    const { task, config, data, rowsOf, parts } = this.#options
    const { ranks: group } = this
    const { count } = data.test
    const shares = batchShares(count, group.size)
    const share = shares[group.rank]
    const end = share.offset + share.rows
    const begins: number[] = []
    for (let begin = share.offset; begin < end; begin += this.#rows) begins.push(begin)
    const runs = shares.map(({ rows }, rank) =>
      rowsOf ? Math.ceil(rows / evaluatedRows(rowsOf[rank])) : 0,
    )
    while (begins.length < Math.max(...runs)) begins.push(end)
    // A rank that loses its device here tells the others by ending the group, so it must not wait for them.
    const program = await this.#compiled()
    const inputs = batchArrays(task.types(config, data, this.#rows))
    const own = await runAhead(begins, async (begin): Promise<Sums> => {
      const count = Math.min(this.#rows, end - begin)
      const indices = Uint32Array.from({ length: Math.max(1, count) }, (_, i) =>
        count > 0 ? begin + i : 0,
      )
      task.fill(data, 'test', indices, inputs)
      const outputs: Partial<RunOutputs> = await program.run(inputs, { count })
      // A run that only takes part for the others counts nothing, and other ranks may have its results.
      return count > 0 && outputs.loss
        ? { loss: outputs.loss[0] * count, metric: outputs.metric?.[0] ?? 0 }
        : {}
    })
    const none = { loss: 0, metric: 0 }
    const ofParts = async () => [await addOverRanks(async () => [none, ...own], parts)]
    const sums = await addOverRanks(parts ? ofParts : async () => [none, ...own], group)
    const loss = sums.loss / count
    return { loss, value: metricOf(task, loss, sums.metric / count) }
  }

  destroy(): void {
    this.#program?.then(
      (made) => made.destroy(),
      () => undefined,
    )
  }

  #compiled(): Promise<StepProgram> {
    const { runtime, model, task, config, data, parts } = this.#options
    this.#program ??= compile(
      (inputs) =>
        model.evaluating(() => {
          const output = task.forward(model, inputs)
          const metric = task.measure?.(output, inputs)
          return { loss: task.loss(output, inputs), ...(metric && { metric }) }
        }),
      task.types(config, data, this.#rows),
      { runtime, ...(parts && { group: parts }), endsGroups: false },
    )
    this.#program.catch(() => {
      // A device may have no memory now and have some later.
      this.#program = undefined
    })
    return this.#program
  }
}

const evaluatedRows = (trainingRows: number): number =>
  trainingRows < fewestRows ? defaultRows : trainingRows

/** The task's metric where `loss` is its loss: the loss in another unit, or `measured`. */
export const metricOf = ({ meta }: Task, loss: number, measured = Number.NaN): number =>
  meta.metric.ofLoss === undefined ? measured : loss * meta.metric.ofLoss
