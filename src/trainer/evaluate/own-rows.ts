import type { BatchShare } from '../../data/shares.ts'
import { noModel } from '../settings/no-model.ts'
import type { Draws, ShareBatch } from './share-batches.ts'

/** Rows that a rank takes of each global batch, from a step on. */
interface Rows extends BatchShare {
  /** Steps before it. */
  readonly from: number
  readonly draws: Draws
}

/** Record of which rows of each step this rank took, through all groups of a run. */
export class OwnRows {
  readonly #rows: Rows[] = []
  /** Asked for others' samples last. */
  #asked: Draws | undefined

  /** The rank takes these rows of the step behind the first `stepsDone`; of a step that is done again the newest count. */
  took(stepsDone: number, draws: Draws, { firstRow, rows }: ShareBatch): void {
    const all = this.#rows
    while (all.length > 0 && all[all.length - 1].from > stepsDone) all.pop()
    const last = all.at(-1)
    if (last?.draws === draws && last.offset === firstRow && last.rows === rows) return
    if (last && last.draws !== draws) last.draws.forget()
    if (last?.from === stepsDone) all.pop()
    all.push({ from: stepsDone, draws, offset: firstRow, rows })
  }

  /** Rows of a full step of all ranks, when the rank came. errors: `graph.misuse` before its first step. */
  get ofStep(): number {
    return this.#first.draws.rows
  }

  /** Returns the samples of that step that others took: all of them before this rank was there. errors: as `ofStep`. */
  others(stepsDone: number): Uint32Array<ArrayBuffer> {
    const none = { draws: this.#first.draws, offset: 0, rows: 0 }
    const { draws, ...share } = this.#rows.findLast(({ from }) => from <= stepsDone) ?? none
    if (this.#asked !== draws) this.#asked?.forget()
    this.#asked = draws
    const { perEpoch } = draws
    return draws.others(Math.floor(stepsDone / perEpoch), stepsDone % perEpoch, share)
  }

  get #first(): Rows {
    const [first] = this.#rows
    if (!first) throw noModel()
    return first
  }
}
