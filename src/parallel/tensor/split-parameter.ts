import { Parameter } from '../../graph/trace/parameter.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { countElements, type Shape } from '../../util/shape.ts'

type Floats = Float32Array<ArrayBuffer>

/** How an axis of a parameter is divided over ranks: within each of `blocks` equal parts of it, every rank has a piece, in rank order. */
export interface Cut {
  readonly axis: number
  readonly blocks: number
}

/**
 * This rank's slice of a parameter along one axis.
 *
 * Optimizers and state dicts take it for the parameter. shape: that of the whole, with 1/N of the axis
 */
export class SplitParameter extends Parameter {
  readonly #group: CollectiveGroup
  readonly #shape: Shape
  readonly #cut: Cut

  /** `whole`: what it is a slice of. `contents`: of the whole. */
  constructor(whole: Parameter, contents: Floats, group: CollectiveGroup, cut: Cut) {
    const shape = whole.shape.map((size, axis) => (axis === cut.axis ? size / group.size : size))
    super(shape, new Float32Array(countElements(shape)))
    this.#group = group
    this.#shape = whole.shape
    this.#cut = cut
    this.receive(this.partOf(contents))
    this.name = whole.name
    this.sharedBy = group
    this.dividedAlong = { axis: cut.axis, span: shape[cut.axis] / cut.blocks }
    this.requiresGrad = whole.requiresGrad
    if (whole.device) this.moveToDevice(whole.device)
  }

  override get stateShape(): Shape {
    return this.#shape
  }

  override async wholeOf(contents: Floats): Promise<Floats> {
    const all = await this.#group.allGatherConcat(contents, { label: 'stateDict' })
    const whole = new Float32Array(countElements(this.#shape))
    for (let rank = 0; rank < this.#group.size; rank++) {
      for (const { at, from, length } of this.#runs(rank))
        whole.set(all.subarray(rank * this.count + at, rank * this.count + at + length), from)
    }
    return whole
  }

  override partOf(whole: Floats): Floats {
    const part = new Float32Array(this.count)
    for (const { at, from, length } of this.#runs(this.#group.rank))
      part.set(whole.subarray(from, from + length), at)
    return part
  }

  /** The runs of elements that a rank has: where each lies in its slice, and in the whole. */
  *#runs(rank: number): Generator<{ at: number; from: number; length: number }> {
    const { axis, blocks } = this.#cut
    const outer = countElements(this.#shape.slice(0, axis)) * blocks
    const inner = countElements(this.#shape.slice(axis + 1))
    const length = (this.#shape[axis] / blocks / this.#group.size) * inner
    for (let block = 0; block < outer; block++)
      yield { at: block * length, from: (block * this.#group.size + rank) * length, length }
  }
}
