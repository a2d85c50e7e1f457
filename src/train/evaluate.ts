import { type DataSplits, fillBatch } from '../data/dataset.ts'
import { compile } from '../graph/compile.ts'
import { stepScalar, topKCorrect } from '../graph/functions.ts'
import type { StepProgram } from '../graph/program.ts'
import type { Runtime } from '../graph/runtime.ts'
import type { ModelRecipe } from '../nn/models.ts'
import type { Module } from '../nn/module.ts'
import type { ProcessGroup } from '../peer/group.ts'
import { tensorType } from '../util/shape.ts'

const batchRows = 100

/** Accuracy on held-out samples, each counted once: ranks take turns by batches and add their counts. */
export class Evaluation {
  readonly #program: StepProgram
  readonly #data: DataSplits['test']
  readonly #pixels: Float32Array<ArrayBuffer>
  readonly #labels = new Int32Array(batchRows)

  private constructor(program: StepProgram, data: DataSplits['test']) {
    this.#program = program
    this.#data = data
    this.#pixels = new Float32Array(batchRows * data.height * data.width)
  }

  static async create(
    runtime: Runtime,
    model: Module,
    recipe: ModelRecipe,
    data: DataSplits['test'],
  ): Promise<Evaluation> {
    const program = await compile(
      ({ x, y }) => ({
        correct: topKCorrect(model.forward(x), y, 1, { count: stepScalar('count') }),
      }),
      { x: tensorType([batchRows, ...recipe.sampleShape]), y: tensorType([batchRows], 'i32') },
      { runtime },
    )
    return new Evaluation(program, data)
  }

  /** The share of test samples whose largest logit is their label's, over all ranks. errors: the group's. */
  async accuracy(group: ProcessGroup): Promise<number> {
    let correct = 0
    const batches = Math.ceil(this.#data.count / batchRows)
    for (let batch = group.rank; batch < batches; batch += group.size) {
      const begin = batch * batchRows
      const count = Math.min(batchRows, this.#data.count - begin)
      const indices = Array.from({ length: count }, (_, i) => begin + i)
      fillBatch(this.#data, indices, this.#pixels, this.#labels)
      const outputs = await this.#program.run({ x: this.#pixels, y: this.#labels }, { count })
      correct += outputs.correct[0]
    }
    const counts = await group.allGatherU32(Uint32Array.of(correct))
    return counts.reduce((sum, next) => sum + next, 0) / this.#data.count
  }

  destroy(): void {
    this.#program.destroy()
  }
}
