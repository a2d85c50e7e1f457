import { type DataSplits, fillBatch } from '../data/dataset.ts'
import { planShares } from '../data/shares.ts'
import { compile } from '../graph/compile.ts'
import { countedSamples, topKCorrect } from '../graph/functions.ts'
import type { AnyRuntime } from '../graph/runtime.ts'
import type { StepProgram } from '../graph/step-program.ts'
import type { ModelRecipe } from '../nn/models.ts'
import type { Module } from '../nn/module.ts'
import type { CollectiveGroup } from '../peer/collective-group.ts'
import { tensorType } from '../util/shape.ts'

/** Fewer rows than this a batch are not worth a dispatch. */
const fewestRows = 16
const defaultRows = 64
/** Batches that are on the device while the next one is made. */
const batchesAhead = 2

export interface EvaluationOptions {
  readonly runtime: AnyRuntime
  readonly model: Module
  readonly recipe: ModelRecipe
  readonly data: DataSplits['test']
  /** Rows of this rank's training batch. With as many here, forward needs no kernels of its own. */
  readonly trainingRows: number
}

/** Accuracy on held-out samples, each counted once: ranks take contiguous shares and add their counts. */
export class Evaluation {
  readonly #program: StepProgram
  readonly #data: DataSplits['test']
  readonly #pixels: Float32Array<ArrayBuffer>
  readonly #labels: Int32Array<ArrayBuffer>

  private constructor(program: StepProgram, data: DataSplits['test'], rows: number) {
    this.#program = program
    this.#data = data
    this.#pixels = new Float32Array(rows * data.height * data.width)
    this.#labels = new Int32Array(rows)
  }

  static async create(options: EvaluationOptions): Promise<Evaluation> {
    const { runtime, model, recipe, data, trainingRows } = options
    const rows = trainingRows < fewestRows ? defaultRows : trainingRows
    const program = await compile(
      ({ x, y }) => {
        const { training } = model
        const logits = model.eval().forward(x)
        model.train(training)
        return { correct: topKCorrect(logits, y, 1, { count: countedSamples() }) }
      },
      { x: tensorType([rows, ...recipe.sampleShape]), y: tensorType([rows], 'i32') },
      { runtime },
    )
    return new Evaluation(program, data, rows)
  }

  /** The share of test samples whose largest logit is their label's, over all ranks. errors: the group's. */
  async accuracy(group: CollectiveGroup): Promise<number> {
    const share = planShares(this.#data.count, group.size)[group.rank]
    const end = share.offset + share.rows
    const rows = this.#labels.length
    const underWay: Promise<number>[] = []
    let correct = 0
    for (let begin = share.offset; begin < end; begin += rows) {
      const batch = this.#countCorrect(begin, Math.min(rows, end - begin))
      // One that fails while an earlier one is awaited, as all do when the device goes, is not unhandled: each is awaited in its turn.
      batch.catch(() => undefined)
      underWay.push(batch)
      if (underWay.length > batchesAhead) correct += await underWay.shift()!
    }
    for (const batch of underWay) correct += await batch
    const counts = await group.allGatherU32(Uint32Array.of(correct))
    return counts.reduce((sum, next) => sum + next, 0) / this.#data.count
  }

  destroy(): void {
    this.#program.destroy()
  }

  async #countCorrect(begin: number, count: number): Promise<number> {
    const indices = Array.from({ length: count }, (_, i) => begin + i)
    fillBatch(this.#data, indices, this.#pixels, this.#labels)
    const outputs = await this.#program.run({ x: this.#pixels, y: this.#labels }, { count })
    return outputs.correct[0]
  }
}
